"""Chooses the engine that answers a batch of questions.

One run of one pair is read off its tails (`one_run`). Compositions of Gaussians, sampled or not, go to the contour with
its own quadrature (`contour.bounds`): its bounds are 1e-9 wide where it suits the query, and say so where it does not.
Few runs on a rare sample of a Gaussian, whose losses differ by orders of magnitude, go to integrals along rays
(`rays`). Compositions of few outcomes are summed, one sum of losses after the other (`few_outcomes`). What is left goes
to the engine of transforms (`discrete_laws.bounds`) with more and more frequencies: first with the certified transforms
of its parts, where all are known (`lines`), until bounds are a millionth wide; then, or where one is not known, with
discrete laws on either side of every part. Where two engines answered, the intersection of their bounds holds.

Concrete queries are answered in NumPy and compile nothing. Which engine answers, and on how many points, depends on
the query alone. Inside a program for an accelerator the same formulas are compiled, in one size each.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from types import ModuleType
from typing import Any

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.losses.engines.contour.bounds import Size
from jaxacct.losses.engines.devices import Spread
from jaxacct.losses.engines.discrete_laws.bounds import Size as Cells
from jaxacct.losses.engines.discrete_laws.bounds import has_lines
from jaxacct.losses.engines.fallback_bounds import capped
from jaxacct.losses.engines.few_outcomes import enumerable, sum_bounds
from jaxacct.losses.engines.few_runs import MOST_RUNS, few_run_bounds
from jaxacct.losses.engines.rays.bounds import ray_bounds, suits
from jaxacct.losses.engines.run import (
    Answer,
    Options,
    contour_run,
    discrete_run,
    in_chunks,
    is_compiled,
    single_run,
    traced_bounds,
)
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

_SIZES = (
    Size(160, 128),
    Size(256, 256),
    Size(768, 512),
    Size(2048, 1024),
    Size(2048, 4096),
)  # of the contour, tried in turn
_BESIDE_ANOTHER = Size(96, 64)  # of a direction that is only to be no worse than another
_MANY = 512  # directions, from which on they are answered in turn
_CELLS = tuple(Cells(2**i, 4 ** (i - 4), False) for i in (9, 10, 11, 12))  # of discrete laws
_LINES = (Cells(256, 256), *(Cells(1024, 4**i) for i in (5, 6, 7, 8)))  # of transforms
_FEW_AFTER = 2  # sizes of cells were tried, few runs are composed law by law
_VERY_FEW = 16  # runs that are composed law by law before the largest contours, others only after them
_RAYS_AFTER = 1  # sizes of contours were tried, few runs on rare samples are integrated along rays
_VERY_FEW_AFTER = 3  # sizes of contours were tried, very few runs are composed law by law
_SMALL = 3  # sizes of contours whose bounds are to be as narrow as contours can be: the next size is cheap
_NOTHING = 1e-280  # a delta that no second engine makes smaller
_DEEP = 1e-12
_TIGHT = {"delta": 9.5e-4, "deep": 5e-3, "epsilon": 5e-4}  # relative width that asks for no second engine
_NARROW = 1e-6  # that asks for no larger size of a cheap one
_BESIDE = 0.02  # width of the logarithm of a delta over its distance from a limit that is narrow beside it
_FAR = 10.0  # distance of that logarithm beyond which its width hardly matters
_HOPELESS = 4.0  # times as wide as that: not even the most frequencies are tried


def grouped(pairs: list[Pair], counts: list[Array], xp: ModuleType) -> tuple[tuple[Any, ...], Array]:
    """Pairs of one structure stacked along a new axis 1, so that K parts of a kind are one array operation.

    Returns:
        ``(groups, counts)``: the stacked pairs, leaves of shape ``(batch, parts of the group)``, and how often each
        runs, shape ``(batch, K)``, in the order in which the groups hold the parts.
    """
    groups: dict[Hashable, list[int]] = {}
    for i, pair in enumerate(pairs):
        groups.setdefault(jax.tree.structure(pair), []).append(i)
    stacked = [jax.tree.map(lambda *x: xp.stack(x, 1), *(pairs[i] for i in members)) for members in groups.values()]
    order = [i for members in groups.values() for i in members]
    return tuple(stacked), xp.stack([counts[i] for i in order], -1)


def bounds(
    kind: str,
    pairs: list[Pair],
    counts: list[Array],
    goal: Array,
    most: float | None,
    xp: ModuleType,
    options: Options = Options(),  # noqa: B008
    sides: int = 1,
) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta or epsilon for a flat batch.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        pairs, counts: the K pairs of a composition and how often each runs; leaves of shape ``(batch,)``, as ``goal``.
        most: the largest number of steps, where it is known while tracing.
        xp: NumPy where everything is concrete, jax.numpy inside a trace.
        options: only for concrete queries.
        sides: the batch is that many directions of the same settings, one after the other, of which only the worst
            counts; of the others concrete queries may have wide bounds.
    """
    groups, stacked = grouped(pairs, counts, xp)
    contour = on_contour(pairs)
    if xp is not np:
        return traced_bounds(kind, most, contour, groups, stacked, goal)
    if options.precision == "float32":
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return _concrete(kind, contour, groups, stacked, goal, options, sides)
    return _concrete(kind, contour, groups, stacked, goal, options, sides)


