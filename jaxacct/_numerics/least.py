"""Argmin and argmax that compile where float64 code sits inside a float32 program."""

from __future__ import annotations

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module


def first_least(values: Array) -> Array:
    """Index of the first least entry along the last axis, int32; of the last entry if all are NaN. No derivative.

    ``jnp.argmin`` lowers to a reduction whose initial values have the wrong type where float64 code sits in a
    float32 program. Comparing with the minimum finds nothing where XLA computes ``values`` twice, not to the same bit,
    which it does behind a barrier as well.
    """
    if array_module(values) is np:
        return np.where(np.isnan(values.min(-1)), values.shape[-1] - 1, values.argmin(-1))
    values = jax.lax.stop_gradient(values)
    last = values.ndim - 1
    index = jax.lax.broadcasted_iota(np.int32, values.shape, last)

    def lesser(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, ...]:
        before = (one[0] < other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))
        return tuple(jax.lax.select(before, a, b) for a, b in zip(one, other, strict=True))

    start = values.dtype.type(np.inf), np.int32(values.shape[-1] - 1)  # as NaN is not less, the last if all are
    return jax.lax.reduce((values, index), start, lesser, (last,))[1]


def first_greatest(values: Array) -> Array:
    """Index of the first greatest entry along the last axis; see :func:`first_least`."""
    return first_least(-values)
