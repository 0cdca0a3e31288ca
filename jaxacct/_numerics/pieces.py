"""Splits float64 numbers into float32 pieces with that exact sum, which pass through float32 programs unrounded.

Everything here runs inside ``enable_x64``, in NumPy or JAX, whichever the values are in.
"""

from __future__ import annotations

import functools
import operator

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import floats


def split_exact(value: ArrayLike) -> Array:
    """``value`` as float32[..., 3] whose exact sum it is, where it is 0 or between 1e-18 and 1e30 in magnitude."""
    xp, rest = floats(value)
    pieces = []
    for _ in range(3):
        piece = rest.astype(np.float32)
        pieces.append(piece)
        rest = rest - piece.astype(np.float64)
    return xp.stack(pieces, axis=-1)


def split_up(value: ArrayLike) -> Array:
    """``value``, at least 0 or a loss, as float32[..., 2] whose sum is at most 2^-46 of it above it, and not below."""
    # Denormal float32 may be flushed to 0, so none is made; 4e-38 stands for what is smaller.
    xp, value = floats(value)
    with np.errstate(all="ignore"):
        high = xp.where(xp.abs(value) < 4e-38, 0.0, value).astype(np.float32)
        rest = xp.where(xp.isfinite(value), value - high.astype(np.float64), 0.0)
        low = rest.astype(np.float32)
        low = xp.where(low.astype(np.float64) < rest, xp.nextafter(low, np.float32(np.inf)), low)
        low = xp.where(xp.abs(rest) < 4e-38, xp.where(rest > 0, np.float32(4e-38), np.float32(0.0)), low)
    return xp.stack([high, low], axis=-1)


def join(pieces: Array) -> Array:
    """The float64 sum of the pieces on the last axis."""
    _, parts = floats(pieces)
    return functools.reduce(operator.add, [parts[..., i] for i in range(parts.shape[-1])])
