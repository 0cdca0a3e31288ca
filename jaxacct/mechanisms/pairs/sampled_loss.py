"""The loss of a sampled pair as a function of the loss of the pair itself, and back.

If L = log dP/dQ then log d((1 - q) Q + q P)/dQ = log(1 - q + q e^L): increasing in L, with range
(log(1 - q), inf). For the reversed pair both losses change sign.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.log1p import log1p

__all__ = ["inner_loss", "mixed_loss"]

_HIGH = 30.0  # above, e^-loss is negligible beside 1 or the expression is the exact one in logarithms
_LOW = -0.6  # below, q > 0.45, so that 1 - q is exact and e^loss - (1 - q) is a difference of exact numbers


@np.errstate(all="ignore")
def mixed_loss(loss: Array, rate: Any) -> Array:
    """log(1 - rate + rate exp(loss)), accurate for losses near 0 and tiny rates; float64, shapes that broadcast."""
    xp = array_module(loss, rate)
    near = log1p(rate * xp.expm1(xp.clip(loss, _LOW, _HIGH)))
    far = xp.logaddexp(log1p(-rate), xp.log(rate) + loss)
    return xp.where((loss > _HIGH) | (loss < _LOW), far, near)


@np.errstate(all="ignore")
def inner_loss(loss: Array, rate: Any) -> Array:
    """The loss m with ``mixed_loss(m, rate) == loss``, and -inf below the range of ``mixed_loss``.

    Exact for a loss that is off by at most 128 roundoffs of max(1, abs(loss)): log(1 + expm1(loss) / rate) is
    formed with log1p, so that a loss near 0 keeps its relative accuracy for tiny rates; above 30 as
    loss - log(rate) + log1p(-(1 - rate) exp(-loss)); and below -0.6 as log((exp(loss) - (1 - rate)) / rate), which
    does not cancel where 1 + expm1(loss) / rate does.
    """
    xp = array_module(loss, rate)
    ratio = xp.expm1(xp.minimum(loss, _HIGH)) / rate
    near = xp.where(ratio > -1.0, log1p(xp.maximum(ratio, -1.0)), -xp.inf)
    high = loss - xp.log(rate) + log1p(-(1.0 - rate) * xp.exp(-xp.maximum(loss, _HIGH)))
    rest = xp.exp(xp.minimum(loss, 0.0)) - (1.0 - rate)
    low = xp.where(rest > 0, xp.log(xp.where(rest > 0, rest, 1.0) / rate), -xp.inf)
    found = xp.where(loss > _HIGH, high, xp.where(loss < _LOW, low, near))
    return xp.where(rate == 1.0, loss, found)
