"""`Enclosure`: what the worst analyst attains, from both sides, at the points of a lattice and between them."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.rounding import EPS, deflated
from jaxacct.accounting.batch import Bounds
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid

_HALVINGS = 55


@dataclasses.dataclass(frozen=True, eq=False)
class Enclosure:
    """A convex curve, enclosed.

    Attributes:
        profile: the upper bound, a guarantee at every epsilon.
        lower: lower bounds of the excess H - (1 - gamma)_+ at the points of ``grid``.
        grid: a lattice, not always that of ``profile``.
    """

    profile: PrivacyProfile
    lower: np.ndarray
    grid: LossGrid

    def hockey_stick(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of delta(epsilon) = H(e^epsilon); shape of ``epsilon``."""
        _validate.finite(epsilon=epsilon)
        at = np.asarray(epsilon, np.float64)
        upper, identity = np.asarray(self.profile.hockey_stick(at)), np.expm1(np.minimum(at, 0.0))
        lower = np.clip(self._lower_excess(at) - deflated(identity, 4 * EPS), 0.0, upper)
        return Bounds(lower[()], upper[()])

    def excess(self, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of H - (1 - gamma)_+ at epsilons."""
        return self._lower_excess(epsilon), self._upper_excess(epsilon)

    def epsilon(self, delta: ArrayLike) -> Bounds:
        """Bounds of the least epsilon >= 0 at which H is at most ``delta``; shape of ``delta``."""
        _validate.probability(delta=delta)
        wanted, ends = np.asarray(delta, np.float64), []
        for side in range(2):
            low, high = np.zeros(wanted.shape), np.full(wanted.shape, self.profile.grid.losses[-1])
            for _ in range(_HALVINGS):
                middle = 0.5 * (low + high)
                more = self.hockey_stick(middle)[side] > wanted
                low, high = np.where(more, middle, low), np.where(more, high, middle)
            ends.append((low, np.where(self.hockey_stick(high).upper <= wanted, high, np.inf)))
        return Bounds(ends[0][0][()], ends[1][1][()])

    @functools.cached_property
    def _upper(self) -> np.ndarray:
        """The upper bound's excess at the points of ``grid``."""
        return self._upper_excess(self.grid.losses)

    def _upper_excess(self, epsilon: np.ndarray) -> np.ndarray:
        return np.asarray(self.profile.hockey_stick(epsilon)) + np.expm1(np.minimum(epsilon, 0.0)) + 4 * EPS

    def _lower_excess(self, epsilon: np.ndarray) -> np.ndarray:
        """A lower bound of E = H - (1 - gamma)_+ between lattice points, from bounds at them.

        Beside gamma = 1 the excess E is convex in gamma, increasing before and decreasing after. So it lies above a
        chord extended from the cell beside, from the upper bound at its far end through the lower one at the near end.
        """
        lower, upper, grid, losses = self.lower, self._upper, self.grid, self.grid.losses
        position = epsilon / grid.spacing - grid.lowest
        cell = np.clip(np.floor(position), 0, grid.size - 2).astype(np.int64)
        gamma, zero, nodes = np.exp(np.clip(epsilon, -745.0, 700.0)), -grid.lowest, np.exp(losses)
        value = np.where(cell >= zero, lower[cell + 1], lower[cell])
        for near, step in ((cell, -1), (cell + 1, 1)):
            inside = (near + step >= 0) & (near + step < grid.size) & (near != zero)
            far = np.where(inside, near + step, near - step)
            steps = (gamma - nodes[near]) / (nodes[near] - nodes[far])
            extended = lower[near] + steps * (lower[near] - upper[far])
            error = 32 * EPS * (1.0 + np.abs(epsilon)) / grid.spacing * (lower[near] + upper[far])
            value = np.maximum(value, np.where(inside, extended - error, 0.0))
        # A lattice point itself, as far as a double can tell: E moves by at most gamma |d epsilon|.
        nearest = np.clip(np.rint(position), 0, grid.size - 1).astype(np.int64)
        off = np.abs(epsilon - losses[nearest])
        known = lower[nearest] - (off + 4 * EPS * np.abs(epsilon)) * np.minimum(gamma, 1.0) * 2.0
        value = np.maximum(value, np.where(off < 1e-12, known, 0.0))
        # Outside the lattice nothing is claimed but perfect privacy.
        return np.where((position < 0) | (position > grid.size - 1 + 1e-9), 0.0, np.maximum(value, 0.0))
