"""The pair of the (Poisson-sampled) Gaussian mechanism."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import erfc

from jaxacct._log1p import log1p
from jaxacct._rounding import UNIT, inflated
from jaxacct.losses.gdp_curve import log_delta_bounds
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism
from jaxacct.mechanisms._sampled_loss import inner_loss, mixed_loss

__all__ = ["GaussianPair", "normal_tails"]

_POINTS = 256  # survey atoms a component: spacing 0.3 sigma, where the trapezoid rule has long converged
_REACH = 37.5  # standard deviations up to which a normal tail is a normal float64


@mechanism
class GaussianPair:
    """P = (1 - rate) N(0, s^2) + rate N(1, s^2) against Q = N(0, s^2), or the reverse.

    Attributes:
        noise: s, the noise multiplier sigma / sensitivity; scalar float64.
        rate: sampling rate; 1 gives the Gaussian mechanism itself.
        reverse: 0 is the direction `remove` (P is the mixture), 1 is `add`. A leaf, so that both directions of a
            query run in one batch of one compiled program.
    """

    noise: Any
    rate: Any
    reverse: Any

    def _outcome(self, losses: Array) -> Array:
        """The outcome x at which log(1 - q + q exp((x - 1/2) / s^2)) equals ``losses`` (-inf below its range)."""
        return 0.5 + self.noise**2 * inner_loss(losses, self.rate)

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        add = self.reverse > 0.5
        x = self._outcome(jnp.where(add, -losses, losses))
        z0, z1 = x / self.noise, (x - 1.0) / self.noise
        base_above, base_below = normal_tails(z0)
        shift_above, shift_below = normal_tails(z1)
        q = self.rate
        mix_above = (1.0 - q) * base_above + q * shift_above
        mix_below = (1.0 - q) * base_below + q * shift_below
        # erfc was measured at 1.7 u (1 + 2 z^2 / 2); its argument's own rounding adds 2 u z^2. Doubled.
        larger = jnp.minimum(jnp.maximum(jnp.abs(z0), jnp.abs(z1)), _REACH + 2.0)
        error = UNIT * (24.0 + 8.0 * larger**2)
        choose = lambda reversed_, straight: jnp.where(add, reversed_, straight)  # noqa: E731
        return Tails(  # reversed, L > l means x < x(l)
            choose(base_below, mix_above),
            choose(base_above, mix_below),
            choose(mix_below, base_above),
            choose(mix_above, base_below),
            error,
        )

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        z = jnp.linspace(-_REACH, _REACH, _POINTS)
        log_weight = -0.5 * z**2 - jax.nn.logsumexp(-0.5 * z**2)
        add = self.reverse > 0.5
        outcomes = jnp.concatenate([z * self.noise, 1.0 + z * self.noise])
        mixture = jnp.concatenate([log1p(-self.rate) + log_weight, jnp.log(self.rate) + log_weight])
        base = jnp.concatenate([log_weight, jnp.full_like(log_weight, -jnp.inf)])
        loss = self._loss(outcomes)
        return Survey(jnp.where(add, -loss, loss), jnp.where(add, base, mixture))

    def _loss(self, x: Array) -> Array:
        """log(1 - q + q exp((x - 1/2) / s^2))."""
        return mixed_loss((x - 0.5) / self.noise**2, self.rate)

    def max_loss(self) -> Array:
        """log(1 / (1 - q)) in the direction `add`, where P is the base; none in the other."""
        return jnp.where(self.reverse > 0.5, -log1p(-self.rate), jnp.inf)

    def gaussian_mu(self) -> Array:
        """mu-GDP dominates the pair at every order: a hockey stick is convex in the pair, and Q against Q has none."""
        return 1.0 / self.noise

    def log_hockey_stick(self, epsilon: Array) -> tuple[Array, Array]:
        """``(lower, upper)`` of log H(e^eps) for eps >= 0, from the curve G of the Gaussian without sampling.

        With g = e^eps (Balle, Barthe, Gaboardi 2018, Theorem 2, and the same computation with P and Q swapped),

            remove:  H(g) = q G(1 + (g - 1) / q),
            add:     H(g) = D G(g q / D),  D = 1 - g (1 - q) = q (1 - x),  0 where D <= 0.

        Both arguments are formed from sums of numbers of one sign, so they are good to a few units; G is
        decreasing, so it is read that much to either side.
        """
        units = 16.0 * UNIT
        mu, add, q = 1.0 / self.noise, self.reverse > 0.5, self.rate
        ratio = jnp.expm1(jnp.minimum(epsilon, 30.0)) / q
        beyond = epsilon - jnp.log(q) + log1p(-(1.0 - q) * jnp.exp(-jnp.maximum(epsilon, 30.0)))
        inner = jnp.where(epsilon > 30.0, beyond, log1p(ratio))
        x = (1.0 - q) * jnp.expm1(jnp.minimum(epsilon, 700.0)) / q

        def side(sign: float) -> Array:
            moved = inflated(x, sign * units)
            left = log1p(-jnp.minimum(moved, 1.0 - UNIT))
            at = inflated(jnp.where(add, epsilon - left, inner), sign * units)
            curve = log_delta_bounds(mu, at)[0 if sign > 0 else 1]
            value = curve + jnp.log(q) + jnp.where(add, left, 0.0)
            value = value - sign * units * (1.0 + jnp.abs(jnp.log(q)) + jnp.where(add, jnp.abs(left), 0.0))
            return jnp.where(add & (moved >= 1.0), -jnp.inf, value)

        return side(1.0), side(-1.0)

    def infinity(self) -> Array:
        """No loss is infinite."""
        return jnp.zeros(())

    def anchors(self) -> tuple[Array, Array]:
        """The loss of the outcome 0, where a rarely sampled record's spike lies; no atoms, so no period."""
        loss = self._loss(jnp.zeros(()))
        return jnp.where(self.reverse > 0.5, -loss, loss), jnp.zeros(())

    def loss_error(self) -> Array:
        """Backward error of ``_outcome``: x is off by a few u |x|, and dL/dx <= 1 / s^2."""
        reach = _REACH * self.noise + 1.5
        return UNIT * (16.0 + 8.0 * reach / self.noise**2)


def normal_tails(z: Array) -> tuple[Array, Array]:
    """P(N(0,1) > z) and P(N(0,1) <= z), the smaller of the two with full relative accuracy."""
    small = 0.5 * erfc(jnp.abs(z) * (0.5**0.5))
    large = 1.0 - small
    return jnp.where(z > 0, small, large), jnp.where(z > 0, large, small)
