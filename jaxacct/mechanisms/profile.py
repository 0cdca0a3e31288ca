"""`FromProfile`: a mechanism given by points of its delta(epsilon) curve."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.convex_hull import hull_atoms
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.table import TablePair


@mechanism
class FromProfile(Symmetric):
    """Any mechanism that is (``epsilons[i]``, ``deltas[i]``)-DP for every i, in the relation that is asked about.

    Being (epsilon, delta)-DP is a claim on both directions of every pair of neighbours. So each point (eps, delta) also
    bounds the curve at -eps, by 1 - e^-eps (1 - delta). As functions of e^eps hockey sticks are convex, non-increasing,
    and 1 at 0: the largest such curve below all points is their lower convex hull, constant right of the last. It is
    itself the hockey stick of a pair (Zhu, Dong, Wang 2022), symmetric, and dominates every mechanism
    that keeps the claims; so it may be composed and sampled. Upper and lower bounds enclose the worst case over all
    such mechanisms, not the mechanism that the points were read from. Between points the hull is the chord, so a
    smooth curve wants many points; the last delta is charged in full to every run.

    Attributes:
        epsilons: any real numbers, shape ``(..., points)``, in any order; leading axes are settings. A point beyond
            600 is left out, which is sound.
        deltas: in [0, 1], same shape.

    Raises:
        ValueError: values that are traced (the hull is found in exact arithmetic), of different shapes, not finite, not
            in [0, 1], or below 1 - exp(epsilon).
    """

    _rows = True
    epsilons: ArrayLike
    deltas: ArrayLike

    def __post_init__(self) -> None:
        _validate.tables(epsilons=self.epsilons, deltas=self.deltas)
        _validate.finite(epsilons=self.epsilons)
        _validate.rate(deltas=self.deltas)
        if not _validate.is_traced((self.epsilons, self.deltas)):
            self._atoms()

    def _atoms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Losses, P- and Q-masses, shape ``(..., 2 points + 2)``."""
        if _validate.is_traced((self.epsilons, self.deltas)):
            raise ValueError("epsilons and deltas must be concrete numbers, got traced ones")
        epsilons, deltas = (np.asarray(x, np.float64) for x in (self.epsilons, self.deltas))
        points = epsilons.shape[-1]
        rows = zip(epsilons.reshape(-1, points), deltas.reshape(-1, points), strict=True)
        found = [hull_atoms(*row) for row in rows]
        shape = (*epsilons.shape[:-1], 2 * points + 2)
        losses, p, q = (np.stack(part).reshape(shape) for part in zip(*found, strict=True))
        return losses, p, q

    def _dominating(self, relation: str) -> Runs:
        losses, p, q = (Row(part) for part in self._atoms())
        return [(TablePair(losses, p, q, np.full((), 2.0 * UNIT), np.full((), 16.0 * UNIT)), 1.0)]
