"""The exact zCDP constants of pure privacy, randomized response and Laplace noise, and amplified pure privacy.

The rho of zCDP is the supremum over orders of D_order / order, which for these is the limit at order 1, the
Kullback-Leibler divergence: docs/proofs/families.md, theorem 1. eps-DP is eps tanh(eps / 2)-zCDP, and no better
constant holds; (epsilon, delta)-DP is delta-approximate eps tanh(eps / 2)-zCDP.
"""

from __future__ import annotations

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.log1p import log1p

UP = 1 + 2.0**-44
"""Above the errors of exp, expm1, log1p and tanh together, far inside an account's slack."""


def rho_of_pure(epsilon: Array) -> Array:
    """The least rho of epsilon-DP, epsilon tanh(epsilon / 2)."""
    return epsilon * xp.tanh(epsilon / 2) * UP


def rho_of_response(epsilon: Array, categories: Array) -> Array:
    """eps (e^eps - 1) / (e^eps + k - 1), with k of at most 2 + 2 exp(eps / 2)."""
    counted = xp.minimum(categories, 2 + 2 * xp.exp(xp.minimum(epsilon / 2, 300.0)))
    # Over e^eps: eps (1 - e^-eps) / (1 + (k - 1) e^-eps), which no epsilon overflows.
    return epsilon * -xp.expm1(-epsilon) / (1 + (counted - 1) * xp.exp(-epsilon)) * UP


def rho_of_laplace(epsilon: Array) -> Array:
    """epsilon + exp(-epsilon) - 1; its series epsilon^2 / 2 (1 - epsilon / 3 (1 - ...)) where that cancels."""
    small = xp.minimum(epsilon, 0.5)
    series = xp.ones_like(small)
    for k in range(18, 2, -1):
        series = 1 - small / k * series
    return xp.where(epsilon < 0.5, small * small / 2 * series, epsilon + xp.expm1(-epsilon)) * UP


def amplified(epsilon: Array, rate: Array) -> Array:
    """log(1 + rate (e^epsilon - 1)), the larger of both directions' largest losses; at most epsilon."""
    small = log1p(rate * xp.expm1(xp.minimum(epsilon, 700.0)))
    # What cancels here is at most of size epsilon, hence the absolute margin.
    large = epsilon + xp.log(rate + (1 - rate) * xp.exp(-epsilon)) + 2.0**-40 * (1 + epsilon)
    amplified = xp.where(epsilon <= 700, small, xp.maximum(large, 0.0))
    return xp.minimum(amplified * UP, epsilon) + 0 * (rate + epsilon)
