"""One private training step: the filter is asked first, and a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.filters import Filter
from jaxacct.filters.amounts import outward
from jaxacct.filters.described import word_of
from jaxacct.filters.marks import belongs
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training import checks as _check
from jaxacct.training.checks import Loss, Params
from jaxacct.training.clipping import clipped_gradient_sum, global_norm
from jaxacct.training.keys import StepKeys, check_step_keys, step_keys
from jaxacct.training.noise import add_gaussian_noise, check_sigma, noise_length, usable_sigma
from jaxacct.training.sampling import poisson_sample
from jaxacct.training.schedules import Schedule
from jaxacct.training.sharding import number_of
from jaxacct.training.state import Proposal, SplitStep, StepReport, TrainState

_COINS = np.uint32(word_of("a coin for each example in each step"))


def noisy_gradient(
    loss: Loss[Params],
    params: Params,
    data: object,
    keys: StepKeys,
    *,
    sigma: ArrayLike,
    rate: ArrayLike,
    clip_norm: ArrayLike,
    clip_scale: ArrayLike = 1.0,
    physical_batch: int = 256,
    full_batch: bool = False,
    size: int | None = None,
) -> Params:
    """The subsampled Gaussian release of one step: (sum of clipped gradients + noise) / (rate * size).

    The divisor is the *expected* size of the sample, never the realised one, which is private.

    Args:
        loss: ``loss(params, example)``, a scalar for one example without a batch axis.
        params: pytree of float arrays.
        data: pytree of arrays (size, ...), or :func:`jaxacct.training.shard_examples` of it.
        keys: this step's keys, from :func:`jaxacct.training.step_keys`; never the roots, which repeat themselves.
        sigma: noise multiplier: the noise has standard deviation sigma * clip_norm, or a float32 rounding more: no
            less than a filter charges for that number, however it came into the program.
        rate: probability of each example to take part, in (0, 1], or a rounding less.
        clip_norm: L2 bound C of each example's gradient, in [1e-12, 1e12].
        clip_scale: factor in [0, 1] on that bound, not on the noise.
        physical_batch: most per-example gradients in memory at once (on each device), static.
        full_batch: everyone takes part and no coins are thrown, static; ``rate`` is 1 then.
        size: a public number of examples, static. The default is the number in ``data``, which is then public: adding
            or removing an example changes it.

    Returns:
        A pytree like ``params``, float32; NaN where a traced number is out of range.

    Raises:
        ValueError: roots for keys, parameters that are not floating point, data of different lengths, a loss that is no
            scalar, concrete numbers that are none or out of range.
    """
    check_step_keys(keys)
    _validate.truth(full_batch=full_batch)
    count = number_of(data)
    size = count if size is None else size
    _validate.whole(size=size)
    _check.clip_norms(clip_norm=clip_norm)
    _validate.number(_validate.rate, clip_scale=clip_scale)
    check_sigma(sigma, count)
    _validate.number(_validate.positive, _validate.rate, rate=rate)
    if full_batch and not _validate.is_traced(rate) and float(np.asarray(rate)) != 1:
        raise ValueError(f"rate must be 1 with full_batch, where everyone takes part, got {rate!r:.200}")
    coins, places = jax.random.split(keys.sampling)
    mask = jnp.ones(count, bool) if full_batch else poisson_sample(coins, count, rate)
    total = clipped_gradient_sum(
        loss, params, data, mask, clip_norm, clip_scale=clip_scale, physical_batch=physical_batch, key=places
    )
    release = add_gaussian_noise(keys.noise, total, sigma, clip_norm)
    rate = jnp.asarray(1.0 if full_batch else rate, jnp.float32)
    expected = jnp.where((rate > 0) & (rate <= 1), rate, jnp.nan) * jnp.float32(size)
    return jax.tree.map(lambda leaf: leaf / expected, release)


def make_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    filter: Filter | None,
    schedule: Schedule,
    *,
    clip_norm: float,
    physical_batch: int = 256,
    donate: bool = False,
    size: int | None = None,
) -> Callable[[TrainState, object], tuple[TrainState, StepReport]]:
    """A jitted ``step(state, data) -> (state, report)`` that asks the filter first.

    Only if the filter admits the step are examples sampled, gradients clipped and noised, and parameters moved.

    The query that the filter is charged with is built here from the very float32 numbers that the step is then
    given. A refusal returns parameters, optimiser and filter state bit for bit as they were and sets
    ``halted``; a halted run admits nothing any more. A state of another filter, or of a `make_sampled_step`, is
    refused as it is, with ``report.foreign``. A filter with an ``update_clipped(query, state)`` method
    (approximate GDP, Algorithm 2 of the f-DP filters paper) may shrink the clip norm of one last step to
    what the budget still pays for; that step is released and is the last.

    Args:
        loss, clip_norm, physical_batch, size: as in :func:`noisy_gradient`.
        optimizer: any optax transformation; it sees noisy gradients only.
        filter: an object with the protocol of :mod:`jaxacct.filters`; ``None`` accounts for nothing
            (benchmarks).
        schedule: from :mod:`jaxacct.training.schedules`.
        donate: reuse the state's buffers, so that the state passed in is gone after the call.

    Raises:
        ValueError: ``clip_norm`` not a finite number above 0, or a physical batch or size below 1.
    """
    return joined(_halves(loss, optimizer, filter, schedule, clip_norm, physical_batch, size), donate)


def make_split_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    filter: Filter,
    schedule: Schedule,
    *,
    clip_norm: float,
    physical_batch: int = 256,
    donate: bool = False,
    size: int | None = None,
) -> SplitStep:
    """The step of :func:`make_step` in two halves, for :func:`jaxacct.training.durable_run`.

    Arguments and errors as in :func:`make_step`. Call ``take`` only with a proposal that ``ask`` made for that very
    state: ``take`` does not check it.
    """
    _validate.truth(donate=donate)
    ask, take, adaptive = _halves(loss, optimizer, filter, schedule, clip_norm, physical_batch, size)
    return SplitStep(jax.jit(ask, static_argnums=1), jax.jit(take, donate_argnums=(0,) if donate else ()), adaptive)


def _halves(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    filter: Filter | None,
    schedule: Schedule,
    clip_norm: float,
    physical_batch: int,
    size: int | None,
) -> SplitStep:
    """The halves of a step, not compiled."""
    loss = _check.losses(loss)
    _validate.methods("init", "update", optimizer=optimizer)
    if filter is not None:
        _validate.methods("init", "update", "spent", "fraction", filter=filter)
    _validate.instance(Schedule, schedule=schedule)
    _validate.scalar(_check.clip_norms, clip_norm=clip_norm)
    _validate.whole(physical_batch=physical_batch)
    if size is not None:
        _validate.whole(size=size)

    def ask(state: TrainState, size: int) -> Proposal:
        sigma, rate, schedule_state = schedule.propose(state.step, state.schedule_state, state.released)
        sigma, rate = jnp.asarray(sigma, jnp.float32), jnp.asarray(rate, jnp.float32)  # as the release uses them
        admitted, charged, scale = ask_clipped(filter, schedule.query(sigma, rate), state.filter_state)
        # Coins of one step each: nothing is left from a run that a state without a mark was paid for.
        own = belongs(filter, state.filter_state) & ((state.run == _COINS) | (state.run == 0))
        admitted = admitted & own & ~state.halted & usable_sigma(sigma, size) & (rate > 0) & (rate <= 1)
        charged = jax.tree.map(lambda new, old: jnp.where(admitted, new, old), charged, state.filter_state)
        report = StepReport(admitted, sigma, rate, scale, jnp.float32(0.0), *budget_of(filter, charged), ~own)
        return Proposal(report, charged, schedule_state)

    def mean(state: TrainState, report: StepReport, data: object) -> Any:
        return noisy_gradient(
            loss,
            state.params,
            data,
            step_keys(state.keys, state.step),
            sigma=report.sigma,
            rate=report.rate,
            clip_norm=clip_norm,
            clip_scale=report.clip_scale,
            physical_batch=physical_batch,
            full_batch=schedule.full_batch,
            size=size,
        )

    return SplitStep(ask, taking(optimizer, mean, clip_norm, _COINS, size), schedule.is_adaptive)


def taking(
    optimizer: optax.GradientTransformation,
    mean: Callable[[TrainState, StepReport, object], Any],
    clip_norm: float,
    mark: np.uint32,
    public: int | None = None,
) -> Callable[[TrainState, Proposal, object], tuple[TrainState, StepReport]]:
    """The ``take`` of a `SplitStep` that moves along ``mean(state, report, data)``, the noisy average gradient.

    ``mark`` is of what draws the batches.
    """

    def take(state: TrainState, proposal: Proposal, data: object) -> tuple[TrainState, StepReport]:
        size = number_of(data) if public is None else public
        report = proposal.report

        def run(state: TrainState) -> tuple[TrainState, jax.Array]:
            gradient = mean(state, report, data)
            params, opt_state, norm = updated(optimizer, gradient, state.params, state.opt_state)
            noise_norm = noise_length(state.params, report.sigma, report.rate, clip_norm, size)
            moved = state._replace(
                params=params,
                opt_state=opt_state,
                filter_state=proposal.filter_state,
                schedule_state=proposal.schedule_state,
                released=state.released._replace(gradient_norm=norm, noise_norm=noise_norm),
                step=state.step + 1,
                halted=report.clip_scale < 1,
                run=jnp.uint32(mark),
            )
            return moved, norm

        def refuse(state: TrainState) -> tuple[TrainState, jax.Array]:
            return state._replace(halted=state.halted | ~report.foreign), jnp.float32(0.0)

        state, norm = jax.lax.cond(report.admitted, run, refuse, state)
        return state, report._replace(gradient_norm=norm)

    return take


def joined(split: SplitStep, donate: bool) -> Callable[[TrainState, object], tuple[TrainState, StepReport]]:
    """The two halves as one jitted ``step(state, data) -> (state, report)``."""
    _validate.truth(donate=donate)

    def step(state: TrainState, data: object) -> tuple[TrainState, StepReport]:
        return split.take(state, split.ask(state, number_of(data)), data)

    return jax.jit(step, donate_argnums=(0,) if donate else ())


def updated(
    optimizer: optax.GradientTransformation, gradient: optax.Updates, params: optax.Params, opt_state: optax.OptState
) -> tuple[Any, optax.OptState, jax.Array]:
    """Parameters and optimiser state after an update along ``gradient``, and the gradient's norm."""
    gradient = jax.tree.map(lambda new, old: new.astype(old.dtype), gradient, params)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, global_norm(gradient)


