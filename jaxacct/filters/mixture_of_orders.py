"""The mixture supermartingale over Rényi orders: its coefficients, and the test whether it still promises delta.

With S_j the sum of the admitted divergences at order a_j and budgets R_j, if it is known that at the end

    sum_j c_j exp((a_j - 1)(x + R_j - S_j)) >= 1 - exp(-x)    for every x >= 0,                                   (1)

then delta(epsilon) <= sum_j c_j exp((a_j - 1)(R_j - epsilon)) for every epsilon >= 0 (docs/proofs/several-orders.md).
With kappa_j = (1 / a_j) (1 - 1 / a_j)^(a_j - 1) and k orders

    c_j = kappa_j / (k C),   C = min over x > 0 of the mean of kappa_j exp((a_j - 1) x) / (1 - exp(-x)) >= 1,

makes (1) tight where every budget is spent in full.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import logsumexp

from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.log1p import log_one_less
from jaxacct._numerics.rounding import EPS

_NEWTON = 16


def _log_kappas(orders: tuple[float, ...]) -> np.ndarray:
    a = np.array(orders)
    return (a - 1.0) * log_one_less(a) - np.log(a)


@functools.lru_cache(64)
def gain_of(orders: tuple[float, ...]) -> float:
    """log C: by how much the mixture is above what any of its orders needs alone."""
    slopes = np.array(orders) - 1.0
    logs = _log_kappas(orders) - np.log(len(orders))
    # The logarithm of what C is the minimum of is convex in x; each order alone has its minimum at log(a / (a - 1)).
    low, high = (float(-log_one_less(np.array(at))) for at in (max(orders), min(orders)))
    for _ in range(100):
        x = 0.5 * (low + high)
        each = logs + slopes * x
        rising = np.exp(each - logsumexp(each)) @ slopes > 1.0 / np.expm1(x)
        low, high = (low, x) if rising else (x, high)
    return float(logsumexp(logs + slopes * low) - np.log(-np.expm1(-low)))


def logs_of(orders: tuple[float, ...]) -> np.ndarray:
    """log c_j. Other c_j would do in (1), as long as both sides of it use the same."""
    return _log_kappas(orders) - np.log(len(orders)) - gain_of(orders)


def still_holds(room: Array, orders: tuple[float, ...]) -> Array:
    """Whether (1) holds with R_j - S_j = ``room``, float64, shape (..., orders); -inf where an order is out.

    With u = exp(-x) it reads f(u) = sum_j C_j u^-(a_j - 1) + u - 1 >= 0 on (0, 1]. f is convex, so it is above its
    tangent at any u, and Newton's method finds the lowest point. The bound holds wherever Newton's method stopped.
    """
    xp, slopes = array_module(room), np.array(orders) - 1.0
    # Smaller coefficients are the safe side: nothing overflows.
    logs = xp.minimum(logs_of(orders) + slopes * room, 50.0)
    s = xp.minimum(xp.max((logs + np.log(slopes)) / (slopes + 1.0), axis=-1), 0.0)
    s = xp.where(s > -xp.inf, s, 0.0)

    def newton(at: tuple[Array]) -> tuple[Array]:
        # log sum_j C_j (a_j - 1) u^-a_j = 0, convex and falling in s = log u: from the left all steps go right.
        (s,) = at
        each = xp.exp(logs + np.log(slopes) - (slopes + 1.0) * s[..., None])
        value, slope = each.sum(-1), (each * (slopes + 1.0)).sum(-1)
        return (xp.minimum(s + xp.where(value > 0, value * xp.log(value) / slope, 0.0), 0.0),)

    (s,) = repeated(newton, (s,), _NEWTON)
    exponents = logs - slopes * s[..., None]
    terms = xp.exp(exponents) * (1.0 - (8.0 + xp.abs(logs) + slopes * xp.abs(s)[..., None]) * EPS)
    terms = xp.where(xp.isfinite(exponents), terms, 0.0)
    height = terms.sum(-1) + xp.expm1(s)
    u = xp.exp(s)
    slope = 1.0 - (terms * slopes).sum(-1) / u
    # The margin is for the rounding of the slope; that of each term is taken off above.
    return height + xp.minimum(-slope * u, slope * (1.0 - u)) >= 8.0 * EPS
