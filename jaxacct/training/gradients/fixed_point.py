"""Exact sums of clipped vectors in fixed point, so that rounding adds nothing to a query's sensitivity.

Every clipped coordinate is truncated towards zero to a multiple of a fixed quantum, and whole numbers are added: one
vector more moves the sum by at most the clip norm, and a sum of given vectors does not depend on their order, on the
pieces that they come in or on the number of devices (docs/proofs/training.md). A coordinate v, in units of the clip
norm, is held in two int32 limbs, v = high 2^-b + low 2^-(b+12) with b = 12 for up to 2^18 examples and less for more.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree

LOW_BITS = 12
_MOST_PIECE = 2**18
_CHUNK = 64  # 64 * 2^24 quanta are 2^30


@functools.partial(jax.tree_util.register_dataclass, data_fields=["high", "low"], meta_fields=["size"])
@dataclasses.dataclass(frozen=True, eq=False)
class FixedPointSum:
    """An exact sum without noise: private until :func:`jaxacct.training.add_gaussian_noise` has run.

    Attributes:
        high: pytree of int32, the upper limbs.
        low: pytree of int32 in [0, 2^12), the lower limbs.
        size: the most vectors that the sum may ever hold; it fixes the limbs' scale. Static.
    """

    high: PyTree
    low: PyTree
    size: int


def high_bits(size: int) -> int:
    """Fractional bits of the upper limb so that ``size`` vectors of norm 1 stay below 2^30 in an int32."""
    _validate.integer(1, 2**30, size=size)
    size = int(size)
    return min(12, 30 - (size - 1).bit_length())


def empty_sum(shapes: object, size: int) -> FixedPointSum:
    """The sum of nothing, for vectors shaped like the pytree ``shapes`` and at most ``size`` of them."""
    high_bits(size)
    check_shapes(shapes)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), jnp.int32), shapes)
    return FixedPointSum(zeros, zeros, size)


def check_shapes(shapes: object) -> None:
    """Raises ValueError unless ``shapes`` is a tree of arrays, numbers or shapes of arrays."""
    try:
        leaves = jax.tree.leaves(shapes)
    except (RecursionError, SystemError, ValueError, TypeError):
        raise ValueError(f"shapes must be a tree of arrays or shapes of them, got {type(shapes).__name__}") from None
    for leaf in leaves:
        shape = () if isinstance(leaf, bool | int | float) else getattr(leaf, "shape", None)
        if not isinstance(shape, tuple):
            raise ValueError(f"shapes must be a tree of arrays or shapes of them, got {_validate.shown(leaf)} in it")


def accumulate(
    total: FixedPointSum, vectors: object, valid: jax.Array, prepared: Callable[[jax.Array], jax.Array]
) -> FixedPointSum:
    """Adds ``prepared(leaf)``, vectors of norm at most 1, leaves (batch, ...), where ``valid``, (batch,) bool, is true.

    Coordinates are truncated towards zero to whole quanta, which never lengthens a vector. A coordinate is at most 2^24
    quanta, so that 64 of them fit into an int32; only their sums are split into limbs.
    """
    batch = valid.shape[0]
    if batch > _MOST_PIECE:
        raise ValueError(f"physical_batch must be at most {_MOST_PIECE}, got {batch}")
    scale = jnp.float32(2.0 ** (high_bits(total.size) + LOW_BITS))
    whole = batch // _CHUNK * _CHUNK

    def add(high: jax.Array, low: jax.Array, leaf: jax.Array) -> tuple[jax.Array, jax.Array]:
        if not leaf.size:
            return high, low
        kept = valid.reshape((batch,) + (1,) * (leaf.ndim - 1))
        # The product with a power of two is exact, and so are truncation and conversion.
        quanta = jnp.trunc(jnp.where(kept, prepared(leaf), 0.0) * scale).astype(jnp.int32)
        for rows in (quanta[:whole], quanta[whole:]):
            if not rows.shape[0]:
                continue
            chunks = rows.reshape(-1, min(_CHUNK, rows.shape[0]), *rows.shape[1:])
            sums = jnp.sum(chunks, axis=1, dtype=jnp.int32)
            high = high + jnp.sum(sums >> LOW_BITS, axis=0, dtype=jnp.int32)
            low = low + jnp.sum(sums & (2**LOW_BITS - 1), axis=0, dtype=jnp.int32)
        return _carry(high, low)

    return _map_limbs(add, total, vectors)


def offset(total: FixedPointSum, amount: object) -> FixedPointSum:
    """Adds one float vector, rounded down to the quantum; coordinates must stay below 2^(29 - high bits)."""
    bits = high_bits(total.size)

    def add(high: jax.Array, low: jax.Array, leaf: jax.Array) -> tuple[jax.Array, jax.Array]:
        scaled = leaf.astype(jnp.float32) * jnp.float32(2.0**bits)
        upper = jnp.floor(scaled)
        lower = jnp.floor((scaled - upper) * jnp.float32(2.0**LOW_BITS))
        return _carry(high + upper.astype(jnp.int32), low + lower.astype(jnp.int32))

    return _map_limbs(add, total, amount)


def over_devices(total: FixedPointSum, axis: str) -> FixedPointSum:
    """The sum over the devices of a mesh axis, inside ``shard_map``: exact, so the same in whatever order they add."""
    return _map_limbs(lambda high, low: _carry(jax.lax.psum(high, axis), jax.lax.psum(low, axis)), total)


def released(total: FixedPointSum, unit: ArrayLike) -> PyTree:
    """The sum as a float32 pytree, times ``unit`` (the clip norm). Only for a sum that holds its noise."""
    bits = high_bits(total.size)

    def to_float(high: jax.Array, low: jax.Array) -> jax.Array:
        value = high.astype(jnp.float32) * jnp.float32(2.0**-bits)
        value = value + low.astype(jnp.float32) * jnp.float32(2.0 ** -(bits + LOW_BITS))
        return value * jnp.asarray(unit, jnp.float32)

    return jax.tree.map(to_float, total.high, total.low)


def _carry(high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    carry = low >> LOW_BITS  # arithmetic shift: floor, also below zero
    return high + carry, low - (carry << LOW_BITS)


def _map_limbs(
    function: Callable[..., tuple[jax.Array, jax.Array]], total: FixedPointSum, *vectors: object
) -> FixedPointSum:
    """The sum whose limbs ``function`` makes of the limbs of ``total`` and the leaves of ``vectors``."""
    leaves = zip(*map(jax.tree.leaves, (total.high, total.low, *vectors)), strict=True)
    pairs, structure = [function(*each) for each in leaves], jax.tree.structure(total.high)
    high, low = (jax.tree.unflatten(structure, [pair[i] for pair in pairs]) for i in range(2))
    return FixedPointSum(high, low, total.size)
