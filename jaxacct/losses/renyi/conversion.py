"""Conversions between a Rényi divergence and (epsilon, delta)."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, hosted, on_device
from jaxacct._numerics.log1p import log_one_less
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.mechanisms.pairs.one_parameter import check


def _conversion(order: Array, delta: Array) -> tuple[Array, Array]:
    """epsilon - rho of the tight conversion, and a bound on its rounding."""
    first = log_one_less(order)
    second = (xp.log(delta) + xp.log(order)) / (order - 1)
    size = xp.abs(first) + (xp.abs(xp.log(delta)) + xp.log(order)) / (order - 1)
    return first - second, 16 * EPS * size


@hosted
def epsilon_of_divergence(rho: Array, order: Array, delta: Array) -> Array:
    """:func:`epsilon_from_renyi` without its checks, in NumPy where all is concrete (inside ``enable_x64``)."""
    xp, rho, order, delta = floats(rho, order, delta)
    good = (rho >= 0) & (order > 1) & (order < np.inf) & (delta > 0) & (delta < 1)
    shift, rounding = _conversion(xp.where(good, order, 2.0), xp.where(good, delta, 0.5))
    value = xp.maximum(rho + shift + rounding + 4 * EPS * rho, 0.0)
    # Total variation is at most sqrt(1 - exp(-KL)) (Bretagnolle, Huber 1979) and KL is at most rho.
    value = xp.where(inflated(-xp.expm1(-rho), 8 * EPS) <= delta * delta, 0.0, value)
    return xp.where(good, value, xp.where((rho >= 0) & (delta >= 1), 0.0, np.inf))


@hosted
def delta_of_divergence(rho: Array, order: Array, epsilon: Array) -> Array:
    """`delta_from_renyi` without checks, for values that were checked before."""
    xp, rho, order, epsilon = floats(rho, order, epsilon)
    good = (rho >= 0) & (rho < np.inf) & (order > 1) & (order < np.inf) & (epsilon >= 0)
    a, r, e = xp.where(good, order, 2.0), xp.where(good, rho, 1.0), xp.where(good, epsilon, 1.0)
    log_delta = (a - 1) * (r - e + log_one_less(a)) - xp.log(a)
    finite = xp.where(e < np.inf, e, 0.0)
    log_delta += 16 * EPS * ((a - 1) * (r + finite - log_one_less(a)) + xp.log(a))
    divergence = inflated(xp.sqrt(-xp.expm1(-r)), 8 * EPS)
    value = xp.minimum(xp.minimum(inflated(xp.exp(log_delta), 8 * EPS), divergence), 1.0)
    # Underflow to 0 would claim more than is known, unless nothing was released at all.
    value = xp.where(r == 0, 0.0, xp.maximum(value, np.finfo(np.float64).tiny))
    return xp.where(good, value, 1.0)


@hosted
def _renyi_from_epsilon(epsilon: Array, delta: Array, order: Array) -> Array:
    xp, epsilon, delta, order = floats(epsilon, delta, order)
    good = (epsilon >= 0) & (epsilon < np.inf) & (delta > 0) & (delta < 1) & (order > 1) & (order < np.inf)
    shift, rounding = _conversion(xp.where(good, order, 2.0), xp.where(good, delta, 0.5))
    # Twice the rounding of the way back, so that converting the result gives at most the epsilon asked for.
    value = epsilon - shift - 2 * rounding - 16 * EPS * (epsilon + xp.abs(shift))
    return xp.where(good, value, np.nan)


@in_float64
def epsilon_from_renyi(rho: ArrayLike, order: ArrayLike, delta: ArrayLike) -> Array:
    """The epsilon at which a Rényi divergence of at most ``rho`` at ``order`` implies (epsilon, delta)-DP.

    epsilon = rho + log(1 - 1/order) - (log(delta) + log(order)) / (order - 1) (Canonne, Kamath, Steinke 2020,
    Proposition 12; also Balle et al. 2020), at least 0, and 0 where total variation alone is below delta.
    Rounded up.

    Args:
        rho: divergence in nats, >= 0; any shape.
        order: above 1.
        delta: strictly between 0 and 1.

    Returns:
        A float64 array of the broadcast shape; infinity for invalid values, NaN included.

    Raises:
        ValueError: a concrete ``delta`` outside (0, 1).
    """
    check(delta=delta)
    return on_device(epsilon_of_divergence(rho, order, delta))


@in_float64
def delta_from_renyi(rho: ArrayLike, order: ArrayLike, epsilon: ArrayLike) -> Array:
    """The delta at which a Rényi divergence of at most ``rho`` at ``order`` implies (epsilon, delta)-DP.

    The inverse of `epsilon_from_renyi` (same source), or the total variation sqrt(1 - exp(-rho)) where that
    is less. Rounded up; at most 1.

    Args:
        rho: divergence in nats, >= 0; any shape.
        order: above 1.
        epsilon: at least 0.

    Returns:
        A float64 array of the broadcast shape; 1 for invalid values, NaN included.

    Raises:
        ValueError: a concrete ``epsilon`` that is negative or not finite.
    """
    check(epsilon=epsilon)
    return on_device(delta_of_divergence(rho, order, epsilon))


@in_float64
def renyi_from_epsilon(epsilon: ArrayLike, delta: ArrayLike, order: ArrayLike) -> Array:
    """The largest rho at ``order`` that `epsilon_from_renyi` turns into at most ``epsilon`` at ``delta``.

    Rounded down; negative where no divergence, however small, gives that epsilon at that order.

    Args:
        epsilon: at least 0; any shape.
        delta: strictly between 0 and 1.
        order: above 1.

    Returns:
        A float64 array of the broadcast shape; NaN for invalid values.

    Raises:
        ValueError: a concrete ``epsilon`` that is negative or not finite, a ``delta`` outside (0, 1).
    """
    check(epsilon=epsilon, delta=delta)
    return on_device(_renyi_from_epsilon(epsilon, delta, order))
