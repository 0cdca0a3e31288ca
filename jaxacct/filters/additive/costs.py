"""What one run of a mechanism costs in pure and in zero-concentrated privacy, where that is a closed form.

The rho of zCDP is the supremum over orders of D_order / order. For three pairs that supremum is proven to be the limit
at order 1, the Kullback-Leibler divergence. Put t = order - 1/2 and s = t^2, so order (order - 1) = s - 1/4 and

    D_order / order = (F(s) - F(1/4)) / (s - 1/4),      F = log of the moment below, as a function of s,

=============================  =============================================================
pair                           exp(F(s)), up to a constant factor
=============================  =============================================================
Laplace                        cosh(eps sqrt(s)) + sinh(eps sqrt(s)) / (2 sqrt(s))
randomized response, k = 2     cosh(eps sqrt(s))
k - 2 <= 2 exp(eps / 2)        2 exp(eps / 2) cosh(eps sqrt(s)) + k - 2
=============================  =============================================================

Each is entire in s, of order 1/2, with real negative zeros only (s = -u^2 makes it cos(eps u) + sin(eps u) / (2u),
whose zeros are the eigenvalues of a Sturm-Liouville problem, or 2 exp(eps / 2) cos(eps u) + k - 2). So F is a constant
plus a sum of log(1 + s / z_i) with z_i > 0: concave, and its chord's slope falls from F'(1/4) on. That gives

    Laplace: eps + exp(-eps) - 1;      randomized response: eps (e^eps - 1) / (e^eps + k - 1).

Randomized response on two categories dominates every eps-DP pair (Kairouz, Oh, Viswanath 2015), so eps-DP is
eps tanh(eps / 2)-zCDP and no better constant holds; Bun, Steinke 2016 (Proposition 3.3) have eps^2 / 2, which is
larger. Response on more categories is dominated by that on fewer, k real, so k stops counting at 2 + 2 exp(eps / 2).
The same way (epsilon, delta)-DP is delta-approximate eps tanh(eps / 2)-zCDP.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from jaxacct._numerics.host import at_hand, floats, module
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import inflated
from jaxacct.filters.additive.costs_of_plds import approximate_of_law, concentrated_of_law, pure_of_law
from jaxacct.filters.base import is_scalar_query
from jaxacct.losses.curves.pld import PLD
from jaxacct.mechanisms import (
    GDP,
    ApproximateDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    ZeroConcentratedDP,
)
from jaxacct.mechanisms.parameters import nonnegative, positive, whole_number, whole_steps

__all__ = ["approximate_cost", "concentrated_cost", "is_pure", "pure_cost"]

_UP = 1 + 2.0**-44  # above the errors of exp, expm1, log1p and tanh together, far inside a ledger's slack
_EPSILON_DP = (PureDP, RandomizedResponse, PermuteAndFlip, Exponential)
_WITH_SCALE = (Laplace, DiscreteLaplace)
_PURE = (*_EPSILON_DP, *_WITH_SCALE)


def _array(value: Any) -> Array:
    return floats(value)[1]


def _total(query: Composed, cost: Any) -> Any:
    """The sum over the parts of ``cost``, an array or a pair of them; NaN where steps are no number of steps."""
    parts = [
        jax.tree.map(lambda one, n=steps: one * _array(whole_steps(n)), cost(part)) for part, steps in query.parts()
    ]
    return jax.tree.map(lambda *ones: inflated(sum(ones[1:], ones[0]), len(ones) * 2.0**-51), *parts)


def _refuse(query: Any, wanted: str, instead: str = "") -> ValueError:
    return ValueError(f"query must be {wanted}, got {type(query).__name__}{instead}")


def _rate(query: PoissonSampled) -> Array:
    xp, rate = floats(query.rate)
    return xp.where((rate >= 0) & (rate <= 1), rate, np.nan)


def _amplified(epsilon: Array, rate: Array) -> Array:
    """log(1 + rate (e^epsilon - 1)), the larger of both directions' largest losses; at most epsilon."""
    xp = module(epsilon, rate)
    small = log1p(rate * xp.expm1(xp.minimum(epsilon, 700.0)))
    # What cancels here is at most of size epsilon, hence the absolute margin.
    large = epsilon + xp.log(rate + (1 - rate) * xp.exp(-epsilon)) + 2.0**-40 * (1 + epsilon)
    amplified = xp.where(epsilon <= 700, small, xp.maximum(large, 0.0))
    return xp.minimum(amplified * _UP, epsilon) + 0 * (rate + epsilon)


def is_pure(query: Any) -> bool:
    """Whether `pure_cost` has a closed form for ``query``, which is a mechanism."""
    if isinstance(query, Composed):
        return all(is_pure(part) for part in query.mechanisms)
    return isinstance(query, _PURE) or (isinstance(query, PoissonSampled) and is_pure(query.mechanism))


