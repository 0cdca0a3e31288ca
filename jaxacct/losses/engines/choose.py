"""Chooses the engine that answers a batch of questions.

One run of one pair is read off its tails (`one_run`). Compositions are inverted (`inversion`), on more and more
frequencies until bounds are a millionth wide or no number of frequencies would do. What is wide after that is composed
law by law (`laws`), and what is wide even then is capped (`fallback_bounds`). Where two engines answered, the
intersection of their bounds holds.

Concrete questions are answered in NumPy and compile nothing. Which engine answers, and on how many points, depends on
the question alone. Inside a program the same formulas are compiled, in one size each.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from types import ModuleType
from typing import Any

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.losses.engines.fallback_bounds import capped
from jaxacct.losses.engines.inversion.inversion_bounds import Size, has_lines, inversion_bounds
from jaxacct.losses.engines.laws.bounds import MOST_RUNS, law_bounds
from jaxacct.losses.engines.laws.in_program import narrowed_by_laws
from jaxacct.losses.engines.narrowing import Answer, Narrowing, Options
from jaxacct.losses.engines.one_run import single_delta, single_epsilon
from jaxacct.mechanisms.pairs.base import Pair

TRACED = Size(512, 1024)
"""Of an inversion in a program."""

_SIZES = (
    Size(160, 128),
    Size(256, 256),
    Size(768, 512),
    Size(2048, 1024),
    Size(2048, 4096),
    Size(8192, 4096),
    Size(2048, 16384),
    Size(2048, 65536),
)  # tried in turn
_CHEAP = 3  # sizes that are tried whatever the last one said, and
_BEFORE_LAWS = 6  # that are tried before laws are composed, but for
_FEW = 16  # runs, of which laws cost less
_CELLS = (Size(512, 1024), Size(1024, 4096))  # of compositions with parts that are cut into cells
_BESIDE_ANOTHER = Size(96, 64)  # of a direction that is only to be no worse than another
_MANY = 512  # directions, from which on they are answered in turn
_NARROW = 9e-7  # that asks for no larger size
_WORTH = 1e-4  # that makes a larger size worth its time where the last one said more


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
) -> Answer:
    """``(lower, upper)`` of delta or epsilon for a flat batch.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        pairs, counts: the K pairs of a composition and how often each runs; leaves of shape ``(batch,)``, as ``goal``.
        most: the largest number of steps, where it is known while tracing.
        xp: NumPy where everything is concrete, jax.numpy inside a trace.
        options: only for concrete questions.
        sides: the batch is that many directions of the same settings, one after the other, of which only the worst
            counts; of the others concrete questions may have wide bounds.
    """
    groups, stacked = grouped(pairs, counts, xp)
    if xp is np:
        return _concrete(Narrowing(kind, groups, stacked, goal, options, sides))
    if most == 1.0 and stacked.shape[-1] == 1:
        return _one_run(kind, groups, stacked, goal)
    return narrowed_by_laws(kind, groups, stacked, goal, inverted(kind, TRACED, groups, stacked, goal))


inverted = jax.jit(inversion_bounds, static_argnums=(0, 1))
"""The inversion as a function of a program's own."""


def _concrete(batch: Narrowing) -> Answer:
    """Asks one engine after the other about the members that are still open."""
    open_ = batch.members()
    if batch.counts.shape[1] == 1:
        open_ = _by_tails(batch, open_)
    open_ = _by_inversion(batch, open_)
    open_ = _law_by_law(batch, open_)
    if open_.size:
        known = batch.lower[open_], batch.upper[open_]
        batch.narrow(open_, *capped(batch.kind, *batch.query(open_), known))
        batch.report(open_.size)
    return batch.lower, batch.upper


def _by_tails(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Answers single runs of one pair, as well as can be; returns the other members."""
    single = batch.counts[members, 0] == 1.0
    rest = batch.ask(functools.partial(_one_run, batch.kind), _CELLS[0].points, members[single])
    batch.report(rest.size)
    return members[~single]


def _one_run(kind: str, groups: tuple[Pair, ...], counts: Array, goal: Array) -> Answer:
    (group,) = groups
    pair = jax.tree.map(lambda x: x[:, 0], group)
    return (single_delta if kind == "delta" else single_epsilon)(pair, goal)


def _by_inversion(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Inverts on more and more frequencies; returns the members that another engine may help."""
    if not members.size:
        return members
    if not has_lines(batch.groups):
        for size in _CELLS:
            members = _inverted(batch, size, members)
        return members
    nodes, before = np.zeros(batch.goal.size), np.full(batch.goal.size, np.inf)
    for i, size in enumerate(_SIZES):
        if i == 0 and batch.sides > 1 and members.size >= _MANY:
            members = _direction_by_direction(batch, members)
            continue
        ready = members[_worthwhile(batch, i, members, nodes[members], before[members])]
        nodes[ready], before[ready] = size.nodes, batch.width(ready)
        left = _inverted(batch, size, ready, _NARROW)
        members = members[~np.isin(members, ready) | np.isin(members, left)]
    return batch.still_open(members)


def _worthwhile(batch: Narrowing, i: int, members: np.ndarray, nodes: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Whom the next size may help: widths fall with the square of the number of frequencies, or do not fall at all."""
    if i < _CHEAP:
        return np.ones(members.size, bool)
    tight, width = batch.tight()[members], batch.width(members)
    falls = (width <= 0.5 * before) | (nodes < _SIZES[-2].nodes)
    hopeful = falls & (width * (nodes / _SIZES[i].nodes) ** 2 <= np.where(width <= _WORTH, 2.0 * _NARROW, _WORTH))
    few = batch.counts[members].sum(-1) <= _FEW
    return hopeful | ~tight & ~few & (i < _BEFORE_LAWS)


def _direction_by_direction(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Asks the smallest sizes about one direction, then the next: one tilt may say that it is no worse."""
    kept = []
    for side, own in enumerate(batch.by_direction(members)):
        for size in (_BESIDE_ANOTHER, _SIZES[0]) if side else _SIZES[:1]:
            own = _inverted(batch, size, own, _NARROW, *(batch.worst(_NARROW),) if side else ())
        kept.append(own)
    return np.concatenate(kept)


def _inverted(
    batch: Narrowing, size: Size, members: np.ndarray, width: float | None = None, *known: np.ndarray
) -> np.ndarray:
    run = functools.partial(inversion_bounds, batch.kind, size)
    return batch.ask(run, size.points * size.nodes**0.5, members, width, known)


def _law_by_law(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Answers compositions by composing laws, as well as can be; returns the members that are wide all the same."""
    left = [members[:0]]
    for own in batch.by_direction(members):  # one after the other: what is no worse needs no narrow bounds
        open_ = own[~batch.settled(own) & (batch.counts[own].sum(-1) <= MOST_RUNS)]
        run = functools.partial(law_bounds, batch.kind)
        left += [np.setdiff1d(own, open_), batch.ask(run, 1.0, open_, None, (batch.worst(),))]
    return np.concatenate(left)
