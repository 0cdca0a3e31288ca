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
_STEP = 1e-4  # in log sigma, of the differences that give the stand-in's slopes
_NEWTON = 6
_MEMORY = 10  # steps that the search remembers
_SHORTER = 30  # halvings of a step that does not pay


class StandIn:
    """K_k(t) = counts_k t D_(1+t) of every level k, D the Rényi divergence, as functions of log sigma."""

    def __init__(self, make: Callable[[Array], Mechanism], counts: np.ndarray, relation: str) -> None:
        self.make, self.counts, self.relation = make, counts, relation

    def cumulants(self, log_sigma: np.ndarray, t: float) -> np.ndarray:
        """K_k(t), one for each level."""
        with jax.enable_x64(True):
            curve = divergence(self.make(np.exp(log_sigma)), 1.0 + t, relation=self.relation)
            return self.counts * t * np.broadcast_to(np.asarray(curve), self.counts.shape)

    def tilt(self, log_sigma: np.ndarray, epsilon: float) -> float:
        """The t of least K(t) - t epsilon - log(t (t + 1))."""
        values = np.array([self.cumulants(log_sigma, float(t)).sum() for t in _TILTS])
        exponent = values - _TILTS * epsilon - np.log(_TILTS * (_TILTS + 1.0))
        return float(_TILTS[np.argmin(np.where(np.isnan(exponent), np.inf, exponent))])

    def at(self, start: np.ndarray, t: float, slopes: np.ndarray) -> Goal:
        """The set of log sigma with as large a stand-in as ``start`` has.

        Levels are weighted so that the stand-in has these slopes (of log delta by log sigma) there; where they are
        unknown, it has its own.
        """
        goal = Goal(self, t, np.ones(start.size), 0.0)
        weights = np.clip(slopes / goal.slopes(start), 1.0 / _TRUST, _TRUST)
        goal.weights = weights if np.isfinite(weights).all() else np.ones(start.size)
        goal.budget = goal.value(start)
        return goal


class Goal:
    """The set where the logarithm of sum_k weights_k K_k(t) is ``budget``."""

    def __init__(self, stand_in: StandIn, t: float, weights: np.ndarray, budget: float) -> None:
        self.stand_in, self.t, self.weights, self.budget = stand_in, t, weights, budget

    def value(self, log_sigma: np.ndarray) -> float:
        """The logarithm of the stand-in, which is nearly linear in log sigma."""
        return float(np.log((self.weights * self.stand_in.cumulants(log_sigma, self.t)).sum()))

    def slopes(self, log_sigma: np.ndarray) -> np.ndarray:
        """Its sum's derivative by each level's log sigma; a level's part depends on its own alone."""
        up, down = (self.stand_in.cumulants(log_sigma + step, self.t) for step in (_STEP, -_STEP))
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
    """The log sigma of most utility on the set, from ``start`` on it, by L-BFGS with halved steps.

    ``utility`` gives a number and its gradient.
    """
    size = max(abs(utility(start)[0]), 1e-300)

    def loss(shape: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        there, slopes = goal.projected(shape)
        value, gradient = utility(there)
        # Moving one level moves all of them back onto the set.
        return -value / size, -(gradient - gradient.sum() * slopes / slopes.sum()) / size, there

    at = start
    value, gradient, there = loss(at)
    moves: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(iterations):
        if not np.abs(gradient).max() > _FLAT:
            break
        direction = -_inverse_hessian(moves, gradient)
        if not direction @ gradient < 0:
            direction, moves = -gradient, []
        step = min(1.0, 1.0 / np.abs(direction).max())  # never by more than a factor e at once
        for _ in range(_SHORTER):
            new = at + step * direction
            found = loss(new)
            if found[0] <= value + 1e-4 * step * float(direction @ gradient):
                break
            step *= 0.5
        else:
            break
        move, change = new - at, found[1] - gradient
        if move @ change > 1e-12 * np.sqrt((move @ move) * (change @ change)):
            moves = [*moves, (move, change)][-_MEMORY:]
        at, (value, gradient, there) = new, found
    return there


def _inverse_hessian(moves: list[tuple[np.ndarray, np.ndarray]], gradient: np.ndarray) -> np.ndarray:
    """L-BFGS's estimate of the inverse Hessian times ``gradient`` (Nocedal, Wright 2006, Algorithm 7.4)."""
    q, shares = gradient, []
    for move, change in reversed(moves):
        share = (move @ q) / (move @ change)
        shares.append(share)
        q = q - share * change
    if moves:
        move, change = moves[-1]
        q = q * ((move @ change) / (change @ change))
    for (move, change), share in zip(moves, reversed(shares), strict=True):
        q = q + (share - (change @ q) / (move @ change)) * move
    return q
