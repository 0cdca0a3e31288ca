"""The search behind `plan_noise`, on a smooth approximation of the budget.

Everything here only steers: what is found is certified afterwards. It runs in NumPy, where nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.losses.renyi.curve import divergence
from jaxacct.mechanisms.base import Mechanism

_TILTS = np.geomspace(1e-2, 1e3, 128)  # where the saddle point is looked for
_TRUST = 4.0  # a larger correction of a slope than by this factor is noise of wide bounds
_FLAT = 1e-7  # gradient of log utility by log sigma at which a search has arrived
_FARTHEST = 7.0  # in log sigma, from where a search begins
_LITTLE = 1e-13  # of its size, by which a step improves utility, at which it has arrived as well
_STEP = 1e-4  # in log sigma, of the differences that give the stand-in's slopes
_NEWTON = 6


class Goal:
    """The set of log sigma where the logarithm of sum_k weights_k K_k is ``budget``, as it is at ``start``.

    K_k = counts_k t D_(1+t) of every level k, D the Rényi divergence, at the t of least K - t ``epsilon`` - log(t (t +
    1)). Levels are weighted so that the sum has the ``slopes`` (of log delta by log sigma) at ``start``; where they are
    unknown, it has its own.
    """

    def __init__(
        self,
        make: Callable[[Array], Mechanism],
        counts: np.ndarray,
        relation: str,
        start: np.ndarray,
        epsilon: float,
        slopes: np.ndarray,
    ) -> None:
        self.make, self.counts, self.relation = make, counts, relation
        values = np.array([self.cumulants(start, float(t)).sum() for t in _TILTS])
        exponent = values - _TILTS * epsilon - np.log(_TILTS * (_TILTS + 1.0))
        self.t = float(_TILTS[np.argmin(np.where(np.isnan(exponent), np.inf, exponent))])
        self.weights = np.ones(start.size)
        weights = np.clip(slopes / self.slopes(start), 1.0 / _TRUST, _TRUST)
        if np.isfinite(weights).all():
            self.weights = weights
        self.budget = self.value(start)

    def cumulants(self, log_sigma: np.ndarray, t: float) -> np.ndarray:
        """K_k at t, one for each level."""
        with jax.enable_x64(True):
            curve = divergence(self.make(np.exp(log_sigma)), 1.0 + t, relation=self.relation)
            return self.counts * t * np.broadcast_to(np.asarray(curve), self.counts.shape)

    def value(self, log_sigma: np.ndarray) -> float:
        """The logarithm of the weighted sum, which is nearly linear in log sigma."""
        return float(np.log((self.weights * self.cumulants(log_sigma, self.t)).sum()))

    def slopes(self, log_sigma: np.ndarray) -> np.ndarray:
        """The sum's derivative by each level's log sigma; a level's part depends on its own alone."""
        up, down = (self.cumulants(log_sigma + step, self.t) for step in (_STEP, -_STEP))
        return self.weights * (up - down) / (2.0 * _STEP)

    def projected(self, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``shape`` moved along (1, ..., 1) onto the set, and the slopes there."""
        shift, slopes = 0.0, np.zeros_like(shape)
        for _ in range(_NEWTON):
            value, slopes = self.value(shape + shift), self.slopes(shape + shift)
            step = np.clip((value - self.budget) * np.exp(value) / slopes.sum(), -3.0, 3.0)
            shift = shift - step
            if not abs(step) > 1e-12:
                break
        return shape + shift, slopes


def maximised(
    utility: Callable[[np.ndarray], tuple[float, np.ndarray]], goal: Goal, start: np.ndarray, iterations: int
) -> np.ndarray:
    """The log sigma of most utility on the set, from ``start`` on it, by L-BFGS.

    ``utility`` gives a number and its gradient.
    """
    from scipy.optimize import minimize

    size = max(abs(utility(start)[0]), 1e-300)

    def loss(shape: np.ndarray) -> tuple[float, np.ndarray]:
        there, slopes = goal.projected(shape)
        value, gradient = utility(there)
        # Moving one level moves all of them back onto the set.
        return -value / size, -(gradient - gradient.sum() * slopes / slopes.sum()) / size

    bounds = np.stack([start - _FARTHEST, start + _FARTHEST], -1)
    options = {"maxiter": iterations, "gtol": _FLAT, "ftol": _LITTLE}
    return goal.projected(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)[0]
