"""`Aim`: where laws are to have their points, by what they are to be good at; nothing here is certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.least import first_least

_WHOLE = 34.0  # e-foldings between delta and what lies below the first edge
_LEFT_OUT = 21.0  # e-foldings between delta and what lies above the last


class Aim(NamedTuple):
    """What the laws are to be good at: hockey sticks of about ``delta`` at about ``epsilon``.

    ``spread`` is the size of the sum of all losses: next to it a small epsilon is 0.
    """

    epsilon: Array
    delta: Array
    runs: Array
    spread: Array

    @classmethod
    def at(cls, epsilon: Array, delta: Array, runs: Array, spread: Array) -> Aim:
        """With numbers that make sense."""
        xp = array_module(epsilon, delta)
        return cls(xp.maximum(epsilon, 1e-12), xp.clip(delta, 1e-300, 0.5), runs, spread)

    def _size(self) -> Array:
        return array_module(self.epsilon, self.spread).maximum(self.epsilon, self.spread)

    def theta(self) -> Array:
        """By how much e-folds the probability of a loss above epsilon falls with epsilon, about.

        A tiny loss contributes no more than itself to delta, however likely it is.
        """
        size = self._size()
        xp = array_module(size)
        return -xp.log(xp.minimum(self.delta / xp.minimum(size, 1.0), 0.5)) / size

    def weights(self, losses: Array, log_masses: Array) -> Array:
        """How much a point matters: its mass, and how likely the rest brings its loss to about epsilon.

        Where everything is above epsilon, only the total P- and Q-mass count, which all points keep.
        """
        xp = array_module(losses, self.epsilon)
        away = xp.minimum(losses - self.epsilon, 0.0)
        beyond = xp.maximum(losses - self.epsilon, 0.0) / self._size()
        found = log_masses + self.theta() * away - 3.0 * beyond
        return xp.exp(found - found.max())

    def ends(self, losses: Array, log_masses: Array) -> tuple[Array, Array]:
        """The first edge and the last, for points sorted by loss."""
        xp = array_module(losses, self.epsilon)
        masses, last = xp.exp(log_masses), losses.size - 1
        under = xp.log(xp.cumsum(masses)) + self.theta() * losses
        over = xp.cumsum(masses[::-1])
        low = first_least(xp.where(under > -_WHOLE - xp.log(self.runs), 0.0, 1.0))
        rare = first_least(xp.where(over > self.delta * np.exp(-_LEFT_OUT) / self.runs, 0.0, 1.0))
        return losses[xp.maximum(low - 1, 0)], losses[xp.minimum(last - rare + 1, last)]
