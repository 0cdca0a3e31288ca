"""Noise drawn in float64, also inside float32 programs; the sum of value and noise is rounded once.

A float32 normal of JAX's ends at 5.4 standard deviations; these are made from 53 random bits in float64 and
reach 8.5. What a release rounds away then is post-processing of (value + noise). They are still approximations
of real-valued noise, as in every implementation on floating-point hardware; the theorems are for the real one
(Mironov 2012, "On significance of the least significant bits for differential privacy").
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct._types import PyTree


def uniform(key: Array, shape: tuple[int, ...]) -> Array:
    """Uniform on the multiples of 2^-53 in (0, 1], float64 (inside ``enable_x64``)."""
    # 64-bit draws do not lower inside a float32 program; two 32-bit ones do.
    words = jax.random.bits(key, (2, *shape), jnp.uint32)
    high, low = (words[0] >> 5).astype(jnp.float64), (words[1] >> 6).astype(jnp.float64)
    return (high * 2.0**26 + low + 1.0) * 2.0**-53


def normal(key: Array, shape: tuple[int, ...]) -> Array:
    """Independent N(0, 1), float64 (Box and Muller)."""
    radius, angle = uniform(key, (2, *shape))
    return jnp.sqrt(-2.0 * jnp.log(radius)) * jnp.cos(2.0 * math.pi * angle)


def laplace(key: Array, shape: tuple[int, ...]) -> Array:
    """Independent Laplace noise of scale 1 (variance 2), float64."""
    size, side = uniform(key, (2, *shape))
    return jnp.where(side > 0.5, 1.0, -1.0) * -jnp.log(size)


def released(key: Array, draw: Callable[..., Array], dtype: str, value: object, *more: object) -> PyTree:
    """``draw(key of the leaf, leaf, *leaves of more)``, in float64, rounded to the float types of ``value``'s leaves.

    ``dtype`` is the caller's float type (`filters.amounts.caller_dtype`): integer leaves come back in it, and no leaf
    comes back wider than it. No leaf's key is ``key`` itself.
    """

    def one(leaf_key: Array, leaf: ArrayLike, *others: ArrayLike) -> Array:
        array = jnp.asarray(leaf)
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise ValueError(f"value must hold real numbers, got {array.dtype}")
        narrow = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize <= jnp.dtype(dtype).itemsize
        return draw(leaf_key, array.astype(jnp.float64), *others).astype(array.dtype if narrow else dtype)

    leaves, structure = jax.tree.flatten(value)
    keys = list(jax.random.split(key, max(len(leaves), 1)))[: len(leaves)]
    return jax.tree.map(one, structure.unflatten(keys), value, *more)
