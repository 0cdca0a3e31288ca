"""Samplers that draw what a mechanism was accounted for, and a training step that is charged for that very mechanism.

`sampler` reads everything off the mechanism that the filter is asked with: who is in a batch, how often a batch is
drawn anew, and how large noise is. So the draw and the account cannot disagree.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.filters import Filter
from jaxacct.filters.described import word_of
from jaxacct.filters.marks import belongs, hashed, mark_of, row_of
from jaxacct.filters.menus.priced_menu import PricedMenuFilter, menu
from jaxacct.mechanisms import (
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
)
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.training import checks as _check
from jaxacct.training.checks import Loss
from jaxacct.training.clipping import gradient_sum_of_sample
from jaxacct.training.keys import step_keys
from jaxacct.training.noise import add_gaussian_noise
from jaxacct.training.sampling import Sample, draw_lanes, in_lanes, lanes_of, poisson_sample
from jaxacct.training.schedules import least_float32
from jaxacct.training.state import Proposal, SplitStep, StepReport, TrainState
from jaxacct.training.step import budget_of, joined, taking


@dataclasses.dataclass(frozen=True, eq=False)
class Sampler:
    """Draws the batches of a mechanism; make it with `sampler`. Static: a program holds it as a constant.

    Attributes:
        mechanism: the mechanism that one run is accounted for as.
        size: number of examples, public.
        steps: training steps in one run of the mechanism: the batches of an epoch, or 1.
        capacity: places of a sample, static; no sample has more examples.
        expected: the public number that sums are divided by.
        noise_multiplier: standard deviation of the noise, in clip norms; a float32, rounded up.
        draw: ``draw(key, step) -> Sample`` of step ``step`` (from 0) of a run whose root of coins is ``key``; jittable.
    """

    mechanism: Mechanism
    size: int
    steps: int
    capacity: int
    expected: float
    noise_multiplier: float
    draw: Callable[[jax.Array, ArrayLike], Sample]

    def filter(self, epsilon: float, delta: float) -> PricedMenuFilter:
        """A filter whose menu is this mechanism alone, at position 0: a query is one run of it.

        Raises:
            ValueError: see :func:`jaxacct.filters.menu`.
        """
        return menu([self.mechanism], epsilon=epsilon, delta=delta)


def sampler(mechanism: Any, size: int, *, piece: int = 256) -> Sampler:
    """The sampler of a `PoissonSampled`, `TruncatedPoisson`, `SampledWithoutReplacement`, `SampledWithReplacement`,
    `RandomAllocation` or `Shuffled` Gaussian.

    Args:
        mechanism: with concrete scalar parameters. A fixed-size sample has the sensitivity of *replaced* records, twice
            the clip norm, and so has its noise.
        size: number of examples, public; the ``records`` or ``dataset_size`` of mechanisms that have one.
        piece: most examples in a piece of a sample, see :func:`jaxacct.training.take_piece`; 8 on a CPU.

    Raises:
        ValueError: another mechanism, parameters that are not concrete scalars, or another number of examples.
    """
    _validate.whole(size=size, piece=piece)
    size, piece = int(size), int(piece)
    mechanism = as_mechanism(mechanism)
    made = _DRAWS.get(type(mechanism))
    if made is None:
        names = ", ".join(kind.__name__ for kind in _DRAWS)
        raise ValueError(f"mechanism must be one of {names}, got {type(mechanism).__name__}")
    if any(np.ndim(leaf) or _validate.is_traced(leaf) for leaf in jax.tree.leaves(mechanism)):
        raise ValueError("mechanism must have concrete scalar parameters to draw from")
    noise = as_mechanism(mechanism.mechanism)._gaussian_noise()
    if noise is None:
        raise ValueError(f"mechanism must sample a Gaussian, got {type(mechanism.mechanism).__name__}")
    drawn = made(mechanism, size)
    piece = lanes_of(piece, drawn.places)

    def draw(key: jax.Array, step: ArrayLike) -> Sample:
        step = jnp.asarray(step, jnp.uint32)
        # One key for each run of the mechanism: an epoch's batches are parts of one draw. Lanes are new in each batch.
        run, places = jax.random.split(jax.random.fold_in(key, step // drawn.steps))
        indices, valid = drawn.who(run, step % drawn.steps)
        lanes = draw_lanes(jax.random.fold_in(places, step % drawn.steps), drawn.places, piece)
        sample = in_lanes(valid, lanes, piece)
        return sample if indices is None else dataclasses.replace(sample, indices=indices[sample.indices])

    least_noise = least_float32(drawn.moved * noise)
    return Sampler(mechanism, size, drawn.steps, drawn.places, float(drawn.expected), least_noise, draw)


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


class _Draw(NamedTuple):
    """How a mechanism draws batches.

    ``who(key, step)`` gives the examples in the places of a batch and which places are taken, or None and a mask of
    all examples; ``expected`` is the size of a batch, ``steps`` how many one run of the mechanism has, and ``moved``
    how far one record moves the sum, in clip norms.
    """

    who: Callable[[jax.Array, jax.Array], tuple[jax.Array | None, jax.Array]]
    places: int
    expected: float
    steps: int = 1
    moved: float = 1.0


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


def _poisson(mechanism: Any, size: int) -> _Draw:
    rate = _below(mechanism.rate)
    return _Draw(lambda key, step: (None, poisson_sample(key, size, rate)), size, float(rate) * size)


def _truncated(mechanism: Any, size: int) -> _Draw:
    _same(size, records=mechanism.records)
    rate, largest = _below(mechanism.rate), int(mechanism.largest)

    def places(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        coins, order = jax.random.split(key)
        heads = poisson_sample(coins, size, rate)
        # Of too many, as many as fit, at random: in random order, heads first.
        order = _permuted(order, size)
        kept = order[jnp.argsort(~heads[order], stable=True)[:largest]]
        return kept, heads[kept]

    return _Draw(places, largest, float(rate) * size)


def _without_replacement(mechanism: Any, size: int) -> _Draw:
    _same(size, dataset_size=mechanism.dataset_size)
    batch = int(mechanism.sample_size)
    return _Draw(lambda key, step: (_permuted(key, size)[:batch], jnp.ones(batch, bool)), batch, batch, moved=2.0)


def _with_replacement(mechanism: Any, size: int) -> _Draw:
    _same(size, records=mechanism.records)
    batch = int(mechanism.batch)
    return _Draw(lambda key, step: (uniform_below(key, (batch,), size), jnp.ones(batch, bool)), batch, batch, moved=2.0)


def _allocated(mechanism: Any, size: int) -> _Draw:
    batches, participations = int(mechanism.batches), int(mechanism.participations)

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

    return _Draw(places, size, size * participations / batches, steps=batches)


def _shuffled(mechanism: Any, size: int) -> _Draw:
    batches = int(mechanism.batches)
    batch = -(-size // batches)

    def places(key: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
        at = step.astype(jnp.int32) * batch + jnp.arange(batch, dtype=jnp.int32)
        return _permuted(key, size)[jnp.minimum(at, size - 1)], at < size

    return _Draw(places, batch, size / batches, steps=batches)


_DRAWS: dict[type[Mechanism], Callable[[Any, int], _Draw]] = {
    PoissonSampled: _poisson,
    TruncatedPoisson: _truncated,
    SampledWithoutReplacement: _without_replacement,
    SampledWithReplacement: _with_replacement,
    RandomAllocation: _allocated,
    Shuffled: _shuffled,
}


def _below(rate: Any) -> np.float32:
    """The largest float32 that is no larger: a smaller rate costs no more."""
    found = np.float32(rate)
    return found if float(found) <= float(rate) else np.nextafter(found, np.float32(0.0))


def _same(size: int, **named: Any) -> None:
    for name, value in named.items():
        if int(value) != size:
            raise ValueError(f"size must be the {name} of the mechanism, {int(value)}, got {size}")


def make_sampled_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    filter: Filter,
    sampler: Sampler,
    *,
    clip_norm: float,
    donate: bool = False,
) -> Callable[[TrainState, object], tuple[TrainState, StepReport]]:
    """A jitted ``step(state, data) -> (state, report)`` of constant noise on the sampler's batches.

    The filter is asked at the first step of every run of the mechanism: before each batch, or once an epoch of
    `RandomAllocation` and `Shuffled`, which is then paid for as a whole. A refusal changes nothing and halts the run.

    A state goes on under the sampler and the filter that it began with: under another mechanism, number of examples or
    filter every step is refused, with ``report.foreign``, and the state stays as it is. To change the sampler or the
    filter, begin with new keys and the old account: ``init_state(...)._replace(filter_state=state.filter_state)``, or
    what `jaxacct.filters.lower_budget` makes of it.

    Args:
        loss, optimizer, clip_norm, donate: as in :func:`jaxacct.training.make_step`.
        filter: ``sampler.filter(epsilon, delta)``, which is asked for position 0 of its menu; or any filter that takes
            ``sampler.mechanism`` as a query.
        sampler: from `sampler`.

    Raises:
        ValueError: a ``clip_norm`` that is not a finite number above 0, or no sampler.
    """
    loss = _check.losses(loss)
    _validate.methods("init", "update", optimizer=optimizer)
    _validate.methods("init", "update", "spent", "fraction", filter=filter)
    _validate.instance(Sampler, sampler=sampler)
    _validate.scalar(_check.clip_norms, clip_norm=clip_norm)
    query = 0 if isinstance(filter, PricedMenuFilter) else sampler.mechanism
    # Of the filter as well: a fresh account of another one has not paid for the epoch that the batches are from.
    paid = mark_of(filter)
    mark = hashed(word_of((sampler.mechanism, sampler.size)), [] if paid is None else [row_of(paid)])
    sigma, rate = jnp.float32(sampler.noise_multiplier), jnp.float32(sampler.expected / sampler.size)
    if isinstance(filter, PricedMenuFilter) and np.shape(filter.prices)[-1:] != (1,):
        raise ValueError("filter must have the sampler's mechanism alone on its menu: sampler.filter(epsilon, delta)")

    def ask(state: TrainState, size: int) -> Proposal:
        if size != sampler.size:
            raise ValueError(f"data must hold {sampler.size} examples, got {size}")
        first = state.step % sampler.steps == 0
        fits, charged = filter.update(query, state.filter_state)
        # The later batches of an epoch are free because this sampler's epoch was paid for, by this filter.
        own = belongs(filter, state.filter_state) & ((state.run == mark) | ((state.run == 0) & (state.step == 0)))
        admitted = own & ~state.halted & (~first | fits)
        charged = jax.tree.map(lambda new, old: jnp.where(first & admitted, new, old), charged, state.filter_state)
        report = StepReport(
            admitted, sigma, rate, jnp.float32(1.0), jnp.float32(0.0), *budget_of(filter, charged), ~own
        )
        return Proposal(report, charged, state.schedule_state)

    def mean(state: TrainState, report: StepReport, data: object) -> Any:
        sample = sampler.draw(state.keys.sampling, state.step)
        total = gradient_sum_of_sample(loss, state.params, data, sample, clip_norm)
        release = add_gaussian_noise(step_keys(state.keys, state.step).noise, total, report.sigma, clip_norm)
        return jax.tree.map(lambda leaf: leaf / jnp.float32(sampler.expected), release)

    return joined(SplitStep(ask, taking(optimizer, mean, clip_norm, mark), False), donate)