def on_contour(pairs: list[Pair]) -> bool:
    """Whether a composition of these pairs is one of Gaussians, sampled or not."""
    return all(isinstance(pair, GaussianPair) for pair in pairs)


def _concrete(
    kind: str, contour: bool, groups: tuple[Pair, ...], counts: Array, goal: Array, options: Options, sides: int
):
    total = goal.size
    lower, upper = np.zeros(total), np.full(total, np.inf if kind == "epsilon" else 1.0)
    open_ = np.arange(total) if options.limit is None else np.flatnonzero(np.asarray(options.limit) < np.inf)
    spread = Spread(options.devices)
    done = 0

    def asked(members: np.ndarray) -> tuple[tuple[Pair, ...], np.ndarray, np.ndarray]:
        return jax.tree.map(lambda x: x[members], (groups, counts, goal))

    def narrow(members: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        lower[members], upper[members] = np.maximum(lower[members], low), np.minimum(upper[members], high)

    def report(settled: int) -> None:
        nonlocal done
        done += settled
        if options.progress is not None and settled:
            options.progress(done, total)

    def attempt(
        run: functools.partial[Answer],
        parts: int,
        each: float,
        query: tuple[object, ...],
        members: np.ndarray,
        width: float | None = None,
    ) -> np.ndarray:
        """Takes what ``run`` answers; returns the members that are still open, wider than asked among them."""
        for some, low, high in in_chunks(run, parts * each, query, members, spread):
            narrow(some, low, high)
        left = members[~settled(members, width)]
        report(members.size - left.size)
        return left

    def settled(members: np.ndarray, width: float | None = None) -> np.ndarray:
        """Which are tight, and of at most that relative width, or no worse than another direction that is."""
        tight = narrow_enough(width)
        tight = tight | (upper <= worst(tight))
        if options.limit is not None:
            tight |= _beside(lower, upper, options.limit, sides)
        return tight[members]

    def narrow_enough(width: float | None) -> np.ndarray:
        tight = _tight(kind, lower, upper)
        return tight if width is None else tight & (lower >= (1.0 - width) * upper)

    def worst(tight: np.ndarray) -> np.ndarray:
        """Of every setting the largest upper bound that is tight, of whatever direction; -inf if none is."""
        return np.tile(np.where(tight, upper, -np.inf).reshape(sides, -1).max(0), sides)

    parts = counts.shape[1]
    if parts == 1:
        single = counts[open_, 0] == 1.0
        rest = attempt(functools.partial(single_run(options), kind), 1, 1.0, (groups, goal), open_[single])
        report(rest.size)
        open_ = open_[~single]

    left: list[np.ndarray] = []

    def law_by_law(members: np.ndarray, most: int = MOST_RUNS) -> np.ndarray:
        """Answers compositions of so few runs as well as can be; returns the other members."""
        few = (counts[members].sum(-1) <= most) & ~settled(members)
        if options.devices is not None or not few.any():
            return members
        for side in range(sides):  # one direction after the other: what is no worse needs no narrow bounds
            own = members[few & (members // (total // sides) == side)]
            query = groups, counts, goal, worst(_tight(kind, lower, upper))
            left.append(attempt(functools.partial(few_run_bounds, kind), parts, 1.0, query, own))
        return members[~few]

    def by_rays(members: np.ndarray) -> np.ndarray:
        """Answers few runs on rare samples, one direction after the other; returns the members that are open."""
        if options.devices is not None or not (rare := suits(groups, counts)[members]).any():
            return members
        kept = [members[~rare]]
        for side in range(sides):
            own = members[rare & (members // (total // sides) == side)]
            query = groups, counts, goal, worst(narrow_enough(_NARROW))
            kept.append(attempt(functools.partial(ray_bounds, kind), 1, 1.0, query, own, _NARROW))
        return np.concatenate(kept)

    def by_lines(members: np.ndarray) -> np.ndarray:
        """More and more frequencies where transforms are known; returns the members that another engine may help."""
        nodes = np.zeros(total)
        for size in _LINES:
            # Widths fall with the square of the number of frequencies: what cannot do yet is not tried.
            with np.errstate(over="ignore"):
                wide = upper[members] / np.maximum(lower[members], 1e-300) - 1.0
            hope = 2.0 * _NARROW * (size.nodes / np.maximum(nodes[members], 1.0)) ** 2
            hope = hope * (_HOPELESS if size is _LINES[-1] else 1.0)
            ready = members[(wide <= hope) | (nodes[members] <= _LINES[0].nodes)]
            run, each = functools.partial(discrete_run(options), kind, size), 4.0 * size.cells * size.nodes**0.5
            open_now = attempt(run, parts, each, (groups, counts, goal), ready, 0.9 * _NARROW)
            nodes[ready] = size.nodes
            members = members[~np.isin(members, ready) | np.isin(members, open_now)]
        left = members[~settled(members)]
        report(members.size - left.size)
        return left

    def each_of(size: Size) -> float:
        return size.points * (size.nodes if options.precision == "float32" else size.nodes**0.5)

    def in_turn(members: np.ndarray) -> np.ndarray:
        """The smallest contours, direction by direction: one tilt may say that one is no worse than another."""
        kept = []
        for side in range(sides):
            own = members[members // (total // sides) == side]
            for size in (_BESIDE_ANOTHER, _SIZES[0]) if side else _SIZES[:1]:
                known = (worst(narrow_enough(_NARROW)),) if side else ()
                run = functools.partial(contour_run(options), kind, size)
                own = attempt(run, parts, each_of(size), (groups[0], counts, goal, *known), own, _NARROW)
            kept.append(own)
        return np.concatenate(kept)

    compiled = is_compiled(options) or options.precision == "float32"
    for i, size in enumerate(_SIZES if contour else ()):
        if i == 0 and compiled:  # every size is a compilation
            continue
        if i == 0 and sides > 1 and open_.size >= _MANY:
            open_ = in_turn(open_)
            continue
        if i == _RAYS_AFTER:
            open_ = by_rays(open_)
        if i == _VERY_FEW_AFTER:
            open_ = law_by_law(open_, _VERY_FEW)
        run = functools.partial(contour_run(options), kind, size)
        width = _NARROW if i < _SMALL and not compiled else None
        open_ = attempt(run, parts, each_of(size), (groups[0], counts, goal), open_, width)
    if contour:
        open_ = law_by_law(open_)
    if open_.size and options.devices is None and enumerable(groups):  # by this host, so for this host alone
        some, runs, target = asked(open_)
        answered, low, high = sum_bounds(kind, some, runs, target, report)
        narrow(open_[answered], low[answered], high[answered])
        open_ = open_[~answered]
    if open_.size and has_lines(groups):
        open_ = by_lines(open_)
    for i, size in enumerate(_CELLS):
        if i == _FEW_AFTER and not contour:
            open_ = law_by_law(open_)
        run = functools.partial(discrete_run(options), kind, size)
        open_ = attempt(run, parts, 4.0 * size.cells * size.nodes**0.5, (groups, counts, goal), open_)
    open_ = np.concatenate([open_, *left])
    if open_.size:
        known = lower[open_], upper[open_]
        some, runs, target = asked(open_)
        narrow(open_, *capped(kind, some, runs, target, known))
        report(open_.size)
    return lower, upper


def _tight(kind: str, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    tight = (upper == lower) | (upper < np.inf) & (lower >= (1.0 - _TIGHT[kind]) * upper)
    if kind == "epsilon":
        return tight
    return tight | (upper < _DEEP) & (lower >= (1.0 - _TIGHT["deep"]) * upper) | (upper < _NOTHING)


def _beside(lower: np.ndarray, upper: np.ndarray, limit: np.ndarray, sides: int) -> np.ndarray:
    """Which bounds lie on one side of the limit, and are narrow beside their distance from it or far away."""
    tiny = np.finfo(np.float64).tiny
    low, high, log_limit = (np.log(np.maximum(x, tiny)) for x in (lower, upper, limit))

    def enough(distance: np.ndarray) -> np.ndarray:
        return (distance >= _FAR) | (distance > 0) & (high - low <= _BESIDE * distance)

    missed = enough(low - log_limit)  # and with it the setting, whatever its other directions
    return np.tile(missed.reshape(sides, -1).any(0), sides) | enough(log_limit - high)
