"""The loss of a sampled pair as a function of the loss of the pair itself, and back.

If L = log dP/dQ then log d((1 - q) Q + q P)/dQ = log(1 - q + q e^L): increasing in L, with range
(log(1 - q), inf). For the reversed pair both losses change sign.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxacct._log1p import log1p

__all__ = ["inner_loss", "mixed_loss"]

_HIGH = 30.0  # above, e^-loss is negligible beside 1 or the expression is the exact one in logarithms
_LOW = -0.6  # below, q > 0.45, so that 1 - q is exact and e^loss - (1 - q) is a difference of exact numbers


def mixed_loss(loss: Array, rate: Any) -> Array:
    """log(1 - rate + rate exp(loss)), accurate for losses near 0 and tiny rates; float64, any shape."""
    near = log1p(rate * jnp.expm1(jnp.clip(loss, _LOW, _HIGH)))
    far = jnp.logaddexp(log1p(-rate), jnp.log(rate) + loss)
    return jnp.where((loss > _HIGH) | (loss < _LOW), far, near)


def inner_loss(loss: Array, rate: Any) -> Array:
    """The loss m with ``mixed_loss(m, rate) == loss``, and -inf below the range of ``mixed_loss``.

    Exact for a loss that is off by at most 128 roundoffs of max(1, abs(loss)): log(1 + expm1(loss) / rate) is
    formed with log1p, so that a loss near 0 keeps its relative accuracy for tiny rates; above 30 as
    loss - log(rate) + log1p(-(1 - rate) exp(-loss)); and below -0.6 as log((exp(loss) - (1 - rate)) / rate), which
    does not cancel where 1 + expm1(loss) / rate does.
    """
    ratio = jnp.expm1(jnp.minimum(loss, _HIGH)) / rate
    near = jnp.where(ratio > -1.0, log1p(jnp.maximum(ratio, -1.0)), -jnp.inf)
    high = loss - jnp.log(rate) + log1p(-(1.0 - rate) * jnp.exp(-jnp.maximum(loss, _HIGH)))
    rest = jnp.exp(jnp.minimum(loss, 0.0)) - (1.0 - rate)
    low = jnp.where(rest > 0, jnp.log(jnp.where(rest > 0, rest, 1.0) / rate), -jnp.inf)
    found = jnp.where(loss > _HIGH, high, jnp.where(loss < _LOW, low, near))
    return jnp.where(rate == 1.0, loss, found)
