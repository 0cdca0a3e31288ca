"""delta(epsilon) and epsilon(delta) from a lower and an upper integrand; ``left_out`` of each is what fails anyway."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import array_module, iterated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.losses.engines.contour.read_off import Integrand, aliases, chernoff, summed

__all__ = ["read_delta", "read_epsilon"]

Array = Any  # NumPy's or JAX's

_ITERATIONS = 16
_CLOSE = 1e-9
_NUDGES = np.array([1e-12, 1e-9, 1e-6])  # relative, from a root to where a bound is tried


def read_delta(lower: Integrand, upper: Integrand, largest: Array, floor: Array, epsilon: Array) -> tuple[Array, Array]:
    """``(lower, upper)``; ``floor`` is another lower bound of the hockey stick of finite losses."""
    failed, lost = lower.left_out, upper.left_out
    xp = array_module(epsilon)
    high = xp.minimum(summed(upper, epsilon).upper + lost, chernoff(upper, epsilon))
    high = xp.where(epsilon >= largest, lost, xp.maximum(high, 1e-300))
    low = _below(lower, epsilon)[0]
    return possible(xp.where(floor > low, floor, low) + failed, high, epsilon)


def _below(lower: Integrand, epsilon: Array) -> tuple[Array, Array]:
    """A lower bound of the hockey stick of finite losses, and its slope in epsilon."""
    found = summed(lower, epsilon)
    value = found.lower - aliases(lower, epsilon)
    # No hockey stick is negative, whatever was computed.
    return array_module(epsilon).where(value > 0, value, 0.0), found.slope


def read_epsilon(lower: Integrand, upper: Integrand, largest: Array, guess: Array, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta."""
    xp = array_module(delta)
    failed, lost = lower.left_out, upper.left_out

    def above(epsilon: Array) -> tuple[Array, Array]:
        found = summed(upper, epsilon)
        return found.upper + lost, found.slope

    def below(epsilon: Array) -> tuple[Array, Array]:
        value, slope = _below(lower, epsilon)
        return value + failed, slope

    def root(curve: Any, offset: Array, start: Array) -> tuple[Array, Array, Array]:
        """Newton's method for the logarithm, or half the bracket; the root, and the bracket that is left."""

        def newton(state: tuple[Array, ...]) -> tuple[Array, ...]:
            at, low, high, _ = state
            value, slope = curve(at)
            inside = value <= delta
            low, high = xp.where(inside, low, at), xp.where(inside, at, high)
            part = value - offset
            new = at + part / xp.minimum(slope, -1e-300) * xp.log((delta - offset) / part)
            new = xp.where(new <= 0.0, 0.0, new)
            new = xp.where((new >= low) & (new <= high), new, 0.5 * (low + high))
            return new, low, high, xp.abs(new - at)

        zero = xp.zeros_like(start)
        state = (start, zero, xp.maximum(2.0 * start, 1.0), zero + np.inf)
        return iterated(newton, state, lambda state: state[3] <= _CLOSE * state[0], _ITERATIONS)[:3]

    nudges = _NUDGES[:, None]
    at, _, _ = root(above, lost, guess)
    tried = xp.concatenate([xp.zeros_like(at)[None], at * (1.0 + nudges) + 1e-14])
    high = xp.where(above(tried)[0] <= delta, tried, np.inf).min(0)
    high = xp.where((lost <= delta) & (largest < high), xp.maximum(largest, 0.0), high)
    high = xp.where(lost <= delta, high, np.inf)
    at, short, _ = root(below, failed, at)
    tried = xp.maximum(xp.concatenate([at * (1.0 - nudges) - 1e-14, short[None]]), 0.0)
    low = xp.where(below(tried)[0] > delta, tried, 0.0).max(0)
    low = xp.where(failed > delta, np.inf, low)
    return xp.minimum(low, high), high
