"""ChaCha20 (RFC 8439) as a generator of JAX's: `jax.random` functions take its keys as they take any other.

A key's stream, the keys that are split off it and those that a number is folded into are blocks under three nonces, so
that no block serves twice. Words of a block lie far apart in what is drawn, which saves a transposition; each bit
depends on key and shape alone, wherever on a mesh it is computed.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jax.typing import ArrayLike

from jaxacct._numerics import manual_axes

_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4")
_QUARTERS = [(i, 4 + (i + s) % 4, 8 + (i + 2 * s) % 4, 12 + (i + 3 * s) % 4) for s in (0, 1) for i in range(4)]
_STREAM, _SPLIT, _FOLD = ((number, 0, 0) for number in range(3))


def blocks(key: jax.Array, counter: jax.Array, nonce: tuple[int, int, int]) -> jax.Array:
    """ChaCha20's blocks of the given counters, (16, ...) uint32: RFC 8439, section 2.3, words as in its matrix.

    Args:
        key: (8,) uint32.
        counter: (...) uint32.
        nonce: three words.
    """
    start = [jnp.full_like(counter, word) for word in (*_CONSTANTS, *key, 0, *map(np.uint32, nonce))]
    start[12] = counter
    words = manual_axes.fori_loop(0, 10, lambda _, words: _double_round(words), tuple(start))
    return jnp.stack([after + before for after, before in zip(words, start, strict=True)])


def _double_round(words: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    x = list(words)
    for a, b, c, d in _QUARTERS:  # four columns, then four diagonals
        for p, q, r, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = x[p] + x[q]
            mixed = x[r] ^ x[p]
            x[r] = (mixed << bits) | (mixed >> (32 - bits))
    return tuple(x)


def _bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    size = math.prod(shape) * (2 if width == 64 else 1)
    if size > 2**36:
        raise ValueError(f"shape must have at most 2^36 words of 32 bits, the blocks of one key, got {shape}")
    words = blocks(key, jnp.arange(-(-size // 16), dtype=jnp.uint32), _STREAM).reshape(-1)[:size]
    if width == 64:
        high, low = words.reshape(2, *shape).astype(jnp.uint64)
        return (high << 32) | low
    return words.reshape(shape).astype(f"uint{width}")


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    counter = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return jnp.moveaxis(blocks(key, counter, _SPLIT)[:8], 0, -1)


def _fold_in(key: jax.Array, data: ArrayLike) -> jax.Array:
    return blocks(key, jnp.asarray(data, jnp.uint32), _FOLD)[:8]


def _seed(seed: object) -> jax.Array:
    raise ValueError("seed must not be given: a key of ChaCha20 has 256 secret bits, from training.secure_keys()")


GENERATOR = define_prng_impl(
    key_shape=(8,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="chacha20", tag="chacha20"
)
"""What `jax.random.wrap_key_data` takes as ``impl``."""
