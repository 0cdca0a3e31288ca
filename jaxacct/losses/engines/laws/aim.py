"""`Aim`: where laws are to have their points, by what they are to be good at; nothing here is certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, Real, array_module, running_total, xp

_WHOLE = 34.0  # e-foldings between delta and what lies below the first edge
_LEFT_OUT = 21.0  # e-foldings between delta and what lies above the last


class Aim(NamedTuple):
    """What the laws are to be good at.

    Attributes:
        epsilon: about where their hockey sticks are asked for.
        size: the larger of it and the size of the sum of all losses, next to which a small epsilon is 0.
        theta: by how much e-folds the probability of a loss above epsilon falls with epsilon, about.
        least: log of the share of a mass, tilted by theta, that may lie below the first edge.
        rare: mass that may lie above the last edge.
    """

    epsilon: Array
    size: Array
    theta: Array
    least: Array
    rare: Array

    @classmethod
    def at(cls, epsilon: Real, delta: Real, runs: Real, spread: Real) -> Aim:
        """Hockey sticks of about ``delta`` at about ``epsilon``; ``spread`` is the size of the sum of all losses."""
        where, delta = xp.maximum(epsilon, 1e-12), xp.clip(delta, 1e-300, 0.5)
        size = xp.maximum(where, spread)
        # A tiny loss contributes no more than itself to delta, however likely it is.
        theta = -xp.log(xp.minimum(delta / xp.minimum(size, 1.0), 0.5)) / size
        return cls(where, size, theta, -_WHOLE - xp.log(runs), delta * np.exp(-_LEFT_OUT) / runs)

    def weights(self, losses: Array, log_masses: Array) -> Array:
        """How much a point matters: its mass, and how likely the rest brings its loss to about epsilon.

        Where everything is above epsilon, only the total P- and Q-mass count, which all points keep.
        """
        away = losses - self.epsilon
        found = log_masses + self.theta * xp.minimum(away, 0.0) - 3.0 * xp.maximum(away, 0.0) / self.size
        return xp.exp(found - found.max())

    def ends(self, losses: Array, log_masses: Array) -> tuple[Array, Array]:
        """The first edge and the last, for points sorted by loss."""
        masses = xp.exp(log_masses)
        under, over = running_total(xp.stack([masses, masses[::-1]]))
        low = (xp.log(under) + self.theta * losses <= self.least).sum()
        rare, last = (over <= self.rare).sum(), losses.size - 1
        # Points without mass are not rare: a point may stand for others up to the next one.
        cut = rare > (over == 0.0).sum()
        # Points of a sketch stand for larger losses as well, up to the next ones, and no program aims as often.
        further = 1 if array_module(masses, self.epsilon) is np else 3
        return losses[xp.maximum(low - 1, 0)], losses[xp.where(cut, xp.minimum(last - rare + further, last), last)]
