"""Bisection of decreasing functions of arrays; the returned ends were evaluated, not extrapolated."""

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np

from jaxacct._numerics.arrays import Array, iterated, xp
from jaxacct._numerics.rounding import EPS

_HALVINGS = 60  # that close a bracket
_HEADSTART = 8  # halvings that secants may be behind


def last(fits: Callable[[int], bool], low: int, high: int) -> int:
    """The last whole number from ``low`` on and below ``high`` that ``fits``; ``low`` does, without being asked."""
    return low + bisect.bisect_left(range(low + 1, high), True, key=lambda number: not fits(number))


@np.errstate(all="ignore")
def crossing(above: Callable[[Array], tuple[Array, Array]], low: Array, high: Array) -> tuple[Array, Array]:
    """``(low, high)`` around the places where decreasing functions cross zero, a few units apart.

    Secants with the Illinois rule: an end that stays twice counts half. Where they are behind bisection by more than a
    few steps, every other point is the middle; where a value is no number, every point is. Each end given back is a
    point where the function was asked, or the end that was given: values only steer, comparisons decide.

    Args:
        above: from points to ``(comparison, values)``: whether the function is surely above zero there (what is not
            counts as below), and what it is, roughly.
        low: where the function is above zero.
        high: where it is not; same shape.
    """
    finest = 2.0**-_HALVINGS * (high - low)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, at_low, at_high, moved, allowed, tried = state
        width = high - low
        secant = high - at_high * (width / (at_high - at_low))
        # A step over the crossing, from whatever side, is what closes the bracket.
        away = xp.minimum(0.5 * width, xp.maximum(4.0 * EPS * high, finest))
        tried = xp.isfinite(secant) & ((width <= allowed) | ~tried)
        point = xp.where(tried, xp.clip(secant, low + away, high - away), low + 0.5 * width)
        right, value = above(point)
        at_low, at_high = (
            xp.where(right, value, xp.where(moved < 0, 0.5 * at_low, at_low)),
            xp.where(right, xp.where(moved > 0, 0.5 * at_high, at_high), value),
        )
        going = ~done(state)  # what is done does not depend on what is not
        low, high = xp.where(going & right, point, low), xp.where(going & ~right, point, high)
        return low, high, at_low, at_high, xp.where(right, 1.0, -1.0), 0.5 * allowed, tried

    def done(state: tuple[Array, ...]) -> Array:
        low, high = state[:2]
        return ~(high - low > xp.maximum(8.0 * EPS * high, 2.0 * finest))  # NaN is done

    allowed = 2.0**_HEADSTART * (high - low)
    start = (low, high, above(low)[1], above(high)[1], xp.zeros_like(high), allowed, allowed < 0.0)
    low, high, *_ = iterated(step, start, done, 2 * _HALVINGS + _HEADSTART)
    return low, high
