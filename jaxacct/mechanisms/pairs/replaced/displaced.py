"""The half of `replace_special` in a `TruncatedPoisson` sample that is full: the record displaces another one."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails
from jaxacct.mechanisms.pairs.gaussian import LOG_WEIGHT, REACH, Z, normal_tails
from jaxacct.mechanisms.pairs.sampled_loss import mixed_loss
from jaxacct.mechanisms.parameters import NOISE_UNITS


@mechanism
class DisplacedGaussianPair(Pair):
    """(1 - q) N(0) + q N(2) against (1 - q) N(0) + q N(1), all of variance s^2, at losses >= 0.

    Half of a pair (``docs/proofs/truncated-poisson.md``); see ``HalvesPair``. The outcome of a loss l > 0 is, by a
    quadratic equation in e^(x / s^2),

        x = s^2 (l + log((1 + sqrt(1 + r)) / 2)) + 3/2,    r = 4 (1 - q) / q e^(-1 / s^2 - l) (1 - e^-l).

    Attributes:
        noise: s, the noise multiplier sigma / sensitivity; float64.
        rate: q in (0, 1].
    """

    noise: Array
    rate: Array

    def tails(self, losses: Edges) -> Tails:
        noise, q = column(self.noise), column(self.rate)
        loss = xp.maximum(losses, 0.0)
        log_r = np.log(4.0) + log1p(-q) - xp.log(q) - 1.0 / noise**2 - loss + xp.log(-xp.expm1(-loss))
        r = xp.exp(log_r)
        x = noise**2 * (loss + log1p(0.5 * r / (1.0 + xp.sqrt(1.0 + r)))) + 1.5
        z = x / noise
        base, one, two = normal_tails(z), normal_tails((x - 1.0) / noise), normal_tails((x - 2.0) / noise)
        mixed = [(1.0 - q) * side + q * moved for by in (two, one) for side, moved in zip(base, by, strict=True)]
        larger = xp.minimum(xp.maximum(xp.abs(z), xp.abs((x - 2.0) / noise)), REACH + 2.0)
        return Tails(*mixed, error=UNIT * (40.0 + 8.0 * larger**2 + 4.0 * NOISE_UNITS * (1.0 + larger) / noise))

    def survey(self) -> Survey:
        noise, q = column(self.noise), column(self.rate)
        by = lambda shift: mixed_loss((shift * x - 0.5 * shift**2) / noise**2, q, 1.0 - q)  # noqa: E731
        x = xp.concatenate([Z * noise, 2.0 + Z * noise], -1)
        return Survey(by(2.0) - by(1.0), xp.concatenate([log1p(-q) + LOG_WEIGHT, xp.log(q) + LOG_WEIGHT], -1))

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], which is convex in the pair."""
        q = self.rate
        return xp.logaddexp(log1p(-q), xp.log(q) + 0.5 * order * (order - 1.0) / self.noise**2)

    def loss_error(self) -> PerSetting:
        """That of the outcome, of which the loss rises by at most 2 / s^2."""
        reach = REACH * self.noise + 3.5
        return UNIT * (32.0 + 32.0 * reach / self.noise**2 - 16.0 * xp.log(self.rate))
