"""Chooses the engine that answers a batch of questions.

One run of one pair is read off its tails (`one_run`). Compositions of Gaussians, sampled or not, go to the contour with
its own quadrature (`contour.bounds`): its bounds are 1e-9 wide where it suits the query, and say so where it does not.
What is left goes to the engine of transforms (`discrete_laws.bounds`) with more and more frequencies: first with the
certified transforms of its parts, where all are known (`lines`), until bounds are a millionth wide; then, or where one
is not known, with discrete laws on either side of every part. What is wide after that is composed law by law (`laws`).
Where two engines answered, the intersection of their bounds holds.

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
from jaxacct.losses.engines.discrete_laws.bounds import Size as Cells
from jaxacct.losses.engines.discrete_laws.bounds import has_lines
from jaxacct.losses.engines.fallback_bounds import capped
from jaxacct.losses.engines.laws.bounds import MOST_RUNS, law_bounds
from jaxacct.losses.engines.narrowing import Narrowing
from jaxacct.losses.engines.run import (
    Answer,
    Options,
    by_contour,
    by_transforms,
    single_bounds,
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
_CELLS = tuple(Cells(2**i, 4 ** (i - 4), False) for i in (9, 10))  # of discrete laws
_LINES = (Cells(256, 256), *(Cells(1024, 4**i) for i in (5, 6, 7, 8)))  # of transforms
_SMALL = 3  # sizes of contours whose bounds are to be as narrow as contours can be: the next size is cheap
_NARROW = 1e-6  # that asks for no larger size of a cheap one
_HOPELESS = 4.0  # times as wide as that: not even the most frequencies are tried


def grouped(pairs: list[Pair], counts: list[Array], xp: ModuleType) -> tuple[tuple[Any, ...], Array]:
    """Pairs of one structure stacked along a new axis 1, so that K parts of a kind are one array operation.

    ``(groups, counts)``: leaves of shape ``(batch, parts of the group)``, and ``(batch, K)`` in the order of the
    groups.
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
    batch = Narrowing(kind, groups, stacked, goal, options, sides)
    return _concrete(batch, contour)


def on_contour(pairs: list[Pair]) -> bool:
    """Whether a composition of these pairs is one of Gaussians, sampled or not."""
    return all(isinstance(pair, GaussianPair) for pair in pairs)


def _concrete(batch: Narrowing, contour: bool) -> Answer:
    """Asks one engine after the other about the members that are still open."""
    open_ = batch.members()
    if batch.counts.shape[1] == 1:
        open_ = _by_tails(batch, open_)
    open_ = _by_contours(batch, open_) if contour else _by_transforms(batch, open_)
    open_ = _law_by_law(batch, open_)
    if open_.size:
        known = batch.lower[open_], batch.upper[open_]
        batch.narrow(open_, *capped(batch.kind, *batch.query(open_), known))
        batch.report(open_.size)
    return batch.lower, batch.upper


def _by_transforms(batch: Narrowing, open_: np.ndarray) -> np.ndarray:
    """Answers other compositions by transforms, and by those of discrete laws."""
    if open_.size and has_lines(batch.groups):
        open_ = _by_lines(batch, open_)
    for size in _CELLS:
        open_ = _on_cells(batch, size, open_)
    return open_


def _by_tails(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Answers single runs of one pair, as well as can be; returns the other members."""
    single = batch.counts[members, 0] == 1.0
    run = functools.partial(single_bounds, batch.kind)
    rest = batch.ask(run, 1.0, members[single], query=(batch.groups, batch.goal))
    batch.report(rest.size)
    return members[~single]


def _by_contours(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Answers compositions of Gaussians by contours of more and more points; returns the members that are open."""
    for i, size in enumerate(_SIZES):
        if not members.size:
            return members
        if i == 0 and batch.sides > 1 and members.size >= _MANY:
            members = _direction_by_direction(batch, members)
            continue
        members = _on_contour(batch, size, members, _NARROW if i < _SMALL else None)
    return members


def _direction_by_direction(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Asks the smallest contours about one direction, then the next: one tilt may say that it is no worse."""
    kept = []
    for side, own in enumerate(batch.by_direction(members)):
        for size in (_BESIDE_ANOTHER, _SIZES[0]) if side else _SIZES[:1]:
            known = (batch.worst(_NARROW),) if side else ()
            own = _on_contour(batch, size, own, _NARROW, *known)
        kept.append(own)
    return np.concatenate(kept)


def _on_contour(
    batch: Narrowing, size: Size, members: np.ndarray, width: float | None, *known: np.ndarray
) -> np.ndarray:
    run = functools.partial(by_contour, batch.kind, size)
    query = batch.groups[0], batch.counts, batch.goal, *known
    return batch.ask(run, size.points * size.nodes**0.5, members, width, query)


def _law_by_law(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Answers compositions by composing laws, as well as can be; returns the members that are wide all the same."""
    left = [members[:0]]
    for own in batch.by_direction(members):  # one after the other: what is no worse needs no narrow bounds
        open_ = own[~batch.settled(own) & (batch.counts[own].sum(-1) <= MOST_RUNS)]
        query = batch.groups, batch.counts, batch.goal, batch.worst()
        run = functools.partial(law_bounds, batch.kind)
        left += [np.setdiff1d(own, open_), batch.ask(run, 1.0, open_, query=query)]
    return np.concatenate(left)


def _by_lines(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Takes more and more frequencies of known transforms; returns the members that another engine may help."""
    nodes = np.zeros(batch.goal.size)
    for size in _LINES:
        # Widths fall with the square of the number of frequencies: what cannot do yet is not tried.
        with np.errstate(over="ignore"):
            wide = batch.upper[members] / np.maximum(batch.lower[members], 1e-300) - 1.0
        hope = 2.0 * _NARROW * (size.nodes / np.maximum(nodes[members], 1.0)) ** 2
        hope = hope * (_HOPELESS if size is _LINES[-1] else 1.0)
        ready = members[(wide <= hope) | (nodes[members] <= _LINES[0].nodes)]
        left = _on_cells(batch, size, ready, 0.9 * _NARROW)
        nodes[ready] = size.nodes
        members = members[~np.isin(members, ready) | np.isin(members, left)]
    return batch.still_open(members)


def _on_cells(batch: Narrowing, size: Cells, members: np.ndarray, width: float | None = None) -> np.ndarray:
    run = functools.partial(by_transforms, batch.kind, size)
    return batch.ask(run, 4.0 * size.cells * size.nodes**0.5, members, width)