@jax.enable_x64(True)
@np.errstate(all="ignore")
def pure_cost(query: Any) -> Array:
    """The largest privacy loss of ``query``, rounded up; float64, NaN or infinite where there is none.

    Raises:
        ValueError: a mechanism that has no closed form, or no pure privacy at all.
    """
    if is_scalar_query(query):
        return _array(query)
    if isinstance(query, PLD):
        return pure_of_law(query)
    if isinstance(query, _EPSILON_DP):
        return _array(nonnegative(query.epsilon))
    if isinstance(query, _WITH_SCALE):
        return inflated(_array(positive(query.sensitivity)) / _array(positive(query.scale)), 2.0**-51)
    if isinstance(query, PoissonSampled):
        return _amplified(pure_cost(query.mechanism), _rate(query))
    if isinstance(query, Composed):
        return _total(query, pure_cost)
    raise _refuse(
        query,
        "a number epsilon, a PLD or a mechanism of pure privacy (PureDP, Laplace, ...)",
        ": Gaussian noise has no pure epsilon; filters.zcdp, approximate_dp, gdp_residue and renyi take both",
    )


def _of_pure(epsilon: Array) -> Array:
    return epsilon * module(epsilon).tanh(epsilon / 2) * _UP


def _of_response(epsilon: Array, categories: Array) -> Array:
    xp = module(epsilon, categories)
    counted = xp.minimum(categories, 2 + 2 * xp.exp(xp.minimum(epsilon / 2, 300.0)))
    # Over e^eps: eps (1 - e^-eps) / (1 + (k - 1) e^-eps), which no epsilon overflows.
    return epsilon * -xp.expm1(-epsilon) / (1 + (counted - 1) * xp.exp(-epsilon)) * _UP


def _of_laplace(epsilon: Array) -> Array:
    """epsilon + exp(-epsilon) - 1; its series epsilon^2 / 2 (1 - epsilon / 3 (1 - ...)) where that cancels."""
    xp = module(epsilon)
    small = xp.minimum(epsilon, 0.5)
    series = xp.ones_like(small)
    for k in range(18, 2, -1):
        series = 1 - small / k * series
    return xp.where(epsilon < 0.5, small * small / 2 * series, epsilon + xp.expm1(-epsilon)) * _UP


@jax.enable_x64(True)
@np.errstate(all="ignore")
def concentrated_cost(query: Any) -> Array:
    """The rho of ``query``, rounded up; float64, NaN or infinite where there is none. See the module's docstring.

    Raises:
        ValueError: a mechanism without a closed form, sampled Gaussians among them.
    """
    if is_scalar_query(query):
        return _array(query)
    if isinstance(query, PLD):
        return concentrated_of_law(query)
    if isinstance(query, ZeroConcentratedDP):
        return _array(positive(query.rho))
    if isinstance(query, Gaussian | DiscreteGaussian):
        sensitivity = whole_number(query.sensitivity, 1.0) if isinstance(query, DiscreteGaussian) else query.sensitivity
        return (_array(positive(sensitivity)) / _array(positive(query.sigma))) ** 2 / 2
    if isinstance(query, GDP):
        return _array(positive(query.mu)) ** 2 / 2
    if isinstance(query, Laplace):
        return _of_laplace(pure_cost(query))
    if isinstance(query, RandomizedResponse):
        return _of_response(_array(nonnegative(query.epsilon)), _array(whole_number(query.categories, 2.0)))
    if isinstance(query, Exponential):
        # Bounded range: Cesar, Rogers 2021.
        epsilon = pure_cost(query)
        return module(epsilon).minimum(epsilon * epsilon / 8, _of_pure(epsilon))
    if isinstance(query, _PURE):
        return _of_pure(pure_cost(query))
    if isinstance(query, PoissonSampled):
        if at_hand(query.rate) and np.all(np.asarray(query.rate) == 1):
            return concentrated_cost(query.mechanism)
        if is_pure(query):
            return _of_pure(pure_cost(query))
        raise ValueError(
            "query must be of a known rho, got PoissonSampled with a rate that is not the number 1 on a mechanism "
            "that is not purely private: use filters.renyi or filters.gdp_residue"
        )
    if isinstance(query, Composed):
        return _total(query, concentrated_cost)
    raise _refuse(
        query,
        "a number rho, a PLD or a mechanism of a known rho (Gaussian, PureDP, ...)",
        ": filters.approximate_dp takes ApproximateDP as well, filters.gdp_residue anything",
    )


@jax.enable_x64(True)
@np.errstate(all="ignore")
def approximate_cost(query: Any) -> tuple[Array, Array]:
    """(rho, delta) of ``query`` as delta-approximate rho-zCDP, rounded up; float64.

    Raises:
        ValueError: a mechanism without a closed form, a single number.
    """
    if isinstance(query, tuple) and len(query) == 2 and all(is_scalar_query(part) for part in query):
        return _array(query[0]), _array(query[1])
    if isinstance(query, PLD):
        return approximate_of_law(query)
    if isinstance(query, ApproximateDP):
        return _of_pure(_array(nonnegative(query.epsilon))), _array(nonnegative(query.delta, 1.0))
    if isinstance(query, PoissonSampled) and isinstance(query.mechanism, ApproximateDP):
        # (log(1 + q (e^eps - 1)), q delta)-DP: Li, Qardaji, Su 2012; Balle, Barthe, Gaboardi 2018.
        inner, rate = query.mechanism, _rate(query)
        epsilon = _amplified(_array(nonnegative(inner.epsilon)), rate)
        return _of_pure(epsilon), inflated(_array(nonnegative(inner.delta, 1.0)) * rate, 2.0**-51)
    if isinstance(query, Composed):
        return _total(query, approximate_cost)
    if is_scalar_query(query):
        raise ValueError(f"query must be a pair (rho, delta) or a mechanism, got the single number {query}")
    return concentrated_cost(query), _array(0.0)
