"""Rényi curves of mechanisms with discrete losses, and of guarantees that state one.

All are rounded up.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct._log1p import log1p
from jaxacct._rounding import inflated
from jaxacct.losses.renyi.closed import pure_divergence
from jaxacct.losses.renyi.gaussian import gaussian_curve
from jaxacct.losses.renyi.tails import log_power_excess
from jaxacct.mechanisms._row import flattened, settings_shapes
from jaxacct.mechanisms._values import positive, whole_number
from jaxacct.mechanisms.approximate import ApproximateDP, PureDP
from jaxacct.mechanisms.concentrated import RenyiDP, ZeroConcentratedDP
from jaxacct.mechanisms.discrete_gaussian import DiscreteGaussian
from jaxacct.mechanisms.discrete_laplace import DiscreteLaplace
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.gdp import GDP
from jaxacct.mechanisms.profile import FromProfile
from jaxacct.mechanisms.randomized_response import RandomizedResponse
from jaxacct.mechanisms.selection import PermuteAndFlip
from jaxacct.mechanisms.tables import FromTables

__all__ = [
    "approximate_curve",
    "concentrated_curve",
    "discrete_gaussian_curve",
    "discrete_laplace_curve",
    "gdp_curve",
    "renyi_dp_curve",
    "response_curve",
    "table_curve",
]

_ROUNDING = 1e-12
_UP = 1.0 + 2.0**-49


def response_curve(mechanism: RandomizedResponse | PureDP | PermuteAndFlip, order: ArrayLike, relation: str) -> Array:
    """log(1 + e^(a eps) (1 - e^(-(a-1) eps)) (1 - e^(-a eps)) / (e^eps + k - 1)) / (a - 1), from the three atoms.

    For k = 2 it bounds every eps-DP mechanism, permute-and-flip among them.
    """
    categories = mechanism.categories if isinstance(mechanism, RandomizedResponse) else 2.0
    categories = whole_number(categories, 2.0)
    epsilon = jnp.where(jnp.isnan(categories), jnp.nan, mechanism.epsilon)
    return _nothing_at_zero(pure_divergence(epsilon, order, categories), epsilon, order)


def approximate_curve(mechanism: ApproximateDP, order: ArrayLike, relation: str) -> Array:
    """That of ``epsilon``-DP, or inf if ``delta`` is not 0: a loss may be infinite."""
    pure = _nothing_at_zero(pure_divergence(mechanism.epsilon, order), mechanism.epsilon, order)
    return jnp.where(jnp.asarray(mechanism.delta, jnp.float64) == 0, pure, jnp.inf)


def _nothing_at_zero(value: Array, epsilon: ArrayLike, order: ArrayLike) -> Array:
    good = (jnp.asarray(order, jnp.float64) > 1) & (jnp.asarray(epsilon, jnp.float64) == 0)
    return jnp.where(good, 0.0, value)


def gdp_curve(mechanism: GDP, order: ArrayLike, relation: str) -> Array:
    """order * mu^2 / 2: Rényi divergences keep the order of trade-off curves."""
    return gaussian_curve(Gaussian(1.0, mechanism.mu), order, relation)


@jax.jit
def _proportional(rho: Array, order: Array) -> Array:
    good = (rho > 0) & (rho < jnp.inf) & (order > 1) & (order < jnp.inf)
    return jnp.where(good, rho * order * _UP, jnp.inf)


def concentrated_curve(mechanism: ZeroConcentratedDP, order: ArrayLike, relation: str) -> Array:
    """order * rho, by definition."""
    return _proportional(jnp.asarray(mechanism.rho, jnp.float64), jnp.asarray(order, jnp.float64))


def renyi_dp_curve(mechanism: RenyiDP, order: ArrayLike, relation: str) -> Array:
    """``epsilon`` up to the mechanism's order (divergences increase in the order); above it nothing is known."""
    a, known = jnp.asarray(order, jnp.float64), jnp.asarray(mechanism.order, jnp.float64)
    value = jnp.asarray(mechanism.epsilon, jnp.float64)
    return jnp.where((a > 1) & (a <= known) & (known < jnp.inf) & (value >= 0), value, jnp.inf)