def ask_clipped(filter: Filter | None, query: Mechanism, state: Any) -> tuple[jax.Array, Any, jax.Array]:
    """``(admitted, new state, factor on the clip norm)``; a factor that is not above 0 is a refusal.

    A filter without ``update_clipped`` admits whole steps only, whose factor is 1.
    """
    if filter is None:
        return jnp.bool_(True), state, jnp.float32(1.0)
    clipped = getattr(filter, "update_clipped", None)
    if clipped is None:
        admitted, state = filter.update(query, state)
        return jnp.asarray(admitted), state, jnp.float32(1.0)
    admitted, state, scale = clipped(query, state)
    found = jnp.asarray(scale)
    found = outward(found, "float32", up=False) if found.dtype == "float64" else found.astype(jnp.float32)
    scale = jnp.minimum(found, 1.0)
    return jnp.asarray(admitted) & (scale > 0), state, scale


def budget_of(filter: Filter | None, state: object) -> tuple[jax.Array, jax.Array]:
    """``(spent, share left)`` in a state of ``filter``."""
    if filter is None:
        return jnp.float32(0.0), jnp.float32(1.0)
    left = 1.0 - jnp.asarray(filter.fraction(state), jnp.float32)
    return filter.spent(state), jnp.clip(left, 0.0, 1.0)
