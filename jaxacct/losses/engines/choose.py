"""Chooses the engine that answers a batch of questions.

One run of one pair is read off its tails (`one_run`). Compositions are inverted (`inversion`), on more and more
frequencies until bounds are a millionth wide or no number of frequencies would do. What is wide after that is composed
law by law (`laws`). Where two engines answered, the intersection of their bounds holds.

Concrete questions are answered in NumPy and compile nothing. Deltas of one composition at many epsilons are first read
off a few lines (`along_curves`). Which engine answers, and on how many points, depends on the question alone. Inside a
program the same formulas are compiled, in one size each.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, xp
from jaxacct.losses.engines.along_curves import along_curves
from jaxacct.losses.engines.inversion.inversion_bounds import Size, decays, has_lines, inversion_bounds
from jaxacct.losses.engines.laws.bounds import MOST_RUNS, law_bounds
from jaxacct.losses.engines.laws.in_program import narrowed_by_laws
from jaxacct.losses.engines.narrowing import Answer, Narrowing, Options
from jaxacct.losses.engines.one_run import single_delta, single_epsilon
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.table import lists_outcomes

TRACED = Size(512, 1024)
"""Of an inversion in a program."""

_LAWS_ALONE = 16  # settings times parts in a program, up to which composing laws costs less than an inversion's code

_SMALL = (Size(160, 128), Size(256, 256), Size(768, 512))  # sizes that are tried in turn,
_LARGE = (Size(2048, 1024), Size(2048, 4096))  # those while they help, and before laws are composed,
_FINE = (Size(8192, 4096),)  # one more for transforms that decay,
_LONG = (Size(2048, 16384), Size(2048, 65536))  # and for others, while they help
_CELLS = (Size(512, 1024), Size(1024, 4096))  # of compositions with parts that are cut into cells
_FEW = 16  # runs, of which laws cost less than large sizes
_BESIDE_ANOTHER = Size(96, 64)  # of a direction that is only to be no worse than another
_MANY = 512  # directions, from which on they are answered in turn
_NARROW = 9e-7  # relative width that asks for no larger size


def grouped(pairs: Sequence[Pair], counts: Sequence[Array]) -> tuple[tuple[Any, ...], Array]:
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
    pairs: Sequence[Pair],
    counts: Sequence[Array],
    goal: Array,
    most: float | None,
    options: Options = Options(),  # noqa: B008
    sides: int = 1,
    smooth: bool = False,
) -> Answer:
    """``(lower, upper)`` of delta or epsilon for a flat batch.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        pairs, counts: the K pairs of a composition and how often each runs; leaves of shape ``(batch,)``, as ``goal``.
        most: the largest number of steps, where it is known while tracing.
        options: only for concrete questions.
        sides: the batch is that many directions of the same settings, one after the other, of which only the worst
            counts; of the others concrete questions may have wide bounds.
        smooth: a program takes derivatives where the bounds are, and so needs narrow ones.
    """
    groups, stacked = grouped(pairs, counts)
    if array_module(goal) is np:
        return _concrete(Narrowing(kind, groups, stacked, goal, options, sides))
    if most == 1.0 and stacked.shape[-1] == 1:
        return _one_run(kind, groups, stacked, goal)
    # A delta moves by many times what an epsilon does, and few outcomes are points that no cells keep.
    alone = kind == "epsilon" and not smooth and stacked.size <= _LAWS_ALONE
    alone = alone and not any(lists_outcomes(group) for group in groups)
    nothing = jnp.zeros_like(goal), jnp.full_like(goal, np.inf)
    known = nothing if alone else _inverted_once(kind, TRACED, groups, stacked, goal)
    return narrowed_by_laws(kind, groups, stacked, goal, known)


_inverted_once = jax.jit(inversion_bounds, static_argnums=(0, 1))  # a function of the program's own


def _concrete(batch: Narrowing) -> Answer:
    """Asks one engine after the other about the members that are still open."""
    open_ = batch.members()
    if batch.counts.shape[1] == 1:
        open_ = _by_tails(batch, open_)
    if open_.size:
        open_ = _by_small_sizes(batch, open_)
    # One direction after the other: what is no worse needs no narrow bounds.
    for own in batch.by_direction(open_):
        if own.size:
            batch.report(_by_laws_and_large_sizes(batch, own).size)
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


def _by_small_sizes(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Inverts on few frequencies, or puts a composition between laws of few cells; returns who is not narrow."""
    if not has_lines(batch.groups):
        for size in _CELLS:
            members = _inverted(batch, size, members)
        return members
    if batch.kind == "delta":
        for size in _SMALL:
            members = along_curves(batch, size, members, _NARROW)
    in_turn = batch.sides > 1 and members.size >= _MANY
    if in_turn:
        members = _direction_by_direction(batch, members)
    for size in _SMALL[in_turn:]:
        members = _inverted(batch, size, members, _NARROW)
    return members


def _by_laws_and_large_sizes(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Inverts on many frequencies, then composes laws; of few runs laws first. Returns who is wide all the same."""
    left = _by_laws(batch, _by_large_sizes(batch, members, _FEW))
    few = batch.counts[left].sum(-1) <= _FEW
    return np.append(left[~few], _by_large_sizes(batch, left[few], 0)) if few.any() else left


def _by_large_sizes(batch: Narrowing, members: np.ndarray, few: int) -> np.ndarray:
    """Inverts on more frequencies where the last ones halved the bounds' width, or more than ``few`` runs are wide.

    Returns the members that are not tight.
    """
    members = batch.still_open(members, _NARROW)
    sizes = _LARGE + (_FINE if decays(batch.groups) else _LONG)
    left, before = [members[:0]], np.full(batch.goal.size, np.inf)
    for size in sizes if has_lines(batch.groups) else ():
        wide = ~batch.settled(members) & (batch.counts[members].sum(-1) > few) & (size not in _LONG)
        more = wide | (batch.width(members) <= 0.5 * before[members])
        left.append(members[~more])
        members = members[more]
        before[members] = batch.width(members)
        members = _inverted(batch, size, members, _NARROW)
    return batch.still_open(np.concatenate([*left, members]))


def _direction_by_direction(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Asks the smallest sizes about one direction, then the next: one tilt may say that it is no worse."""
    kept = []
    for side, own in enumerate(batch.by_direction(members)):
        for size in (_BESIDE_ANOTHER, _SMALL[0]) if side else _SMALL[:1]:
            own = _inverted(batch, size, own, _NARROW, *(batch.worst(_NARROW),) if side else ())
        kept.append(own)
    return np.concatenate(kept)


def _inverted(
    batch: Narrowing, size: Size, members: np.ndarray, width: float | None = None, *known: np.ndarray
) -> np.ndarray:
    run = functools.partial(inversion_bounds, batch.kind, size)
    return batch.ask(run, size.points * size.nodes**0.5, members, width, known)


def _by_laws(batch: Narrowing, members: np.ndarray) -> np.ndarray:
    """Answers compositions by composing laws, as well as can be; returns the members that are wide all the same."""
    possible = batch.counts[members].sum(-1) <= MOST_RUNS
    run = functools.partial(law_bounds, batch.kind)
    return np.append(members[~possible], batch.ask(run, 1.0, members[possible], None, (batch.worst(),)))
