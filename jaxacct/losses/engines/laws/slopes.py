"""delta(epsilon) as a number without bounds, for derivatives where transforms hardly decay.

Laws from above whose edges stay where they are move smoothly with the parameters of a pair. What they exceed the truth
by falls with the square of the number of points, and is extrapolated from two numbers of points. That is an estimate,
good to some parts in a thousand, and not proven.
"""

from __future__ import annotations

import numpy as np

from jaxacct.losses.engines.laws.aim import Aim
from jaxacct.losses.engines.laws.bounds import Runs, spread_of
from jaxacct.losses.engines.laws.composer import LEAST_POINTS, Composer
from jaxacct.losses.engines.laws.of_two import delta_from_above

_SIZES = (256, 512)
_AGREE = 0.03  # relative difference of derivatives by the two, whose extrapolation is given out


class Curve:
    """delta of runs on edges that were put for ``epsilon``; what moves must keep its structure."""

    def __init__(self, runs: Runs, epsilon: float) -> None:
        self.runs, self.epsilon = runs, epsilon
        total, spread, delta = float(sum(count for _, count in runs)), spread_of(runs), 1e-5
        for size in (LEAST_POINTS, LEAST_POINTS):
            halves = Composer(Aim.at(epsilon, delta, total, spread), size).halves(runs)
            delta = delta_from_above(*halves, epsilon) if halves else delta
        self._composers = []
        for size in _SIZES:
            composer = Composer(Aim.at(epsilon, delta, total, spread), size)
            composer.halves(runs)
            self._composers.append(composer)

    def at(self, runs: Runs, epsilon: float) -> np.ndarray:
        """By either number of points, shape ``(2,)``; NaN where a number is none."""
        found = []
        for composer in self._composers:
            halves = Composer(composer.aim, composer.size, composer.edges).halves(runs)
            found.append(np.nan if halves is None else delta_from_above(*halves, epsilon))
        return np.array(found)


def extrapolated(slopes: np.ndarray) -> float:
    """The derivative that two numbers of points say, or NaN."""
    rough, fine = slopes
    return float(fine + (fine - rough) / 3.0) if abs(fine - rough) <= _AGREE * abs(fine) else np.nan
