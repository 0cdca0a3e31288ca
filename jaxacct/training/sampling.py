"""Poisson sampling: an independent coin per example, static shapes, no truncation."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import exact, no_more
from jaxacct.training import checks as _check
from jaxacct.training.keys import check_key

_MOST_PIECE = 2**18  # as much as one piece of an exact sum may hold


def poisson_sample(key: jax.Array, size: int, rate: ArrayLike) -> jax.Array:
    """A mask, (size,) bool, in which each entry is True independently with probability ``rate``.

    A coin compares 32 random bits with floor(rate * 2^32), computed exactly: its probability is no larger than the
    number ``rate``, which is accounted for, and costs no more (docs/proofs/training.md). It is below a concrete rate by
    less than 2^-32. A traced rate other than 1 is first lowered to the next float32, so that the coin is no likelier
    than with any number that was rounded to it; a traced 1 is 1 (also where a number above 1 - 2^-25 was rounded to
    it, so give such a rate as a Python float). A traced rate that is NaN or negative samples nobody.

    Args:
        key: a typed PRNG key that nothing else uses.
        size: number of examples, static.
        rate: scalar in [0, 1]; at 1 everyone is in the sample.

    Raises:
        ValueError: a pair of keys, a ``size`` that is no whole number, a concrete ``rate`` that is no number in [0, 1].
    """
    check_key(key)
    _validate.integer(0, 2**53, size=size)
    _validate.number(_validate.rate, rate=rate)
    coins = jax.random.bits(key, (size,), jnp.uint32)
    if not _validate.is_traced(rate):
        wide = exact(rate)[()]
        return coins < np.uint32(wide * 2**32) if wide < 1 else jnp.ones(size, bool)
    rate = jnp.asarray(rate, jnp.float32)
    inside = jnp.where((rate > 0) & (rate < 1), no_more(rate), 0.0)
    threshold = jnp.floor(inside * jnp.float32(2**32)).astype(jnp.uint32)
    return (coins < threshold) | (rate >= 1)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["indices", "count"], meta_fields=["piece"])
@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """The sampled examples' indices, packed to the front of a fixed length.

    Attributes:
        indices: (capacity,) int32, ``count`` sampled indices in increasing order, then filler (index 0).
        count: () int32, the size of the sample. Private: never release it.
        piece: how many examples one piece holds, static under jit.
    """

    indices: jax.Array
    count: jax.Array
    piece: int


def sample_pieces(mask: jax.Array, piece: int) -> Sample:
    """Packs the True entries of ``mask``, (size,), so that pieces of ``piece`` examples can be taken in turn.

    The capacity is ``size`` rounded up to whole pieces: even a sample of everybody fits, so nobody is ever
    dropped, which would break the Poisson assumption of the accounting.
    """
    _validate.whole(piece=piece)
    mask, piece = _check.mask(mask), int(piece)
    size = mask.shape[0]
    if piece > max(size, _MOST_PIECE):
        raise ValueError(f"piece must be at most {max(size, _MOST_PIECE)} for {size} examples, got {piece}")
    capacity = -(-size // piece) * piece
    (indices,) = jnp.nonzero(mask, size=capacity, fill_value=0)
    return Sample(indices.astype(jnp.int32), jnp.sum(mask, dtype=jnp.int32), piece)


def take_piece(sample: Sample, number: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Piece ``number`` (from 0) as ``(indices, valid)``, each (piece,): valid entries are in the sample."""
    _validate.instance(Sample, sample=sample)
    _validate.number(number=number)
    pieces = sample.indices.shape[0] // sample.piece
    if not _validate.is_traced(number) and not (0 <= float(np.asarray(number)[()]) < pieces):
        raise ValueError(f"number must be that of a piece, from 0 to {pieces - 1}, got {number!r:.200}")
    number = jnp.asarray(number if _validate.is_traced(number) else np.asarray(number, np.float64), jnp.int32)
    inside = (number >= 0) & (number < pieces)
    start = jnp.where(inside, number, 0) * sample.piece
    indices = jax.lax.dynamic_slice(sample.indices, (start,), (sample.piece,))
    valid = inside & (start + jnp.arange(sample.piece, dtype=jnp.int32) < sample.count)
    return indices, valid
