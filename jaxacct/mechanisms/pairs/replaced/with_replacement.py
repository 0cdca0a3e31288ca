"""The pair of replaced records in a sample with replacement that a Gaussian mechanism sums up."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, column, iterated, stopped, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, deflated
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored, rest_at_zero
from jaxacct.mechanisms.pairs.gaussian import LOG_WEIGHT, REACH, Z, normal_tails
from jaxacct.mechanisms.parameters import NOISE_UNITS

_ITERATIONS = 64
_CLOSE = 64.0 * UNIT


@mechanism
class WithReplacementPair(Pair):
    """The pair of theorem 2 of ``docs/proofs/samples-with-replacement.md``; w_j is the probability of j draws.

    With outcomes x = -Phi^-1(s) noise and likelihood ratios r_j(x) of N(j) against N(0), the best x at g = e^l solves
    sum_j w_j (r_j(x) / g - 1)_+ = w_0 (1 - e^-l), whose left side is convex and increasing, so that Newton's method
    comes down from any outcome right of it. The best x_j is max(x, y_j) with r_j(y_j) = g.

    Attributes:
        noise: sigma over what replacing the record once moves.
        weights: w_0, w_1, ... as a row.
        tail: probability of more draws than these, where everything counts as revealed.
        doubt: relative error of the weights.
    """

    noise: Array
    weights: Row
    tail: Array
    doubt: Array

    def _shifts(self) -> Array:
        return np.arange(1.0, self.weights.size)

    def _outcomes(self, losses: Array) -> tuple[Array, Array]:
        """The best x, shape ``(..., n)``, and x_j, shape ``(..., n, k)``, of losses >= 0."""
        noise, w, j = column(self.noise)[..., None], self.weights.values[..., None, :], self._shifts()
        goal = w[..., :1] * -xp.expm1(-losses[..., None])
        w = w[..., 1:]
        own = (losses[..., None] + 0.5 * (j / noise) ** 2) * noise**2 / j
        # Where one of the components alone would solve it.
        alone = own + noise**2 / j * log1p(goal / w)
        start = xp.where(w > 0, alone, np.inf).min(-1)

        def value(x: Array) -> tuple[Array, Array]:
            beyond = xp.maximum(x[..., None] - own, 0.0) * j / noise**2
            ratio = w * xp.exp(xp.minimum(beyond, 700.0))
            inside = (beyond > 0.0) & (w > 0)
            total = xp.where(inside, w * xp.expm1(xp.minimum(beyond, 700.0)), 0.0).sum(-1)
            return total, xp.where(inside, ratio * j / noise**2, 0.0).sum(-1)

        def newton(state: tuple[Array, ...]) -> tuple[Array, ...]:
            x, step = state
            total, slope = value(x)
            step = xp.where(slope > 0, xp.maximum(total - goal[..., 0], 0.0) / slope, 0.0)
            return x - step, step

        def finished(state: tuple[Array, ...]) -> Array:
            x, step = state
            return ~(step > _CLOSE * (xp.abs(x) + noise[..., 0]))  # NaN is finished

        x, _ = iterated(newton, (stopped(start), stopped(start) * 0.0 + np.inf), finished, _ITERATIONS)
        total, slope = value(x)
        x = x - xp.where(slope > 0, (total - goal[..., 0]) / slope, 0.0)
        return x, xp.maximum(x[..., None], own)

    def tails(self, losses: Edges) -> Tails:
        noise, w, tail = column(self.noise), self.weights.values[..., None, :], column(self.tail)
        negative = losses < 0.0
        x, each = self._outcomes(xp.abs(losses) + 0.0 * noise)
        j = self._shifts()
        base = [w[..., 0] * side for side in normal_tails(x / noise)]
        shifted = [(w[..., 1:] * side).sum(-1) for side in normal_tails((each - j) / noise[..., None])]
        still = [(w[..., 1:] * side).sum(-1) for side in normal_tails(each / noise[..., None])]
        p_above, p_below = base[0] + shifted[0] + tail, base[1] + shifted[1]
        q_above, q_below = base[0] + still[0], base[1] + still[1] + tail
        larger = xp.minimum(xp.maximum(xp.abs(each).max(-1), xp.abs(each - j).max(-1)) / noise, REACH + 2.0)
        moved = 2.0 * NOISE_UNITS * (1.0 + larger) * j[-1] / noise
        error = UNIT * (32.0 + 4.0 * j.size + 8.0 * larger**2 + moved) + column(self.doubt)
        return mirrored(Tails(p_above, p_below, q_above, q_below, error), negative)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`: losses of the mixture against its base, and reversed."""
        noise, w = column(self.noise)[..., None], self.weights.values
        j = np.arange(float(self.weights.size))
        x = (j[:, None] + noise * Z).reshape(*noise.shape[:-2], -1)
        share = (xp.log(w)[..., None] + LOG_WEIGHT).reshape(*w.shape[:-1], -1)
        logs = xp.log(w)[..., None, :] + (j * x[..., None] - 0.5 * j**2) / noise**2
        top = logs.max(-1)
        loss = top + xp.log(xp.exp(logs - top[..., None]).sum(-1))
        own = np.concatenate([LOG_WEIGHT, np.full(Z.size * (j.size - 1), -np.inf)])
        losses = xp.concatenate([loss, -loss], -1)
        masses = xp.concatenate([xp.where(loss > 0, share, -np.inf), xp.where(loss > 0, own, -np.inf)], -1)
        return rest_at_zero(losses, masses)

    def loss_error(self) -> PerSetting:
        """What the outcome may be off by; the loss rises by at most that of the farthest component with it."""
        farthest = self._shifts()[-1]
        size = farthest * (REACH * self.noise + 2.0 * farthest) / self.noise**2
        return UNIT * (128.0 + 512.0 * (1.0 + size)) + 2.0 * self.doubt

    def infinity(self) -> PerSetting:
        """More draws than there are components for; rounded down."""
        return deflated(self.tail, 1e-6) + 0.0 * self.noise
