"""`Aim`: where laws are to have their points, by what they are to be good at; nothing here is certified."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_WHOLE = 34.0  # e-foldings between delta and what lies below the first edge
_LEFT_OUT = 21.0  # e-foldings between delta and what lies above the last


class Aim(NamedTuple):
    """What the laws are to be good at: hockey sticks of about ``delta`` at about ``epsilon``.

    ``spread`` is the size of the sum of all losses: next to it a small epsilon is 0.
    """

    epsilon: float
    delta: float
    runs: float
    spread: float

    def theta(self) -> float:
        """By how much e-folds the probability of a loss above epsilon falls with epsilon, about.

        A tiny loss contributes no more than itself to delta, however likely it is.
        """
        size = max(self.epsilon, self.spread)
        return -np.log(min(self.delta / min(size, 1.0), 0.5)) / size

    def weights(self, losses: np.ndarray, log_masses: np.ndarray) -> np.ndarray:
        """How much a point matters: its mass, and how likely the rest brings its loss to about epsilon.

        Where everything is above epsilon, only the total P- and Q-mass count, which all points keep.
        """
        theta = self.theta()
        away = np.minimum(losses - self.epsilon, 0.0)
        beyond = np.maximum(losses - self.epsilon, 0.0) / max(self.epsilon, self.spread)
        found = log_masses + theta * away - 3.0 * beyond
        return np.exp(found - found.max())

    def ends(self, losses: np.ndarray, log_masses: np.ndarray) -> tuple[float, float]:
        """The first edge and the last, for points sorted by loss."""
        theta = self.theta()
        masses = np.exp(log_masses)
        under = np.log(np.cumsum(masses)) + theta * losses
        over = np.cumsum(masses[::-1])[::-1]
        low = losses[max(np.argmax(under > -_WHOLE - np.log(self.runs)) - 1, 0)]
        kept = np.flatnonzero(over > self.delta * np.exp(-_LEFT_OUT) / self.runs)
        last = kept[-1] if kept.size else losses.size - 1
        return float(low), float(losses[min(last + 1, losses.size - 1)])
