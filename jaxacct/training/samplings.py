"""The register of the ways to draw batches: each one's name, its mechanism, and its draw."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.float32 import no_more
from jaxacct.mechanisms import (
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
)
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training.sampling import poisson_sample

__all__ = ["SAMPLINGS"]


class Draw(NamedTuple):
    """How a mechanism draws batches.

    Attributes:
        who: ``who(key, step)``: the examples in the places of a batch and which places are taken, or None and a mask of
            all examples.
        places: of a batch, static.
        expected: size of a batch.
        moved: how far one record moves the sum, in clip norms.
    """

    who: Callable[[jax.Array, jax.Array], tuple[jax.Array | None, jax.Array]]
    places: int
    expected: float
    moved: float = 1.0


class Sampling(NamedTuple):
    """One way to draw batches.

    Attributes:
        kind: the type of its mechanisms.
        make: ``make(noise, rate, records, largest)``, a mechanism for noise in clip norms.
        draw: ``draw(mechanism, size)``, the `Draw` of a mechanism of that type.
    """

    kind: type[Mechanism]
    make: Callable[[ArrayLike, float, int, int | None], Mechanism]
    draw: Callable[[Any, int], Draw]


def steps_of_run(mechanism: Mechanism) -> int:
    """How many training steps one run of a mechanism is: the batches of an epoch, or 1."""
    return _whole(getattr(mechanism, "batches", 1))


def uniform_below(key: jax.Array, shape: tuple[int, ...], most: int) -> jax.Array:
    """Whole numbers in [0, ``most``), each with the same probability exactly: 32 random bits, rejected where uneven."""
    limit = jnp.uint32((2**32 // most) * most - 1)
    bits = functools.partial(jax.random.bits, shape=shape, dtype=jnp.uint32)

    def again(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, found = state
        key, own = jax.random.split(key)
        return key, jnp.where(found > limit, bits(own), found)

    first, rest = jax.random.split(key)
    _, found = jax.lax.while_loop(lambda state: (state[1] > limit).any(), again, (rest, bits(first)))
    return (found % jnp.uint32(most)).astype(jnp.int32)


def _permuted(key: jax.Array, size: int) -> jax.Array:
    """All indices in random order, every order with the same probability: by 64 random bits each, anew after a tie."""

    def tied(state: tuple[jax.Array, ...]) -> jax.Array:
        _, high, low, _ = state
        return ((high[1:] == high[:-1]) & (low[1:] == low[:-1])).any()

    def again(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        key, own = jax.random.split(state[0])
        high, low = jax.random.bits(own, (2, size), jnp.uint32)
        return key, *jax.lax.sort((high, low, jnp.arange(size, dtype=jnp.int32)), num_keys=2)

    return jax.lax.while_loop(tied, again, again((key,)))[3]


def _poisson(mechanism: PoissonSampled, size: int) -> Draw:
    rate = float(no_more(mechanism.rate))  # a smaller rate costs no more
    return Draw(lambda key, step: (None, poisson_sample(key, size, rate)), size, rate * size)


def _truncated(mechanism: TruncatedPoisson, size: int) -> Draw:
    _check_size(size, "records", mechanism.records)
    rate, largest = float(no_more(mechanism.rate)), _whole(mechanism.largest)

    def places(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        coins, order = jax.random.split(key)
        heads = poisson_sample(coins, size, rate)
        # Of too many, as many as fit, at random: in random order, heads first.
        order = _permuted(order, size)
        kept = order[jnp.argsort(~heads[order], stable=True)[:largest]]
        return kept, heads[kept]

    return Draw(places, largest, rate * size)


def _without_replacement(mechanism: SampledWithoutReplacement, size: int) -> Draw:
    _check_size(size, "dataset_size", mechanism.dataset_size)
    batch = _whole(mechanism.sample_size)
    return Draw(lambda key, step: (_permuted(key, size)[:batch], jnp.ones(batch, bool)), batch, batch, moved=2.0)


def _with_replacement(mechanism: SampledWithReplacement, size: int) -> Draw:
    _check_size(size, "records", mechanism.records)
    batch = _whole(mechanism.batch)
    return Draw(lambda key, step: (uniform_below(key, (batch,), size), jnp.ones(batch, bool)), batch, batch, moved=2.0)


def _allocated(mechanism: RandomAllocation, size: int) -> Draw:
    batches, participations = _whole(mechanism.batches), _whole(mechanism.participations)

    def places(key: jax.Array, step: jax.Array) -> tuple[None, jax.Array]:
        # Floyd's algorithm: a uniform set of k batches for every example.
        chosen: list[jax.Array] = []
        for number in range(participations):
            last = batches - participations + number
            batch = uniform_below(jax.random.fold_in(key, number), (size,), last + 1)
            taken = jnp.any(jnp.stack([batch == one for one in chosen]), 0) if chosen else jnp.zeros(size, bool)
            chosen.append(jnp.where(taken, last, batch))
        step = step.astype(jnp.int32)
        return None, jnp.any(jnp.stack([one == step for one in chosen]), 0)

    return Draw(places, size, size * participations / batches)


def _shuffled(mechanism: Shuffled, size: int) -> Draw:
    batches = _whole(mechanism.batches)
    batch = -(-size // batches)

    def places(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        at = step.astype(jnp.int32) * batch + jnp.arange(batch, dtype=jnp.int32)
        return _permuted(key, size)[jnp.minimum(at, size - 1)], at < size

    return Draw(places, batch, size / batches)


def _whole(value: ArrayLike) -> int:
    return int(np.asarray(value))


def _check_size(size: int, name: str, records: ArrayLike) -> None:
    if _whole(records) != size:
        raise ValueError(f"size must be the {name} of the mechanism, {_whole(records)}, got {size}")


def _batch(rate: float, records: int) -> int:
    return max(1, round(rate * records))


def _batches(rate: float) -> int:
    return max(1, round(1.0 / rate))


def _cut(noise: ArrayLike, rate: float, records: int, largest: int | None) -> Mechanism:
    """A `TruncatedPoisson`, by default at 6 standard deviations above the expected size."""
    if largest is None:
        largest = min(records, math.ceil(rate * records + 6.0 * math.sqrt(records * rate * (1.0 - rate))))
    return TruncatedPoisson(Gaussian(noise), rate, largest, records)


def _halved(noise: ArrayLike) -> Gaussian:
    """In a batch of fixed size a record takes the place of another one, which moves the sum by twice the clip norm."""
    return Gaussian(0.5 * np.asarray(noise))


SAMPLINGS: dict[str, Sampling] = {
    # A coin for each example.
    "poisson": Sampling(PoissonSampled, lambda noise, rate, n, _: PoissonSampled(Gaussian(noise), rate), _poisson),
    # The same, cut at random to the largest size.
    "truncated": Sampling(TruncatedPoisson, _cut, _truncated),
    # rate * size examples, rounded, every step anew.
    "fixed": Sampling(
        SampledWithoutReplacement,
        lambda noise, rate, n, _: SampledWithoutReplacement(_halved(noise), _batch(rate, n), n),
        _without_replacement,
    ),
    # So many draws from all examples.
    "replacement": Sampling(
        SampledWithReplacement,
        lambda noise, rate, n, _: SampledWithReplacement(_halved(noise), _batch(rate, n), n),
        _with_replacement,
    ),
    # The examples that drew it among the 1 / rate batches, rounded, of an epoch.
    "allocation": Sampling(
        RandomAllocation, lambda noise, rate, *_: RandomAllocation(Gaussian(noise), _batches(rate)), _allocated
    ),
    # A part of the shuffled examples, 1 / rate parts an epoch: as costly as an order that everyone knows.
    "shuffled": Sampling(Shuffled, lambda noise, rate, *_: Shuffled(Gaussian(noise), _batches(rate)), _shuffled),
}
"""The ways to draw batches, by their names: whoever adds one adds a line here, and its draw above."""
