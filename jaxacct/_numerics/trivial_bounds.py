"""Clips bounds on delta to the range that holds for every mechanism: [1 - e^eps, 1]."""

from __future__ import annotations

from jaxacct._numerics.arrays import Array, Real, xp
from jaxacct._numerics.rounding import deflated, inflated


def possible(lower: Real, upper: Real, epsilon: Real) -> tuple[Array, Array]:
    """Bounds of delta(epsilon), NumPy's or JAX's, cut to 1 - e^epsilon <= delta <= 1; NaN bounds nothing."""
    floor = xp.maximum(-xp.expm1(epsilon), 0.0)
    under, over = deflated(floor, 2.0**-50), inflated(floor, 2.0**-50)
    most = xp.where(xp.isnan(upper), 1.0, xp.clip(upper, over, 1.0))
    least = xp.where(xp.isnan(lower), under, xp.clip(lower, under, 1.0))
    return xp.minimum(least, most), most
