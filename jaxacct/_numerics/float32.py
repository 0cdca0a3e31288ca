"""Numbers on the safe side of given ones: what a draw uses has no less noise, and no larger a rate.

A filter charges a Python float in float64. A float32 program that draws with the same number rounded to the nearest
would draw with less noise, or at a larger rate, half of the time. Concrete numbers are therefore rounded in the safe
direction. A traced number has been rounded already, and a program cannot tell from what: it is replaced by the number
beside it, which is on the safe side of all that round to it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array

_UP, _DOWN = np.float32(np.inf), np.float32(0.0)


def no_less(value: ArrayLike) -> Array:
    """A float32 that is no less than any number >= 0 that ``value`` was rounded from; NaN, 0 and below stay."""
    return _narrow(value, _UP)


def no_more(value: ArrayLike) -> Array:
    """A float32 that is no more than any number >= 0 that ``value`` was rounded from; NaN, 0 and below stay."""
    return _narrow(value, _DOWN)


def above(value: ArrayLike) -> ArrayLike:
    """``value``, for a computation in float64; where it is traced and narrower, the next number of its type above."""
    return _beside(value, _UP) if _validate.is_traced(value) else value


def below(value: ArrayLike) -> ArrayLike:
    """``value``, for a computation in float64; where it is traced and narrower, the next number of its type below."""
    return _beside(value, _DOWN) if _validate.is_traced(value) else value


def exact(value: ArrayLike) -> np.ndarray:
    """A concrete number in the widest float that there is."""
    return np.asarray(value).astype(np.longdouble)


def _narrow(value: ArrayLike, toward: np.float32) -> Array:
    if _validate.is_traced(value):
        return _beside(jnp.asarray(value, jnp.float32), toward)
    wide = exact(value)
    with np.errstate(over="ignore", under="ignore"):
        near = wide.astype(np.float32)
    off = near < wide if toward > 0 else near > wide
    return np.where(off, np.nextafter(near, toward), near)


def _beside(value: ArrayLike, toward: np.float32) -> jax.Array:
    near = jnp.asarray(value)
    if not jnp.issubdtype(near.dtype, jnp.floating) or near.dtype == "float64":
        return near
    return jnp.where(near > 0, jnp.nextafter(near, toward.astype(near.dtype)), near)
