"""delta(epsilon) and epsilon(delta) from a lower and an upper integrand; ``left_out`` of each is what fails anyway."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, collected, iterated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.losses.engines.contour.read_off import LEAST, Integrand, aliases, chernoff, newton, summed

_ITERATIONS = 16
_CLOSE = 1e-9
_NUDGES = np.array([1e-12, 1e-9, 1e-6])  # relative, from a root to where a bound is tried


def read_delta(lower: Integrand, upper: Integrand, largest: Array, floor: Array, epsilon: Array) -> tuple[Array, Array]:
    """``(lower, upper)``; ``floor`` is another lower bound of the hockey stick of finite losses."""
    failed, lost = lower.left_out, upper.left_out
    xp = array_module(epsilon)
    high = xp.minimum(summed(upper, epsilon).upper + lost, chernoff(upper, epsilon))
    high = xp.where(epsilon >= largest, lost, xp.maximum(high, LEAST))
    low = summed(lower, epsilon).lower - aliases(lower, epsilon)
    low = xp.where(low > 0, low, 0.0)  # no hockey stick is negative, whatever was computed
    return possible(xp.where(floor > low, floor, low) + failed, high, epsilon)


def read_epsilon(lower: Integrand, upper: Integrand, largest: Array, guess: Array, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta."""
    xp = array_module(delta)
    failed, lost = lower.left_out, upper.left_out

    def side(start: Array, terms: tuple[Integrand, Array]) -> tuple[Array, tuple[Array, Array]]:
        """The root of one of the two curves, from ``start``; epsilons around it, and the curve there."""
        integrand, is_lower = terms
        offset = integrand.left_out
        # A program keeps every frequency, of either curve; NumPy drops what matters to neither bound, of each its own.
        integrand = integrand._replace(index=lower.index if xp is not np or is_lower.all() else upper.index)

        def curve(epsilon: Array) -> tuple[Array, Array]:
            found = summed(integrand, epsilon)
            value = found.upper
            if xp is not np or is_lower.all():  # a program holds one function for both curves
                below = found.lower - aliases(integrand, epsilon)
                # No hockey stick is negative, whatever was computed.
                value = xp.where(is_lower, xp.where(below > 0, below, 0.0), value)
            return value + offset, found.slope

        zero = xp.zeros_like(start)
        state = (start, zero, xp.maximum(2.0 * start, 1.0), zero + np.inf)
        step = lambda state: newton(state, *curve(state[0]), delta, offset)  # noqa: E731
        at, short = iterated(step, state, lambda state: state[3] <= _CLOSE * state[0], _ITERATIONS)[:2]
        moved = xp.where(is_lower, -1.0, 1.0) * (at * _NUDGES[:, None] + 1e-14)
        tried = xp.maximum(xp.concatenate([at + moved, xp.where(is_lower, short, 0.0)[None]]), 0.0)
        return at, (tried, curve(tried)[0])

    sides = [(terms._replace(index=None), np.full(delta.shape, i == 1)) for i, terms in enumerate((upper, lower))]
    tried, found = collected(side, guess, sides)
    high = xp.where(found[0] <= delta, tried[0], np.inf).min(0)
    high = xp.where((lost <= delta) & (largest < high), xp.maximum(largest, 0.0), high)
    high = xp.where(lost <= delta, high, np.inf)
    low = xp.where(found[1] > delta, tried[1], 0.0).max(0)
    low = xp.where(failed > delta, np.inf, low)
    return xp.minimum(low, high), high
