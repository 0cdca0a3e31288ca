"""Rényi curves that are closed formulas: Laplace, bounded range, pure privacy.

Each is log(1 + excess) / (order - 1) with the excess formed from positive terms only, so that small curves keep their
digits, and rounded up by 1e-12 relative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.host import floats, hosted, module
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import inflated
from jaxacct.mechanisms.laplace import Laplace
from jaxacct.mechanisms.selection import Exponential

__all__ = ["bounded_range_curve", "laplace_curve", "pure_divergence"]

_ROUNDING = 1e-12
_TINY = 1e-300  # what is smaller may have underflowed, and 0 would say that nothing is released
_SERIES = 18  # terms of e^x - 1 - x for abs(x) < 1


def _log_rest(x: Array) -> Array:
    """log(e^x - 1 - x); at 0 that of 1e-150."""
    xp = module(x)
    small = xp.abs(x) < 1.0
    v = xp.where(small, x, 0.0)
    series = xp.ones_like(v)
    for k in range(_SERIES, 2, -1):
        series = 1.0 + v / k * series
    near = 2.0 * xp.log(xp.where(small, xp.maximum(xp.abs(x), 1e-150), 1.0)) - xp.log(2.0) + xp.log(series)
    y = xp.where(small, 1.0, x)
    rest = xp.log(xp.expm1(xp.minimum(y, 30.0)) - xp.minimum(y, 30.0))
    far = xp.where(y > 30.0, y + log1p(-(1.0 + y) * xp.exp(-xp.maximum(y, 30.0))), rest)
    return xp.where(small, near, far)


def _from_excess(log_excess: Array, order: Array, size: Array) -> Array:
    """log(1 + e^log_excess) / (order - 1), rounded up; ``size`` is the largest exponent that was rounded."""
    margin = _ROUNDING + 2.0**-49 * size
    return inflated(module(log_excess, size).logaddexp(0.0, log_excess + margin) / (order - 1.0), _ROUNDING)


def _guarded(value: Array, parameter: Array, order: Array) -> Array:
    xp = module(value, parameter, order)
    good = (parameter > 0) & (parameter < np.inf) & (order > 1) & (order < np.inf) & ~xp.isnan(value)
    return xp.where(good, xp.maximum(value, _TINY), np.inf)


@hosted
def _laplace(scale: Any, sensitivity: Any, order: Any) -> Array:
    xp, a, scale, sensitivity = floats(order, scale, sensitivity)
    eps = inflated(xp.where((scale > 0) & (sensitivity > 0), sensitivity / scale, np.nan), 2.0**-50)
    # a e^((a-1) eps) + (a-1) e^(-a eps) - (2a - 1): the linear terms of both exponentials cancel exactly.
    up = xp.log(a) + _log_rest((a - 1.0) * eps)
    down = xp.log(a - 1.0) + _log_rest(-a * eps)
    value = _from_excess(xp.logaddexp(up, down) - xp.log(2.0 * a - 1.0), a, a * eps)
    return _guarded(xp.minimum(value, eps), eps, a)


def laplace_curve(mechanism: Laplace, order: ArrayLike, relation: str) -> Array:
    """log(a e^((a-1) eps) / (2a-1) + (a-1) e^(-a eps) / (2a-1)) / (a-1) (Mironov 2017, Proposition 6)."""
    return _laplace(mechanism.scale, mechanism.sensitivity, order)


@hosted
def pure_divergence(epsilon: Any, order: Any, categories: Any = 2.0) -> Array:
    """The divergence of randomized response; on one bit it is the largest of all ``epsilon``-DP pairs.

    log((e^(a eps) + e^((1-a) eps)) / (1 + e^eps)) / (a - 1) (Mironov 2017, Proposition 5); as a pair it dominates them
    all (Kairouz, Oh, Viswanath 2015). The excess is e^(a eps) (1 - e^(-(a-1) eps)) (1 - e^(-a eps)) / (1 + e^eps),
    with k - 1 + e^eps below for k categories.
    """
    xp, a, eps, categories = floats(order, epsilon, categories)
    others = xp.log(categories - 1.0)
    log_excess = a * eps + xp.log(-xp.expm1(-(a - 1.0) * eps)) + xp.log(-xp.expm1(-a * eps)) - xp.logaddexp(others, eps)
    value = _from_excess(log_excess, a, a * eps)
    return _guarded(xp.minimum(value, eps), eps, a)


@hosted
def _bounded_range(epsilon: Any, order: Any) -> Array:
    xp, a, eps = floats(order, epsilon)
    # T = e^t = (a-1)/a e^eps (1 - e^(-a eps)) / (1 - e^(-(a-1) eps)) makes A largest.
    t = xp.clip(eps + _log_mean(a * eps) - _log_mean((a - 1.0) * eps), 0.0, eps)
    # p e^((a-1) t) + (1-p) e^(-(a-1) (eps-t)) with p e^-t + (1-p) e^(eps-t) = 1, as a mean of f(x) = x^a - 1 - a (x-1)
    # over Q: only positive terms. Q = (p e^-t, 1 - p e^-t), x = e^t and e^(t - eps).
    scale = xp.log(-xp.expm1(-eps))
    log_high = xp.log(-xp.expm1(t - eps)) - scale - t
    log_low = xp.log(-xp.expm1(-t)) - scale
    terms = xp.logaddexp(log_high + _log_power_rest(t, a), log_low + _log_power_rest(t - eps, a))
    # Being off by d costs a relative 4 (d / eps)^2 + a^2 d^2 / 2 of the excess, and t is off by a few roundoffs.
    off = 2.0**-49 * (1.0 + eps)
    terms = terms + 16.0 * (off / eps) ** 2 + (a * off) ** 2 + _ROUNDING / (a - 1.0)
    value = _from_excess(terms, a, a * eps)
    # The theorem without a maximisation: a range of eps is a eps^2 / 8 (Cesar, Rogers 2021), and eps-DP.
    return _guarded(xp.minimum(xp.minimum(value, eps), inflated(a * eps / 8.0 * eps, _ROUNDING)), eps, a)


def _log_mean(x: Array) -> Array:
    """log((1 - e^-x) / x) for x > 0: without the logarithms of 0 that near 0 would cancel."""
    xp = module(x)
    series = x * (x / 24.0 * (1.0 - x**2 / 120.0 * (1.0 - x**2 / 63.0)) - 0.5)
    return xp.where(x < 0.1, series, xp.log(-xp.expm1(-x) / x))


def _log_power_rest(loss: Array, a: Array) -> Array:
    """log(e^(a l) - 1 - a (e^l - 1)), from e^x - 1 - x at x = a l and at x = l, whose difference is positive."""
    xp = module(loss, a)
    big, small = _log_rest(a * loss), xp.log(a) + _log_rest(loss)
    return big + log1p(-xp.exp(xp.minimum(small - big, -1e-15)))


def bounded_range_curve(mechanism: Exponential, order: ArrayLike, relation: str) -> Array:
    """The largest divergence of any pair with a loss in [t - eps, t], over t (Dong, Durfee, Rogers 2020, section 3).

    Its maximiser is closed: with T = e^t and E = e^eps, A(T) = T^(a-1) (E - E^(1-a) - T (1 - E^(1-a))) / (E - 1).
    Divergences add up over adaptive compositions although a different t may be the worst in every step, because each
    step is charged its own supremum.
    """
    return _bounded_range(mechanism.epsilon, order)
