"""The privacy curve that rho-zCDP implies, rounded upwards."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, repeated, xp
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.mechanisms.pairs import one_parameter as _parametric

__all__ = ["zcdp_delta", "zcdp_epsilon", "zcdp_from_epsilon"]

_HALVINGS = 70


def _variation(rho: Array) -> Array:
    """A bound on total variation: Pinsker, or Bretagnolle and Huber 1979; the KL divergence is at most rho."""
    return inflated(xp.sqrt(xp.minimum(rho / 2, -xp.expm1(-rho))), 8 * EPS)


def _halved(low: Array, high: Array, is_low: Callable[[Array], Array]) -> Array:
    """A point near where ``is_low`` turns False between ``low`` and ``high``, both above 0."""

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = bracket
        middle = xp.sqrt(left) * xp.sqrt(right)
        below = is_low(middle)
        return xp.where(below, middle, left), xp.where(below, right, middle)

    return repeated(halve, (low, high), _HALVINGS)[0]


def _log_delta(rho: Array, epsilon: Array) -> Array:
    """An upper bound of log delta(epsilon), whatever order the halving ends at: every order's conversion is one."""
    low, high = xp.full_like(rho, 1e-16), (epsilon + 1) / rho + 2
    b = _halved(low, high, lambda b: rho * (1 + 2 * b) - log1p(1 / b) < epsilon)
    value = b * (rho * (1 + b) - epsilon - log1p(1 / b)) - log1p(b)
    size = b * (rho * (1 + b) + epsilon + log1p(1 / b)) + log1p(b)
    return xp.minimum(value + 16 * EPS * (1 + size), xp.log(_variation(rho)) + 4 * EPS)


def _log_conversion(rho: Array, log_delta: Array) -> Array:
    """An epsilon at ``log_delta``, rounded up, at the order near the best."""
    low, high = xp.full_like(rho, 1e-16), xp.sqrt(-log_delta / rho) + 1e-12
    b = _halved(low, high, lambda b: rho * b * b + log1p(b) < -log_delta)
    value = rho * (1 + b) - log1p(1 / b) + (-log_delta - log1p(b)) / b
    size = rho * (1 + b) + log1p(1 / b) + (-log_delta + log1p(b)) / b
    value = xp.maximum(value + 16 * EPS * size, 0.0)
    return xp.where(xp.log(_variation(rho)) + 8 * EPS <= log_delta, 0.0, value)


def _delta(rho: Array, epsilon: Array) -> Array:
    return _parametric.delta_of(rho, epsilon, _log_delta)


def _epsilon(rho: Array, delta: Array) -> Array:
    # The target is rounded down.
    return _parametric.epsilon_of(rho, delta, lambda r, log: _log_conversion(r, inflated(log, 2 * EPS) - 2 * EPS))


def _from_epsilon(epsilon: Array, delta: Array) -> Array:
    low = xp.full_like(epsilon, 1e-18)
    rho = _halved(low, xp.full_like(epsilon, 1e30), lambda rho: _epsilon(rho, delta) <= epsilon)
    good = (epsilon >= 0) & (epsilon < np.inf) & (delta > 0) & (delta < 1) & (_epsilon(rho, delta) <= epsilon)
    return xp.where(good, rho, np.nan)


@in_float64
def zcdp_delta(rho: ArrayLike, epsilon: ArrayLike) -> Array:
    """The delta at which rho-zCDP implies (epsilon, delta)-DP, rounded up.

    The infimum over all orders a of exp((a - 1) (a rho - epsilon + log(1 - 1/a))) / a (Canonne, Kamath, Steinke
    2020, Proposition 12), or total variation where that is less. A bound for the whole class; its
    best possible conversion is not known (the Gaussian mechanism's own curve is lower).

    Args:
        rho: at least 0; any shape.
        epsilon: at least 0; broadcasts with ``rho``.

    Returns:
        A float64 array of the broadcast shape, NumPy's outside a trace. Invalid traced values give 1.

    Raises:
        ValueError: a concrete ``rho`` or ``epsilon`` that is negative or not finite.
    """
    return _parametric.answered(_delta, rho=rho, epsilon=epsilon)


@in_float64
def zcdp_epsilon(rho: ArrayLike, delta: ArrayLike) -> Array:
    """The epsilon at which rho-zCDP implies (epsilon, delta)-DP, the inverse of `zcdp_delta`, rounded up.

    Args:
        rho: at least 0; any shape.
        delta: strictly between 0 and 1; broadcasts with ``rho``.

    Returns:
        A float64 array of the broadcast shape, NumPy's outside a trace. Invalid traced values give infinity.

    Raises:
        ValueError: a concrete ``rho`` that is negative or not finite, a ``delta`` outside (0, 1).
    """
    return _parametric.answered(_epsilon, rho=rho, delta=delta)


@in_float64
def zcdp_from_epsilon(epsilon: ArrayLike, delta: ArrayLike) -> Array:
    """A rho that `zcdp_epsilon` turns into at most ``epsilon`` at ``delta``: the largest, to a few units.

    Args:
        epsilon: at least 0; any shape.
        delta: strictly between 0 and 1; broadcasts with ``epsilon``.

    Returns:
        A float64 array of the broadcast shape, NumPy's outside a trace; NaN for invalid values.

    Raises:
        ValueError: a concrete ``epsilon`` that is negative or not finite, a ``delta`` outside (0, 1).
    """
    return _parametric.answered(_from_epsilon, epsilon=epsilon, delta=delta)
