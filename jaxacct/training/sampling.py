"""Poisson sampling: an independent coin per example, static shapes, no truncation.

A sample is processed piece by piece. The place of a row in its piece is its *lane*: compilers may give the same row
other last bits in another lane, and clipping can make much of them. So a row's lane never depends on the rest of the
sample: it is drawn for that row alone, and rows of one lane wait for their turn (docs/proofs/training.md).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import exact, no_more
from jaxacct.training import checks as _check
from jaxacct.training.keys import check_key

_MOST_PIECE = 2**18  # as much as one piece of an exact sum may hold
# Lanes of a piece on a CPU: what vector instructions fill. More do not make a row cheaper, and leave more lanes empty.
_LANES = 8

Total = TypeVar("Total")


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


@functools.partial(jax.tree_util.register_dataclass, data_fields=["indices", "starts"], meta_fields=["piece"])
@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """The sampled examples' indices, grouped by lane. Private: never release any of it.

    Attributes:
        indices: (capacity,) int32, the sampled indices, those of a lane side by side, then filler.
        starts: (piece + 1,) int32: lane i holds ``indices[starts[i] : starts[i + 1]]``, one for each piece in turn.
        piece: lanes, which is how many examples one piece holds, static under jit.
    """

    indices: jax.Array
    starts: jax.Array
    piece: int

    @property
    def count(self) -> jax.Array:
        """The size of the sample, () int32."""
        return self.starts[-1]

    @property
    def pieces(self) -> jax.Array:
        """How many pieces it takes, () int32: as many as the fullest lane has examples."""
        return jnp.max(jnp.diff(self.starts))


def lanes_of(physical_batch: int, size: int) -> int:
    """The lanes of pieces of at most ``physical_batch`` of ``size`` examples, on the present backend."""
    most = _LANES if jax.default_backend() == "cpu" else -(-size // _LANES) * _LANES
    return min(physical_batch, most)


def draw_lanes(key: jax.Array | None, size: int, piece: int) -> jax.Array:
    """A lane below ``piece`` for each of ``size`` rows, uint32: independent draws, or by index where ``key`` is None.

    A lane is 32 random bits modulo ``piece``: even by piece / 2^32. (Independence is what matters, any law would do.)
    """
    if key is None:
        return jnp.arange(size, dtype=jnp.uint32) % jnp.uint32(piece)
    check_key(key)
    return jax.random.bits(key, (size,), jnp.uint32) % jnp.uint32(piece)


def in_lanes(mask: jax.Array, lanes: jax.Array, piece: int) -> Sample:
    """The True entries of ``mask``, (size,), grouped by their ``lanes``, (size,) and below ``piece``."""
    size = mask.shape[0]
    bits = (size - 1).bit_length()
    lanes, numbers = jnp.where(mask, lanes, jnp.uint32(piece)), jnp.arange(size, dtype=jnp.uint32)
    if (piece + 1) << bits <= 2**32:  # lane and index in one word, which sorts ten times faster than two
        words = jax.lax.sort(lanes << bits | numbers)
        lanes, numbers = words >> bits, words & jnp.uint32(2**bits - 1)
    else:
        lanes, numbers = jax.lax.sort((lanes, numbers), num_keys=1)
    starts = jnp.searchsorted(lanes, jnp.arange(piece + 1, dtype=jnp.uint32))
    return Sample(numbers.astype(jnp.int32), starts.astype(jnp.int32), piece)


def sample_pieces(mask: jax.Array, piece: int, key: jax.Array | None = None) -> Sample:
    """The True entries of ``mask``, (size,), so that ``sample.pieces`` pieces of ``piece`` examples are taken in turn.

    Each example has a lane, its place in a piece, which does not depend on who else is in the sample: a record that is
    not sampled leaves all others where they are. There is room for everybody in any lane, so nobody is ever dropped,
    which would break the Poisson assumption of the accounting. The price is empty lanes: where each holds m examples on
    average, the fullest holds about m + sqrt(2 m log(piece)), and so many pieces there are.

    Args:
        mask: who is in the sample.
        piece: lanes of a piece, static; at most 2^18, or ``size`` if that is more.
        key: a typed PRNG key that nothing else uses, from which every example draws a lane. Without one it is the
            index modulo ``piece``, and neighbours are those whose records keep their rows (docs/proofs/training.md).

    Raises:
        ValueError: no mask, a ``piece`` out of range, a ``key`` that is none.
    """
    _validate.whole(piece=piece)
    mask, piece = _check.mask(mask), int(piece)
    size = mask.shape[0]
    if piece > max(size, _MOST_PIECE):
        raise ValueError(f"piece must be at most {max(size, _MOST_PIECE)} for {size} examples, got {piece}")
    return in_lanes(mask, draw_lanes(key, size, piece), piece)


def take_piece(sample: Sample, number: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Piece ``number`` (from 0) as ``(indices, valid)``, each (piece,): valid entries are in the sample."""
    _validate.instance(Sample, sample=sample)
    _validate.number(number=number)
    most = sample.indices.shape[0]
    if not _validate.is_traced(number) and not (0 <= float(np.asarray(number)[()]) < most):
        raise ValueError(f"number must be that of a piece, from 0 to {most - 1}, got {number!r:.200}")
    number = jnp.asarray(number if _validate.is_traced(number) else np.asarray(number, np.float64), jnp.int32)
    inside = (number >= 0) & (number < most)
    at = sample.starts[:-1] + jnp.where(inside, number, 0)
    valid = inside & (at < sample.starts[1:])
    return sample.indices[jnp.minimum(at, most - 1)], valid


def over_pieces(sample: Sample, start: Total, add: Callable[[Total, jax.Array, jax.Array], Total]) -> Total:
    """``total = add(total, indices, valid)`` for each piece, from ``start``: one compiled body for all of them."""

    def more(carry: tuple[jax.Array, Total]) -> jax.Array:
        return carry[0] < sample.pieces

    def step(carry: tuple[jax.Array, Total]) -> tuple[jax.Array, Total]:
        number, total = carry
        return number + 1, add(total, *take_piece(sample, number))

    return jax.lax.while_loop(more, step, (jnp.int32(0), start))[1]
