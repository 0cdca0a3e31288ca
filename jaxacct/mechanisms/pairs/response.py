"""The pair of randomized response, which is also the extremal pair of (epsilon, delta)-DP."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import PerSetting
from jaxacct.mechanisms.pairs.table import Atoms, Tabulated


@mechanism
class ResponsePair(Tabulated):
    """Randomized response over ``categories``, after ``delta`` of the probability has told the truth for certain.

    With s = e^eps + k - 1 the atoms are: infinite loss, (P, Q) = (delta, 0); loss eps, (1 - delta) (e^eps, 1) / s;
    loss 0, (1 - delta) (k - 2, k - 2) / s; and the mirror images of the first two. The pair is symmetric.

    Attributes:
        epsilon: eps >= 0; float64.
        categories: k >= 2, a whole number; float64.
        delta: in [0, 1]; float64.
    """

    epsilon: Array
    categories: Array
    delta: Array

    def atoms(self) -> Atoms:
        """The five atoms of the class's docstring."""
        eps, k, delta = xp.broadcast_arrays(self.epsilon, self.categories, self.delta)
        small = xp.exp(-eps)
        truth = (1.0 - delta) / (1.0 + (k - 1.0) * small)
        lie = small * truth
        same = (k - 2.0) * lie
        nothing, far = xp.zeros_like(eps), xp.full_like(eps, np.inf)
        losses = xp.stack([-far, -eps, nothing, eps, far], -1)
        p = xp.stack([nothing, lie, same, truth, delta + nothing], -1)
        return Atoms(losses, p, xp.flip(p, -1), 16.0 * UNIT, 0.0 * eps[..., None])

    def split(self) -> tuple[ResponsePair | None, Array]:
        """What is left of concrete parameters without failing, None for nothing, and the probability of failing."""
        if np.all(np.asarray(self.epsilon) == 0):
            return None, self.delta
        return ResponsePair(self.epsilon, self.categories, 0.0 * self.delta), self.delta

    def anchor(self) -> PerSetting:
        """The atom at eps."""
        return xp.asarray(self.epsilon)
