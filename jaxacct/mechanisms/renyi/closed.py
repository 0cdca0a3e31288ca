"""Rényi curves in closed form: their common steps, and the curves of pure differential privacy and zCDP.

Each formula is log(1 + excess) / (order - 1) with the excess formed from positive terms only, so that small curves
keep their digits, and rounded up by 1e-12 relative (docs/proofs/curves.md, the table of roundings).
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import inflated

ROUNDING = 1e-12
_TINY = 1e-300  # what is smaller may have underflowed, and 0 would say that nothing is released
_SERIES = 18  # terms of e^x - 1 - x for abs(x) < 1


def log_rest(x: Array) -> Array:
    """log(e^x - 1 - x); at 0 that of 1e-150."""
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


def from_excess(log_excess: Array, order: Array, size: Array) -> Array:
    """log(1 + e^log_excess) / (order - 1), rounded up; ``size`` is the largest exponent that was rounded."""
    margin = ROUNDING + 2.0**-49 * size
    return inflated(xp.logaddexp(0.0, log_excess + margin) / (order - 1.0), ROUNDING)


def guarded(value: Array, parameter: Array, order: Array) -> Array:
    """``value``, at least 1e-300, and infinite where a parameter or an order is invalid."""
    good = (parameter > 0) & (parameter < np.inf) & (order > 1) & (order < np.inf) & ~xp.isnan(value)
    return xp.where(good, xp.maximum(value, _TINY), np.inf)


@hosted
def proportional(rho: Array, order: Array) -> Array:
    """order * rho, rounded up; infinite where either is invalid."""
    xp, rho, order = floats(rho, order)
    good = (rho > 0) & (rho < np.inf) & (order > 1) & (order < np.inf)
    return xp.where(good, rho * order * (1.0 + 2.0**-49), np.inf)
