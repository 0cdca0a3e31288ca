"""The pair of the discrete Gaussian mechanism."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct._rounding import UNIT
from jaxacct.mechanisms._gaussian_pair import normal_tails
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism

__all__ = ["DiscreteGaussianPair"]

_REACH = 37.5  # standard deviations up to which a tail is a normal float64
_POINTS = 256  # survey atoms a side
_TERMS = 96  # of the direct sum
_NARROW = 10.0  # sigma up to which the direct sum is used everywhere
_STEEP = 0.8  # decay per outcome from which on it is used
_SMOOTH = 200.0  # sigma from which on a lattice need not respect the atoms
_FARTHEST = 2.0**52
# B_2m / (2m)!, m = 1..9, of the Euler-Maclaurin formula.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
_COEFFICIENTS = tuple(b / math.factorial(2 * (m + 1)) for m, b in enumerate(_BERNOULLI))


@mechanism
class DiscreteGaussianPair:
    """P = D + X against Q = X on the integers, Pr[X = x] proportional to f(x) = exp(-x^2 / (2 sigma^2)).

    The loss (x - D/2) D / sigma^2 is increasing in x. Tails are sums f(a) + f(a + 1) + ... with a >= 1. Where f falls
    by e^-0.8 or more a step, or sigma <= 10, 96 terms are the sum to the last digit. Elsewhere the Euler-Maclaurin
    formula is, with z = a / sigma and Hermite polynomials He,

        sigma sqrt(2 pi) Pr[N(0, 1) > z] + f(a) (1/2 + sum_{m <= 9} B_2m / (2m)! He_{2m-1}(z) sigma^(1 - 2m)) + R,

    |R| <= 2.01 (2 pi sigma)^-18 sigma int_z^inf |He_18| exp(-x^2/2). With |He_18(x)| <= 1.09 sqrt(18!) exp(x^2/4)
    (Cramer) for z <= 8.5, and <= x^18 beyond (its zeros lie below), |R| is at most 2 units of the sum.

    Attributes:
        sigma: > 0; scalar float64.
        sensitivity: D, a whole number >= 1; scalar float64.
    """

    sigma: Any
    sensitivity: Any

    def _sum_from(self, a: Array) -> Array:
        """f(a) + f(a + 1) + ... for whole a >= 1."""
        sigma = jnp.asarray(self.sigma)
        z = a / sigma
        first = jnp.exp(-0.5 * z**2)

        def add(carry: tuple[Array, Array, Array], _: None):
            total, term, ratio = carry
            term = term * ratio
            return (total + term, term, ratio * jnp.exp(-1.0 / sigma**2)), None

        start = (jnp.ones_like(z), jnp.ones_like(z), jnp.exp(-(a + 0.5) / sigma**2))
        (direct, _, _), _ = jax.lax.scan(add, start, None, length=_TERMS)
        steep = (a >= _STEEP * sigma**2) | (sigma <= _NARROW)

        wide = jnp.maximum(sigma, _NARROW)
        z = jnp.where(steep, 0.0, z)
        hermite = [jnp.ones_like(z), z]
        for degree in range(1, 2 * len(_COEFFICIENTS) - 1):
            hermite.append(z * hermite[-1] - degree * hermite[-2])
        edge = 0.5 + 0.0 * z
        for m, coefficient in enumerate(_COEFFICIENTS, 1):
            edge = edge + coefficient * hermite[2 * m - 1] * wide ** (1 - 2 * m)
        smooth = wide * math.sqrt(2.0 * math.pi) * normal_tails(z)[0] + first * edge
        return jnp.where(steep, first * direct, smooth)

    def _sides(self, n: Array) -> tuple[Array, Array]:
        """Pr[X > n] and Pr[X <= n] for whole n; the smaller of the two with its relative accuracy."""
        total = 1.0 + 2.0 * self._sum_from(jnp.ones(()))
        small = self._sum_from(jnp.where(n >= 0, n + 1.0, -n)) / total
        large = 1.0 - small
        return jnp.where(n >= 0, small, large), jnp.where(n >= 0, large, small)

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        sigma, gap = jnp.asarray(self.sigma), jnp.asarray(self.sensitivity)
        last = jnp.floor(losses * (sigma**2 / gap) + 0.5 * gap)
        last = jnp.clip(last, -_FARTHEST, _FARTHEST)
        p_above, p_below = self._sides(last - gap)
        q_above, q_below = self._sides(last)
        # As in GaussianPair for the exponents; products of ratios in the direct sum add up to 1e3 units.
        far = jnp.minimum((jnp.abs(last) + gap + 1.0) / sigma, _REACH + 2.0)
        return Tails(p_above, p_below, q_above, q_below, UNIT * (1024.0 + 8.0 * far**2))

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`: every integer, or every few of them."""
        sigma, gap = jnp.asarray(self.sigma), jnp.asarray(self.sensitivity)
        stride = jnp.maximum(jnp.ceil(_REACH * sigma / _POINTS), 1.0)
        away = jnp.asarray(np.arange(-_POINTS, _POINTS + 1)) * stride
        log_weight = -0.5 * (away / sigma) ** 2
        return Survey((away + 0.5 * gap) * gap / sigma**2, log_weight - jax.nn.logsumexp(log_weight))

    def max_loss(self) -> Array:
        """None."""
        return jnp.full_like(jnp.asarray(self.sigma), jnp.inf)

    def loss_error(self) -> Array:
        """As in ``GaussianPair``, with the noise multiplier sigma / sensitivity."""
        noise = jnp.asarray(self.sigma) / jnp.asarray(self.sensitivity)
        return UNIT * (16.0 + 8.0 * (_REACH * noise + 1.5) / noise**2)

    def infinity(self) -> Array:
        """None: all integers are support."""
        return 0.0 * jnp.asarray(self.sigma)

    def anchors(self) -> tuple[Array, Array]:
        """P's mode, and the distance of neighbouring atoms unless they are dense."""
        sigma, gap = jnp.asarray(self.sigma), jnp.asarray(self.sensitivity)
        return 0.5 * (gap / sigma) ** 2, jnp.where(sigma < _SMOOTH, gap / sigma**2, 0.0)
