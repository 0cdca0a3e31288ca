"""Rényi curves of mechanisms with discrete losses, and of guarantees that state one.

All are rounded up.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import logsumexp
from jaxacct._numerics.host import floats, hosted, module
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.losses.renyi.closed import pure_divergence
from jaxacct.losses.renyi.gaussian import gaussian_curve
from jaxacct.losses.renyi.tails import log_power_excess
from jaxacct.mechanisms.approximate import ApproximateDP, PureDP
from jaxacct.mechanisms.concentrated import RenyiDP, ZeroConcentratedDP
from jaxacct.mechanisms.discrete_gaussian import DiscreteGaussian
from jaxacct.mechanisms.discrete_laplace import DiscreteLaplace
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.gdp import GDP
from jaxacct.mechanisms.parameters import positive, whole_number
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
    xp, categories, epsilon = floats(whole_number(categories, 2.0), mechanism.epsilon)
    epsilon = xp.where(xp.isnan(categories), np.nan, epsilon)
    return _nothing_at_zero(pure_divergence(epsilon, order, categories), epsilon, order)


def approximate_curve(mechanism: ApproximateDP, order: ArrayLike, relation: str) -> Array:
    """That of ``epsilon``-DP, or inf if ``delta`` is not 0: a loss may be infinite."""
    pure = _nothing_at_zero(pure_divergence(mechanism.epsilon, order), mechanism.epsilon, order)
    xp, pure, delta = floats(pure, mechanism.delta)
    return xp.where(delta == 0, pure, np.inf)


def _nothing_at_zero(value: Array, epsilon: Any, order: Any) -> Array:
    xp, value, epsilon, order = floats(value, epsilon, order)
    return xp.where((order > 1) & (epsilon == 0), 0.0, value)


def gdp_curve(mechanism: GDP, order: ArrayLike, relation: str) -> Array:
    """order * mu^2 / 2: Rényi divergences keep the order of trade-off curves."""
    return gaussian_curve(Gaussian(1.0, mechanism.mu), order, relation)


@hosted
def _proportional(rho: Any, order: Any) -> Array:
    xp, rho, order = floats(rho, order)
    good = (rho > 0) & (rho < np.inf) & (order > 1) & (order < np.inf)
    return xp.where(good, rho * order * _UP, np.inf)


def concentrated_curve(mechanism: ZeroConcentratedDP, order: ArrayLike, relation: str) -> Array:
    """order * rho, by definition."""
    return _proportional(mechanism.rho, order)


def renyi_dp_curve(mechanism: RenyiDP, order: ArrayLike, relation: str) -> Array:
    """``epsilon`` up to the mechanism's order (divergences increase in the order); above it nothing is known."""
    xp, a, known, value = floats(order, mechanism.order, mechanism.epsilon)
    return xp.where((a > 1) & (a <= known) & (known < np.inf) & (value >= 0), value, np.inf)


def discrete_gaussian_curve(mechanism: DiscreteGaussian, order: ArrayLike, relation: str) -> Array:
    """order sensitivity^2 / (2 sigma^2), what the Gaussian has: a bound (Canonne, Kamath, Steinke 2020, on its zCDP).

    Exact where order * sensitivity is whole.
    """
    ratio = whole_number(mechanism.sensitivity, 1.0) / positive(mechanism.sigma)
    return _proportional(0.5 * ratio**2 * _UP, order)


@hosted
def _discrete_laplace(scale: Any, gap: Any, order: Any) -> Array:
    xp, scale, gap, a = floats(scale, gap, order)
    scale, gap, a = xp.broadcast_arrays(scale, gap, a)
    good = ~xp.isnan(gap / scale) & (a > 1) & (a < np.inf)
    c, gap, a = xp.where(good, 1.0 / scale, 1.0), xp.where(good, gap, 1.0), xp.where(good, a, 2.0)
    rest = xp.log(-xp.expm1(-c))
    low, high = -a * gap * c - rest, (a - 1.0) * gap * c - rest
    ratio = (2.0 * a - 1.0) * c
    middle = -a * gap * c + ratio * (gap - 1.0)
    middle = middle + xp.log(-xp.expm1(-ratio * (gap - 1.0))) - xp.log(-xp.expm1(-ratio))
    log_moment = logsumexp(xp.stack([low, middle, high], -1)) + rest - log1p(xp.exp(-c))
    margin = 2.0**-48 * (a * gap * c + xp.abs(rest) + 4.0)
    return xp.where(good, inflated((xp.maximum(log_moment, 0.0) + margin) / (a - 1.0), _ROUNDING), np.inf)


def discrete_laplace_curve(mechanism: DiscreteLaplace, order: ArrayLike, relation: str) -> Array:
    """log((1-t)/(1+t) sum_x t^(a |x - D| + (1-a) |x|)) / (a-1), t = e^(-1/scale): three geometric series.

    Where that is all rounding (losses below 1e-7), the divergence of pure privacy is less and takes its place.
    """
    scale, gap = positive(mechanism.scale), whole_number(mechanism.sensitivity, 1.0)
    exact, pure = _discrete_laplace(scale, gap, order), pure_divergence(gap / scale * _UP, order)
    return module(exact, pure).minimum(exact, pure)


@hosted
def _of_table(pair: Any, order: Any) -> Array:
    xp, order = floats(order)
    a, atoms = order[..., None], pair.atoms()
    finite = xp.isfinite(atoms.losses)
    away = inflated(xp.where(finite, xp.abs(atoms.losses) + atoms.loss_error, 0.0), 2.0**-50)
    # The excess is E_Q[f(P/Q)] with f(x) = x^a - 1 - a (x - 1) >= 0, and f(0) = a - 1.
    value = log_power_excess(xp.where(atoms.losses < 0, -away, away), a)
    value = xp.where(atoms.losses == -np.inf, xp.log(a - 1.0), value)
    has_q = atoms.q > 0
    terms = xp.where(has_q, xp.log(xp.where(has_q, atoms.q, 1.0)) + value, -np.inf)
    margin = (_ROUNDING + atoms.error + 2.0**-48 * a * away.max(-1, keepdims=True)).max(-1)
    total = inflated(xp.logaddexp(0.0, logsumexp(terms) + margin) / (order - 1.0), _ROUNDING)
    infinite = xp.where(atoms.losses == np.inf, atoms.p, 0.0).sum(-1) > 0
    good = (order > 1) & (order < np.inf) & ~infinite & ~xp.isnan(total + atoms.p.sum(-1) + atoms.q.sum(-1))
    good &= ~xp.isnan(atoms.losses).any(-1)  # what has no size is not finite
    return xp.where(good, total, np.inf)


def table_curve(mechanism: FromTables | FromProfile, order: ArrayLike, relation: str) -> Array:
    """log(sum p^a q^(1-a)) / (a - 1) of the table, from non-negative terms; inf if a loss may be infinite."""
    names = ["remove", "add"] if relation == "add_or_remove" and isinstance(mechanism, FromTables) else [relation]
    found = []
    for name in names:
        ((pair, _),) = mechanism._dominating(name)
        shape, xp = np.broadcast_shapes(*settings_shapes((pair, order))), module(pair, order)
        found.append(_of_table(flattened(pair, shape, xp), flattened(order, shape, xp)).reshape(shape))
    return functools.reduce(module(found).maximum, found)
