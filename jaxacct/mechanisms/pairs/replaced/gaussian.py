"""The pair of `replace` for a Gaussian sum over a Poisson sample: old and new record are opposite."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored
from jaxacct.mechanisms.pairs.gaussian import LOG_WEIGHT, REACH, GaussianPair, Z, normal_tails
from jaxacct.mechanisms.pairs.sampled_loss import COMPLEMENT, Rated, all_records, log_rest, mixed_loss
from jaxacct.mechanisms.parameters import NOISE_UNITS

_LARGE = 20.0  # above, asinh(y) is log(2 y) in float64


@mechanism
class AntipodalGaussianPair(Rated, Pair):
    """P = (1 - q) N(0, s^2) + q N(1, s^2) against Q = (1 - q) N(0, s^2) + q N(-1, s^2).

    The loss increases with the outcome x and is odd. With c = q e^(-1 / (2 s^2)) a loss l belongs to

        x = s^2 (l / 2 + asinh(sinh(l / 2) (1 - q) / c)).

    Attributes:
        noise: s, the noise multiplier sigma / sensitivity; float64.
        rate: q in (0, 1].
        rest: 1 - q, see ``GaussianPair``.
    """

    noise: Array
    rate: Array
    rest: Array = COMPLEMENT

    def whole(self) -> tuple[GaussianPair, Array]:
        """The Gaussian mechanism of twice the sensitivity; see :class:`jaxacct.mechanisms.pairs.base.Pair`."""
        one = xp.ones_like(self.noise)
        return GaussianPair(0.5 * self.noise, one, 0.0 * one, 0.0 * one), all_records(self)

    def _outcome(self, losses: Array) -> Array:
        """The outcome of losses >= 0."""
        noise, q = column(self.noise), column(self.rate)
        half = 0.5 * losses
        log_sinh = half - np.log(2.0) + xp.log(-xp.expm1(-2.0 * half))
        log_y = log_sinh + log_rest(q, column(self.rest)) - xp.log(q) + 0.5 / noise**2
        y = xp.exp(xp.minimum(log_y, _LARGE))
        small = log1p(y + y**2 / (1.0 + xp.sqrt(1.0 + y**2)))
        return noise**2 * (half + xp.where(log_y > _LARGE, log_y + np.log(2.0), small))

    def tails(self, losses: Edges) -> Tails:
        noise, q = column(self.noise), column(self.rate)
        rest, x = column(self.rest), self._outcome(xp.abs(losses))
        at, up, down = x / noise, (x - 1.0) / noise, (x + 1.0) / noise
        base, high, low = normal_tails(at), normal_tails(up), normal_tails(down)
        p_above, p_below = (rest * one + q * other for one, other in zip(base, high, strict=True))
        q_above, q_below = (rest * one + q * other for one, other in zip(base, low, strict=True))
        # As in GaussianPair.
        larger = xp.minimum(xp.maximum(xp.abs(up), xp.abs(down)), REACH + 2.0)
        error = UNIT * (40.0 + 8.0 * larger**2 + 2.0 * NOISE_UNITS * (1.0 + larger) / noise)
        return mirrored(Tails(p_above, p_below, q_above, q_below, error), losses < 0.0)

    def survey(self) -> Survey:
        noise, q = column(self.noise), column(self.rate)
        rest = column(self.rest)
        x = xp.concatenate([Z * noise, 1.0 + Z * noise], -1)
        loss = mixed_loss((x - 0.5) / noise**2, q, rest) - mixed_loss((-x - 0.5) / noise**2, q, rest)
        return Survey(loss, xp.concatenate([log_rest(q, rest) + LOG_WEIGHT, xp.log(q) + LOG_WEIGHT], -1))

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], rounded up: it is convex in the pair, and Q >= (1 - q) N(0, s^2)."""
        q = self.rate
        least = log_rest(q, self.rest)
        once = 0.5 * order * (order - 1.0) / self.noise**2
        apart = xp.logaddexp(least, xp.log(q) + 4.0 * once)
        from_base = xp.logaddexp(least, xp.log(q) + once) - (order - 1.0) * least
        return (1.0 + 1e-12) * xp.minimum(apart, xp.where(xp.isnan(from_base), np.inf, from_base)) + 1e-14

    def loss_error(self) -> PerSetting:
        """x is off by some units of its terms, and the loss rises by at most 2 / s^2 with it.

        The terms of x / s^2 are at most those of the farthest outcome that float64 can weigh and log(1 / q).
        """
        reach = REACH * self.noise + 2.0
        size = reach / self.noise**2 + 0.5 / self.noise**2
        return UNIT * (64.0 + (32.0 + 2.0 * NOISE_UNITS) * size - 16.0 * xp.log(self.rate))
