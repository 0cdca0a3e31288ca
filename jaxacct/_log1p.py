"""log1p with a relative error of a few units in the last place, everywhere."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

__all__ = ["log1p"]


def log1p(x: Array) -> Array:
    """log(1 + x). XLA's own float64 version is off by up to 241 units in -0.414 < x < -0.35 (measured)."""
    far = x < -0.3
    return jnp.where(far, jnp.log(1.0 + jnp.where(far, x, 0.0)), jnp.log1p(jnp.where(far, 0.0, x)))
