"""One mechanism's certified curve on a lattice of epsilons, direction by direction, and its trade-off."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct.accounting import delta, epsilon
from jaxacct.mechanisms.base import BOTH_DIRECTIONS, Mechanism
from jaxacct.mechanisms.directions import REVERSED, witness

ROUNDING = 1e-10  # a share of each number, far above its rounding
FARTHEST = 600.0  # of the lattice: exp of it is a number
_ALL_BUT = 1.001  # times the infinite losses, delta where the lattice may end
BOTH = {name: both for both, names in BOTH_DIRECTIONS.items() for name in names}


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Bounds of delta at ``losses``, which rise along the first axis from -a to a; further axes are settings.

    Attributes:
        losses: shape ``(n, ...)``.
        lower, upper: one entry for each direction, shape ``(directions, n, ...)``.
    """

    losses: Array
    lower: Array
    upper: Array

    def setting(self, index: tuple[int, ...]) -> Curve:
        """The curve of one setting; ``index`` is into a shape that the settings broadcast to from the right."""
        settings = self.losses.shape[1:]
        last = index[len(index) - len(settings) :]
        own = tuple(min(place, size - 1) for place, size in zip(last, settings, strict=True))
        sides = (slice(None), slice(None), *own)
        return Curve(self.losses[sides[1:]], self.lower[sides], self.upper[sides])


class Half(NamedTuple):
    """A curve at epsilons from 0 on, first axis; further axes are settings.

    Attributes:
        at: the epsilons.
        lower, upper: bounds of delta there, one entry for each direction, shape ``(directions, n, ...)``.
        nearest: an epsilon below which delta is above the first one that the lattice was made for.
    """

    at: Array
    lower: Array
    upper: Array
    nearest: Array


class Questions(NamedTuple):
    """Bounds of ``epsilon(delta)`` of the worse direction, and of ``delta(epsilon)`` of each."""

    epsilon: Callable[[ArrayLike], tuple[Array, Array]]
    delta: Callable[[Array], list[tuple[Array, Array]]]


def questions(one: Any, relation: str, steps: ArrayLike = 1, *, joint: bool = False) -> Questions:
    """What can be asked of ``one``, a mechanism or the guarantee of a filter, whose lower bounds are trivial.

    A direction is followed by its reversal, which has its negative epsilons. ``joint`` is for the larger of both alone,
    which costs less.

    Raises:
        ValueError: ``one`` is neither, or traced.
    """
    if _validate.is_traced((one, steps)):
        raise ValueError("mechanism must have concrete parameters, got traced ones")
    if isinstance(one, Mechanism):
        both = BOTH.get(relation, relation)
        alone = [relation, REVERSED[relation]] if relation in REVERSED else [relation]
        names = [both] if joint else BOTH_DIRECTIONS.get(relation, alone)
        return Questions(
            lambda d: epsilon(one, d, steps=steps, relation=both),
            lambda e: [delta(one, e, steps=steps, relation=name) for name in names],
        )
    if hasattr(one, "delta") and hasattr(one, "epsilon"):
        if np.any(np.asarray(steps) != 1):
            raise ValueError(f"steps must be 1 for the guarantee of a filter, which is for the whole run, got {steps}")
        return Questions(
            lambda d: (np.zeros(np.shape(d)), np.asarray(one.epsilon(d))),
            lambda e: [(np.zeros(np.shape(e)), np.asarray(one.delta(e)))],
        )
    raise ValueError(f"mechanism must be a mechanism or the guarantee of a filter, got {type(one).__name__}")


def half_curve(asked: Questions, points: int, last: float | tuple[float, ...], farthest: float = FARTHEST) -> Half:
    """``points`` equal cells from epsilon 0 to where delta is ``last``, or next to nothing but infinite losses.

    They end at ``farthest`` at the latest. Of several ``last`` the first for which epsilon is finite; infinite losses
    count after the first of them.
    """
    reach, there, nearest = np.zeros(()), np.ones(()), None
    first, *others = np.atleast_1d(last).tolist()
    for d in (first, None, *others):
        if d is None:  # losses may be infinite: up to where that is all of delta
            if np.all(reach > 0):
                break
            d = np.clip(np.max([side[1] for side in asked.delta(np.asarray(FARTHEST))], axis=0) * _ALL_BUT, first, 0.5)
        low, found = (np.asarray(x, np.float64) for x in asked.epsilon(d))
        nearest = low if nearest is None else nearest
        new = (reach == 0) & np.isfinite(found)
        reach, there = np.where(new, np.maximum(found, 1e-9), reach), np.where(new, d, there)
    at = np.clip(reach, 1e-9, farthest) * (np.arange(points + 1) / points).reshape(-1, *[1] * reach.ndim)
    lower, upper = deltas_at(asked, at)
    # Where epsilon is the lattice's end, delta is the one that was asked for: a second bound of it.
    end = np.minimum(upper[:, -1], np.where(reach <= farthest, there, 1.0))
    upper[:, -1] = np.maximum(end, lower[:, -1])
    return Half(at, lower, upper, np.asarray(nearest))


