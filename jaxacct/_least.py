"""The place of a least entry, inside anybody's trace."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["first_least"]


def first_least(values: Array) -> Array:
    """Index of the first least entry, int32; of the last entry if all are NaN. Has no derivative.

    ``jnp.argmin`` lowers to a reduction whose initial values have the wrong type where float64 code sits in a
    float32 program. Comparing with the minimum needs a barrier: XLA may compute ``values`` twice, not to the same bit.
    """
    values = jax.lax.optimization_barrier(jax.lax.stop_gradient(values))
    before = jnp.cumsum((values <= values.min()).astype(jnp.int32)) < 1
    return jnp.minimum(before.sum(dtype=jnp.int32), values.shape[0] - 1)
