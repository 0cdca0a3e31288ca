"""delta and epsilon of the sum of two independent losses: the mean hockey stick of one at epsilon minus the other.

NumPy only. All sums are of non-negative numbers, so deep tails keep their digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.roots import crossing
from jaxacct._numerics.rounding import EPS
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.losses.engines.laws.cells import Law, Laws
from jaxacct.losses.engines.laws.sums import either

_UNDERFLOW = 1e-300  # of all sums and products together

Curve = Callable[[float], float]


def delta_of_sum(first: Laws, second: Laws, epsilon: float, largest: float) -> tuple[float, float]:
    """``(lower, upper)`` of delta(epsilon), where no sum of finite losses is above ``largest``."""
    below, above = _sides(first, second, largest)
    lower, upper = possible(below(epsilon), above(epsilon), epsilon)
    return float(lower), float(upper)


def epsilon_of_sum(first: Laws, second: Laws, delta: float, largest: float) -> tuple[float, float]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta; see `delta_of_sum`."""
    below, above = _sides(first, second, largest)

    def ends(curve: Curve, limit: float, surely: Callable[[float], bool]) -> tuple[Array, Array]:
        """Where ``curve`` falls to delta: a point where it is ``surely`` above, or 0, and one where it is not."""

        def above(at: Array) -> tuple[Array, Array]:
            value = curve(float(at))
            return np.asarray(surely(value)), np.log(np.asarray(value) / delta)

        return crossing(above, np.zeros(()), np.asarray(limit))

    most = float(first.upper.losses.max() + second.upper.losses.max())
    high, low = above(0.0), below(0.0)
    if np.isnan(high) or np.isnan(low):
        return 0.0, np.inf
    upper = np.inf
    if high <= delta:
        upper = 0.0
    elif float(either(first.upper, second.upper)) < delta:
        limits = [end for end in (most * (1.0 + 1e-12), largest) if end < np.inf and above(end) <= delta]
        upper = float(ends(above, limits[0], lambda value: not value <= delta)[1]) if limits else np.inf
    lower = 0.0
    if float(either(first.lower, second.lower)) * (1.0 - 16 * EPS) > delta:
        lower = np.inf
    elif low > delta:
        lower = float(ends(below, most, lambda value: value > delta)[0])
    return min(lower, upper), upper


def delta_from_above(first: Laws, second: Laws, epsilon: float) -> float:
    """The upper bound alone, whatever a delta can be."""
    return _sides(first, second, np.inf)[1](epsilon)


def _sides(first: Laws, second: Laws, largest: float) -> tuple[Curve, Curve]:
    """Certified curves from below and from above, functions of epsilon."""

    def curve(one: Law, two: Law, sign: float) -> Curve:
        half = Half(two)
        infinite = float(either(one, two))

        def at(epsilon: float) -> float:
            value, error = half.stick(epsilon - one.losses)
            terms = one.masses * np.maximum(value + sign * error, 0.0)
            total = float(terms.sum()) * (1.0 + sign * (terms.size + 16) * EPS)
            # What underflows is hidden, also where no point of the laws is left above; beyond the largest loss of
            # all runs there is nothing to hide.
            hidden = _UNDERFLOW if epsilon < largest else 0.0
            return float(np.maximum(total + sign * hidden, 0.0)) + infinite * (1.0 + sign * 16 * EPS)

        return at

    return curve(first.lower, second.lower, -1.0), curve(first.upper, second.upper, 1.0)


class Half:
    """A law whose hockey stick is asked for at many losses."""

    def __init__(self, law: Law) -> None:
        order = np.argsort(law.losses)
        self.losses, self.masses = law.losses[order], law.masses[order]
        # P-masses of all points from one on, and their hockey sticks at its loss. Each round doubles the windows. All
        # terms are non-negative and no exponent is positive: nothing cancels, nothing overflows.
        above, sticks, length, rounds = self.masses, np.zeros_like(self.masses), 1, 0
        while length < above.size:
            away = self.losses[:-length] - self.losses[length:]
            joined = sticks[:-length] - np.expm1(away) * above[length:] + np.exp(away) * sticks[length:]
            sticks = np.append(joined, sticks[-length:])
            above = np.append(above[:-length] + above[length:], above[-length:])
            length, rounds = 2 * length, rounds + 1
        self.above, self.sticks = np.append(above, 0.0), np.append(sticks, 0.0)
        self.starts = np.append(self.losses, self.losses[-1])
        # Of a sum and of a product with a difference of losses, each round.
        self.units = 8.0 * rounds + 24.0

    def stick(self, at: Array) -> tuple[Array, Array]:
        """E[(1 - e^(at - L))_+], and a bound on its error where ``at`` is off by a unit of itself."""
        place = np.searchsorted(self.losses, at, side="right")
        away = np.minimum(at - self.starts[place], 0.0)
        value = np.exp(away) * self.sticks[place] - np.expm1(away) * self.above[place]
        return value, EPS * (self.units * value + 4.0 * np.abs(at) * self.above[place])
