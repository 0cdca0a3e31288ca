"""The pair of `replace_special` in a `TruncatedPoisson` sample that is full: the record displaces another one."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored, rest_at_zero
from jaxacct.mechanisms.pairs.gaussian import LOG_WEIGHT, REACH, GaussianPair, Z, normal_tails
from jaxacct.mechanisms.pairs.sampled_loss import mixed_loss
from jaxacct.mechanisms.parameters import NOISE_UNITS


@mechanism
class DisplacedGaussianPair(Pair):
    """At losses >= 0 (1 - q) N(0) + q N(2) against (1 - q) N(0) + q N(1), below N(0) against (1 - q) N(0) + q N(1).

    All of variance s^2. Each half is the worst case at its orders; together they are a curve that dominates
    (``docs/proofs/truncated-poisson.md``). The reverse of it is the other direction.

    The outcome of a loss l > 0 of the first half is, by a quadratic equation in e^(x / s^2),

        x = s^2 (l + log((1 + sqrt(1 + r)) / 2)) + 3/2,    r = 4 (1 - q) / q e^(-1 / s^2 - l) (1 - e^-l).

    Attributes:
        noise: s, the noise multiplier sigma / sensitivity; float64.
        rate: q in (0, 1].
        reverse: 0 is the direction `zero_out`, 1 is `fill_in`; a leaf, see ``GaussianPair``.
    """

    noise: Array
    rate: Array
    reverse: Array

    def _below(self) -> GaussianPair:
        return GaussianPair(self.noise, self.rate, 1.0 + 0.0 * self.rate)

    def tails(self, losses: Edges) -> Tails:
        noise, q, back = column(self.noise), column(self.rate), column(self.reverse) > 0.5
        at = xp.where(back, -losses, losses)
        loss = xp.maximum(at, 0.0)
        log_r = np.log(4.0) + log1p(-q) - xp.log(q) - 1.0 / noise**2 - loss + xp.log(-xp.expm1(-loss))
        r = xp.exp(log_r)
        x = noise**2 * (loss + log1p(0.5 * r / (1.0 + xp.sqrt(1.0 + r)))) + 1.5
        z = x / noise
        base, one, two = normal_tails(z), normal_tails((x - 1.0) / noise), normal_tails((x - 2.0) / noise)
        mixed = [(1.0 - q) * side + q * moved for by in (two, one) for side, moved in zip(base, by, strict=True)]
        larger = xp.minimum(xp.maximum(xp.abs(z), xp.abs((x - 2.0) / noise)), REACH + 2.0)
        above = Tails(*mixed, error=UNIT * (40.0 + 8.0 * larger**2 + 4.0 * NOISE_UNITS * (1.0 + larger) / noise))
        below = self._below().tails(at)
        # The loss 0 is an atom between both halves.
        upper = xp.where(back, losses < 0.0, losses >= 0.0)
        halves = Tails(*(xp.where(upper, high, low) for high, low in zip(above, below, strict=True)))
        return mirrored(halves, back)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; what the two halves leave out lies at 0."""
        noise, q, back = column(self.noise), column(self.rate), column(self.reverse) > 0.5
        by = lambda shift: (shift * x - 0.5 * shift**2) / noise**2  # noqa: E731
        x = xp.concatenate([Z * noise, 1.0 + Z * noise, 2.0 + Z * noise], -1)
        near, far = mixed_loss(by(1.0), q, 1.0 - q), mixed_loss(by(2.0), q, 1.0 - q)
        high, low = far - near, -near
        # Component by component: the base, that of Q and that of P.
        stay, move = log1p(-q) + LOG_WEIGHT, xp.log(q) + LOG_WEIGHT
        none = np.full_like(LOG_WEIGHT, -np.inf)
        p = xp.concatenate([stay, none + 0.0 * q, move], -1)
        q_ = xp.concatenate([stay, move, none + 0.0 * q], -1)
        base = xp.concatenate([LOG_WEIGHT + 0.0 * q, none + 0.0 * q, none + 0.0 * q], -1)
        losses = xp.concatenate([xp.where(back, -high, high), xp.where(back, -low, low)], -1)
        masses = xp.concatenate([xp.where(back, q_, p), xp.where(back, q_, base)], -1)
        kept = xp.concatenate([high > 0.0, low < 0.0], -1)
        return rest_at_zero(losses, xp.where(kept, masses, -np.inf))

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], rounded up: its excess is at most that of both halves together."""
        q = self.rate
        half = xp.logaddexp(log1p(-q), xp.log(q) + 0.5 * order * (order - 1.0) / self.noise**2)
        return (1.0 + 1e-12) * (half + np.log(2.0))

    def loss_error(self) -> PerSetting:
        """That of the outcome, of which the loss rises by at most 2 / s^2."""
        reach = REACH * self.noise + 3.5
        own = UNIT * (32.0 + 32.0 * reach / self.noise**2 - 16.0 * xp.log(self.rate))
        return xp.maximum(own, self._below().loss_error())
