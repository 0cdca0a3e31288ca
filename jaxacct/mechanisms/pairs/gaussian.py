"""The pair of the (Poisson-sampled) Gaussian mechanism."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, column, erfc, logsumexp, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored, two_sides
from jaxacct.mechanisms.pairs.gaussian_curve import log_delta_bounds
from jaxacct.mechanisms.pairs.sampled_loss import (
    COMPLEMENT,
    Rated,
    Sample,
    all_records,
    inner_loss,
    log_rest,
    mixed_loss,
)
from jaxacct.mechanisms.parameters import NOISE_UNITS, RATE_UNITS
from jaxacct.mechanisms.renyi.gaussian import sampled_gaussian_divergence

_POINTS = 256  # survey atoms a component: spacing 0.3 sigma, where the trapezoid rule has long converged
REACH = 37.5
"""Standard deviations up to which a normal tail is a normal float64."""

Z = np.linspace(-REACH, REACH, _POINTS)
"""Points of a survey, in standard deviations."""

LOG_STEP = -logsumexp(-0.5 * Z**2)
"""Their distance times the density of N(0, 1) at 0."""

LOG_WEIGHT = -0.5 * Z**2 + LOG_STEP
"""Their weights under N(0, 1)."""


@mechanism
class GaussianPair(Rated, Pair):
    """P = (1 - rate) N(0, s^2) + rate N(1, s^2) against Q = N(0, s^2), or the reverse.

    Attributes:
        noise: s, the noise multiplier sigma / sensitivity, within ``NOISE_UNITS``; float64.
        rate: sampling rate, within ``RATE_UNITS``; 1 gives the Gaussian mechanism itself.
        reverse: 0 is the direction `remove` (P is the mixture), 1 is `add`. A leaf, so that both directions of a
            query run in one batch of one compiled program.
        rest: 1 - rate, within ``RATE_UNITS`` of itself; without it, of a ``rate`` that is exact.
    """

    noise: Array
    rate: Array
    reverse: Array
    rest: Array = COMPLEMENT

    def _outcome(self, losses: Array) -> Array:
        """The outcome x at which log(1 - q + q exp((x - 1/2) / s^2)) equals ``losses`` (-inf below its range)."""
        return 0.5 + column(self.noise) ** 2 * inner_loss(losses, column(self.rate), column(self.rest))

    def tails(self, losses: Edges) -> Tails:
        noise, q, add = column(self.noise), column(self.rate), column(self.reverse) > 0.5
        rest = column(self.rest)
        x = self._outcome(xp.where(add, -losses, losses))
        z0, z1 = x / noise, (x - 1.0) / noise
        (base_above, shift_above), (base_below, shift_below) = normal_tails(xp.stack([z0, z1]))
        mix_above = rest * base_above + q * shift_above
        mix_below = rest * base_below + q * shift_below
        # Of erfc, its arguments and the parameters: docs/proofs/parameters.md, lemma 4.
        larger = xp.minimum(xp.maximum(xp.abs(z0), xp.abs(z1)), REACH + 2.0)
        error = UNIT * (40.0 + 8.0 * larger**2 + 2.0 * NOISE_UNITS * (1.0 + larger) / noise)
        return mirrored(Tails(mix_above, mix_below, base_above, base_below, error), add)

    def sample(self) -> Sample:
        """What the pair is made of: the Gaussian mechanism itself, in the same direction."""
        one = xp.ones_like(self.noise)
        return Sample(GaussianPair(self.noise, one, self.reverse, 0.0 * one), self.rate, self.rest, self.reverse)

    def whole(self) -> tuple[Pair, Array]:
        """The Gaussian mechanism itself; see :class:`jaxacct.mechanisms.pairs.base.Pair`."""
        return self.sample().inner, all_records(self)

    def survey(self) -> Survey:
        noise, q, add = column(self.noise), column(self.rate), column(self.reverse) > 0.5
        rest = column(self.rest)
        loss = mixed_loss((xp.concatenate([Z * noise, 1.0 + Z * noise], -1) - 0.5) / noise**2, q, rest)
        mixture = xp.concatenate([log_rest(q, rest) + LOG_WEIGHT, xp.log(q) + LOG_WEIGHT], -1)
        base = np.concatenate([LOG_WEIGHT, np.full_like(LOG_WEIGHT, -np.inf)])
        return Survey(xp.where(add, -loss, loss), xp.where(add, base, mixture))

    def max_loss(self) -> PerSetting:
        """log(1 / (1 - q)), rounded up, in the direction `add`, where P is the base; none in the other."""
        largest = inflated(-log_rest(column(self.rate), column(self.rest))[..., 0], 32.0 * UNIT)  # shaped as in losses
        return xp.where(self.reverse > 0.5, largest, np.inf)

    def gaussian_mu(self) -> PerSetting:
        """mu-GDP dominates at every epsilon: a hockey stick is convex in the pair, and Q against Q has none."""
        return inflated(1.0 / self.noise, (NOISE_UNITS + 4.0) * UNIT)

    def log_moment(self, order: PerSetting) -> PerSetting:
        """That of `remove`, which has the larger one."""
        rate = xp.minimum(inflated(self.rate, RATE_UNITS * UNIT), 1.0)
        return (order - 1.0) * sampled_gaussian_divergence(self.gaussian_mu(), rate, order, "remove")

    def log_hockey_stick(self, epsilon: Array, upper: bool) -> Array:
        """A bound of log H(e^eps) for eps >= 0, shape ``(...)``, from the curve G of the Gaussian without sampling.

        With g = e^eps it is q G(1 + (g - 1) / q) for `remove` (Balle, Barthe, Gaboardi 2018, Theorem 2), and for `add`
        D G(g q / D), D = q (1 - x), x = (1 - q) (g - 1) / q, or 0 where D <= 0: docs/proofs/parameters.md, lemma 5.
        """
        add, q, rest = self.reverse > 0.5, self.rate, self.rest
        mu = inflated(1.0 / self.noise, (NOISE_UNITS + 4.0) * UNIT * (1.0 if upper else -1.0))
        ratio = xp.expm1(xp.minimum(epsilon, 30.0)) / q
        beyond = epsilon - xp.log(q) + log1p(-rest * xp.exp(-xp.maximum(epsilon, 30.0)))
        inner = xp.where(epsilon > 30.0, beyond, log1p(ratio))
        x = rest * xp.expm1(xp.minimum(epsilon, 700.0)) / q
        units = (-32.0 if upper else 32.0) * UNIT
        moved = inflated(x, units)
        left = log1p(-xp.minimum(moved, 1.0 - UNIT))
        at = inflated(xp.where(add, epsilon - left, inner), units)
        curve = log_delta_bounds(mu, at)[int(upper)]
        value = curve + xp.log(q) + xp.where(add, left, 0.0)
        size = 1.0 + 0.25 * xp.abs(curve) + xp.abs(xp.log(q)) + xp.where(add, xp.abs(left), 0.0)
        value = value - units * xp.where(xp.isfinite(curve), size, 0.0)
        return xp.where(add & (moved >= 1.0), -np.inf, value)

    def anchor(self) -> PerSetting:
        """The loss of the outcome 0, where a rarely sampled record's spike lies; no atoms."""
        loss = xp.log1p(self.rate * xp.expm1(-0.5 / self.noise**2))
        return xp.where(self.reverse > 0.5, -loss, loss)

    def loss_error(self) -> PerSetting:
        """Backward error of ``_outcome``, where a float64 can weigh it, and of the parameters.

        docs/proofs/parameters.md, lemma 4.
        """
        reach = REACH * self.noise + 1.5
        own = xp.where(self.rest == 0.0, 0.0, 24.0)
        return UNIT * (own + (10.0 + NOISE_UNITS) * reach / self.noise**2)


def normal_tails(z: Array) -> tuple[Array, Array]:
    """P(N(0,1) > z) and P(N(0,1) <= z), the smaller of the two with full relative accuracy."""
    return two_sides(z > 0, 0.5 * erfc(xp.abs(z) * (0.5**0.5)))