def discrete_gaussian_curve(mechanism: DiscreteGaussian, order: ArrayLike, relation: str) -> Array:
    """order sensitivity^2 / (2 sigma^2), what the Gaussian has: a bound (Canonne, Kamath, Steinke 2020, on its zCDP).

    Exact where order * sensitivity is whole.
    """
    ratio = jnp.asarray(whole_number(mechanism.sensitivity, 1.0)) / jnp.asarray(positive(mechanism.sigma))
    return _proportional(0.5 * ratio**2 * _UP, jnp.asarray(order, jnp.float64))


@jax.jit
def _discrete_laplace(scale: Array, gap: Array, a: Array) -> Array:
    good = ~jnp.isnan(gap / scale) & (a > 1) & (a < jnp.inf)
    c, gap, a = jnp.where(good, 1.0 / scale, 1.0), jnp.where(good, gap, 1.0), jnp.where(good, a, 2.0)
    rest = jnp.log(-jnp.expm1(-c))
    low, high = -a * gap * c - rest, (a - 1.0) * gap * c - rest
    ratio = (2.0 * a - 1.0) * c
    middle = -a * gap * c + ratio * (gap - 1.0)
    middle = middle + jnp.log(-jnp.expm1(-ratio * (gap - 1.0))) - jnp.log(-jnp.expm1(-ratio))
    log_moment = jax.nn.logsumexp(jnp.stack([low, middle, high]), axis=0) + rest - log1p(jnp.exp(-c))
    margin = 2.0**-48 * (a * gap * c + jnp.abs(rest) + 4.0)
    return jnp.where(good, inflated((jnp.maximum(log_moment, 0.0) + margin) / (a - 1.0), _ROUNDING), jnp.inf)


def discrete_laplace_curve(mechanism: DiscreteLaplace, order: ArrayLike, relation: str) -> Array:
    """log((1-t)/(1+t) sum_x t^(a |x - D| + (1-a) |x|)) / (a-1), t = e^(-1/scale): three geometric series.

    Where that is all rounding (losses below 1e-7), the divergence of pure privacy is less and takes its place.
    """
    values = (positive(mechanism.scale), whole_number(mechanism.sensitivity, 1.0), order)
    scale, gap, a = (jnp.asarray(x, jnp.float64) for x in values)
    exact = _discrete_laplace(*jnp.broadcast_arrays(scale, gap, a))
    return jnp.minimum(exact, pure_divergence(gap / scale * _UP, a))


@jax.jit
def _of_table(pair: Any, order: Array) -> Array:
    def single(pair: Any, a: Array) -> Array:
        atoms = pair.atoms()
        finite = jnp.isfinite(atoms.losses)
        away = inflated(jnp.where(finite, jnp.abs(atoms.losses) + atoms.loss_error, 0.0), 2.0**-50)
        # The excess is E_Q[f(P/Q)] with f(x) = x^a - 1 - a (x - 1) >= 0, and f(0) = a - 1.
        value = log_power_excess(jnp.where(atoms.losses < 0, -away, away), a)
        value = jnp.where(atoms.losses == -jnp.inf, jnp.log(a - 1.0), value)
        has_q = atoms.q > 0
        terms = jnp.where(has_q, jnp.log(jnp.where(has_q, atoms.q, 1.0)) + value, -jnp.inf)
        margin = _ROUNDING + jnp.max(atoms.error) + 2.0**-48 * a * jnp.max(away)
        total = inflated(jnp.logaddexp(0.0, jax.nn.logsumexp(terms) + margin) / (a - 1.0), _ROUNDING)
        infinite = jnp.where(atoms.losses == jnp.inf, atoms.p, 0.0).sum() > 0
        good = (a > 1) & (a < jnp.inf) & ~infinite & ~jnp.isnan(total + atoms.p.sum() + atoms.q.sum())
        good &= ~jnp.isnan(atoms.losses).any()  # what has no size is not finite
        return jnp.where(good, total, jnp.inf)

    return jax.vmap(single)(pair, order)


def table_curve(mechanism: FromTables | FromProfile, order: ArrayLike, relation: str) -> Array:
    """log(sum p^a q^(1-a)) / (a - 1) of the table, from non-negative terms; inf if a loss may be infinite."""
    names = ["remove", "add"] if relation == "add_or_remove" and isinstance(mechanism, FromTables) else [relation]
    found = []
    for name in names:
        ((pair, _),) = mechanism._dominating(name)
        shape = jnp.broadcast_shapes(*settings_shapes((pair, order)))
        found.append(_of_table(flattened(pair, shape, jnp), flattened(order, shape, jnp)).reshape(shape))
    return jnp.max(jnp.stack(found), 0)
