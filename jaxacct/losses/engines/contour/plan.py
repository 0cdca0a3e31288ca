"""`plan` places the contour: it finds the tilt and the taper, and guesses the answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct.losses.engines.composition import times
from jaxacct.losses.engines.contour.rough import rough_cumulants, rough_log_moment
from jaxacct.losses.engines.contour.taper import placed_cut
from jaxacct.losses.engines.saddle_point import best_tilt, ends, estimate, steeper, tilt_bound
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

_TRIED, _TIMES = 12, 4  # tilts, between neighbours of the best one of the last time
_NEXT = 0.1  # distance of neighbours, as logarithms, from which on the next but one counts
_JUMP = 3.0  # e-foldings of delta that a slightly larger tilt may lose
_LEFT_OUT = 21.0  # e-foldings between delta and what tapers leave out


class Plan(NamedTuple):
    """Where to put the contour, shape ``(B,)``; ``cut`` of the parts' tapers, shape ``(B, K)``.

    The wanted one of epsilon and log delta is a guess; ``deviation`` is that of the tilted loss.
    """

    theta: Array
    epsilon: Array
    log_delta: Array
    deviation: Array
    cut: Array


def plan(kind: str, pairs: GaussianPair, counts: Array, goal: Array) -> Plan:
    """A tilt near the saddle point: an error there costs digits only in proportion to its square.

    It is that of the best bound on log delta or epsilon (:func:`~jaxacct.losses.engines.saddle_point.tilt_bound`),
    which stays sensible where the saddle-point approximation does not: losses that are rare and large.
    """
    xp = array_module(goal)

    def cumulants(t: Array, cut: Array):
        """Of the composition at tilts of shape ``(N, B)``."""
        return [total(one) for one in rough_cumulants(pairs, t[..., None], cut)]

    def total(each: Array) -> Array:
        return times(counts, each).sum(-1)

    def ahead(t: Array, value: Array, spacing: Array) -> Array:
        """Counts once neighbours are close, and where it is much worse."""
        return xp.where(spacing < _NEXT, value - (_JUMP if kind == "delta" else _JUMP / t), -np.inf)

    def searched(cut: Array, low: Array, high: Array) -> tuple[Array, ...]:
        def bound_at(t: Array) -> list[Array]:
            if xp is np:
                return [tilt_bound(kind, t, total(rough_log_moment(pairs, t[..., None], cut)), goal)]
            known = cumulants(t, cut)  # in a program they are there once
            return [tilt_bound(kind, t, known[0], goal), *known]

        return best_tilt(bound_at, low, high, _TRIED, ahead)

    def tapered(log_delta: Array) -> Array:
        share = log_delta - _LEFT_OUT - xp.log(counts.sum(-1))
        return placed_cut(pairs, share[:, None])

    variance = times(counts * pairs.rate**2, xp.expm1(xp.minimum(pairs.noise**-2.0, 50.0))).sum(-1)
    between = ends(kind, goal, variance, 1e6)

    def anywhere(cut: Array, bracket: tuple[Array, Array] = between) -> tuple[Array, ...]:
        """Over all magnitudes, where neighbours are too far apart for what they say, then between fewer."""

        def nearer(state: tuple[Array, ...]) -> tuple[Array, ...]:
            near, spacing, *rest = searched(cut, *state[:2])
            return near - spacing, near + 2.0 * spacing, near, *rest  # where the least of what two say lies

        return repeated(nearer, (*bracket, *[goal] * (2 if xp is np else 5)), _TIMES)[2:]

    def twice(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """An upper bound of delta, and the taper that goes with it; a lower one suits smaller tilts only."""
        near, value = anywhere(state[-1])[:2]
        return near, xp.minimum(near, state[1]), tapered(xp.clip(value, -700.0, 0.0) - 5.0)

    def in_turn(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """The same and what follows, in a program: the search is there once."""
        turn, near, least, _, value = state[:5]
        cut = xp.where(turn > 0, tapered(xp.clip(value, -700.0, 0.0) - 5.0), np.inf)
        nearby = zip((least - 0.5, near + 0.3), between, strict=True)
        near, value, *known = anywhere(cut, tuple(xp.where(turn > 1, some, every) for some, every in nearby))
        return turn + 1, near, xp.minimum(near, least), cut, value, *known

    if kind == "delta" and xp is not np:
        _, near, _, cut, value, *known = repeated(in_turn, (0, goal, between[1], counts, *[goal] * 4), 3)
    elif kind == "delta":
        near, least, cut = repeated(twice, (goal, between[1], xp.full_like(counts, np.inf)), 2)
        # A taper further out spoils tilts that were good.
        near, _, value, *known = searched(cut, least - 0.5, near + 0.3)
    else:
        cut = tapered(xp.log(goal))
        near, value, *known = anywhere(cut)
    theta = xp.exp(near)
    at = lambda theta: [one[0] for one in cumulants(theta[None], cut)]  # noqa: E731
    k0, k1, k2 = known or at(theta)
    if kind == "delta":
        steep = steeper(theta, k1, k2, goal)
        if xp is not np:
            more = steep - theta
            theta, k0 = steep, k0 + more * (k1 + 0.5 * more * k2)
        elif (steep != theta).any():
            theta = steep
            k0, _, k2 = at(theta)
    return Plan(theta, *estimate(kind, theta, k0, k2, goal, value), xp.sqrt(k2), cut)
