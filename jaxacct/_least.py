"""The place of a least or greatest entry, inside anybody's trace."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._arrays import array_module

__all__ = ["first_greatest", "first_least"]


def first_least(values: Any) -> Any:
    """Index of the first least entry along the last axis, int32; of the last entry if all are NaN. No derivative.

    ``jnp.argmin`` lowers to a reduction whose initial values have the wrong type where float64 code sits in a
    float32 program. Comparing with the minimum needs a barrier: XLA may compute ``values`` twice, not to the same bit.
    """
    xp = array_module(values)
    if xp is np:
        return np.where(np.isnan(values.min(-1)), values.shape[-1] - 1, values.argmin(-1))
    values = jax.lax.optimization_barrier(jax.lax.stop_gradient(values))
    before = jnp.cumsum((values <= values.min(-1, keepdims=True)).astype(np.int32), -1) < 1
    return jnp.minimum(before.sum(-1, dtype=np.int32), values.shape[-1] - 1)


def first_greatest(values: Any) -> Any:
    """Index of the first greatest entry along the last axis; see :func:`first_least`."""
    return first_least(-values)