def deltas_at(asked: Questions, at: Array) -> Array:
    """Lower and upper bounds of delta at ``at``, shape ``(2, directions, n, ...)``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a wide bound at a tiny delta: both sides are used as they are
        sides = asked.delta(at)
    return np.array([np.broadcast_arrays(*map(np.asarray, pair), at)[:2] for pair in sides]).swapaxes(0, 1)


def curve_of(
    one: Any,
    relation: str,
    points: int,
    last: float | tuple[float, ...],
    steps: ArrayLike = 1,
    farthest: float = FARTHEST,
) -> Curve:
    """The curve up to where delta is ``last``, on ``points`` a side: see :func:`half_curve`.

    ``relation`` is as for `jaxacct.delta`; ``"add_or_remove"`` has two directions, and so has ``"replace_special"``.
    Lower bounds that may be the larger of two directions, which this cannot tell apart, are 0: no one pair of laws has
    them all.

    Raises:
        ValueError: as :func:`questions`.
    """
    at, lower, upper, _ = half_curve(questions(one, relation, steps), points, last, farthest)
    if relation == "replace" and isinstance(one, Mechanism) and len(witness(one, relation)._sides(relation)) > 1:
        lower = np.zeros_like(lower)
    # H_P|Q(-e) = 1 - exp(-e) + exp(-e) H_Q|P(e): the other direction's.
    both = [
        np.concatenate([(-np.expm1(-at[1:]) + np.exp(-at[1:]) * side[::-1, 1:])[:, ::-1], side], 1)
        for side in (lower, upper)
    ]
    if relation in REVERSED and isinstance(one, Mechanism):
        both = [side[:1] for side in both]
    return Curve(np.concatenate([-at[:0:-1], at]), *both)


def most(losses: Array, upper: Array, u: Array) -> Array:
    """An upper bound of the largest P-probability of an event of Q-probability ``u``: min of H(x) + x u.

    Args:
        losses: the lattice, shape ``(n,)``, one direction and setting.
        upper: upper bounds of delta there.
        u: any shape ``(m,)``.
    """
    x = np.exp(losses)
    found = np.array([np.min(upper + x * one) for one in u])
    return np.minimum(found * (1.0 + ROUNDING), 1.0)


def least(losses: Array, lower: Array, upper: Array, u: Array) -> Array:
    """A lower bound of the same, concave in ``u`` up to rounding.

    H is convex in x = e^loss, so between two lattice points it lies above the lines through the neighbouring points on
    either side; H(x) + x u is least at an end or where two lines meet.
    """
    x = np.exp(losses)
    gap = np.diff(x)
    # Slopes are rounded so that the lines stay below.
    steep = np.concatenate([[-1.0], ((lower[1:] - upper[:-1]) / gap - ROUNDING)[:-1]])
    flat = np.minimum(np.concatenate([((upper[2:] - lower[1:-1]) / gap[1:] + ROUNDING), [0.0]]), 0.0)
    start, end = lower[:-1], lower[1:]
    meet = np.clip((end - start - flat * gap) / np.where(steep < flat, steep - flat, -1.0), 0.0, gap)
    height = np.maximum(start + steep * meet, end - flat * (gap - meet))
    # Beyond the lattice H is at least 1 - x, and 0.
    places = np.concatenate([x, x[:-1] + meet, x[:1], x[-1:]])
    values = np.concatenate([lower, np.maximum(height, 0.0), np.maximum(1.0 - x[:1], 0.0), [0.0]])
    found = np.array([np.min(values + places * one) for one in u])
    return np.clip(found * (1.0 - ROUNDING) - 1e-15, u, 1.0)
