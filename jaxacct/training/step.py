"""One private training step: the filter is asked first, and a refusal changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._types import Fields, PyTree
from jaxacct.filters import Filter, Reason, sentence
from jaxacct.filters.amounts import outward
from jaxacct.filters.base import ExamplesFilter, LastStepFilter, ReasonFilter
from jaxacct.filters.described import word_of
from jaxacct.filters.marks import belongs, hashed, mark_of, row_of
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training import checks as _check
from jaxacct.training.accounts import charged, gradient_norms
from jaxacct.training.checks import Loss
from jaxacct.training.gradients.clipping import global_norm
from jaxacct.training.gradients.noise import noise_length, usable_sigma
from jaxacct.training.gradients.quantile_clip import AdaptiveClip, as_clip
from jaxacct.training.keys import step_keys
from jaxacct.training.release import noisy_gradient
from jaxacct.training.samplers import Sampler
from jaxacct.training.schedules import Schedule
from jaxacct.training.selection import select
from jaxacct.training.sharding import number_of
from jaxacct.training.state import Proposal, StepReport, TrainState

if TYPE_CHECKING:
    import optax

_COINS = np.uint32(word_of("a coin for each example in each step"))


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A step, called as ``step(state, data) -> (state, report)``; and its two halves, for a `durable_run`.

    Attributes:
        whole: jitted; what a call runs.
        ask: jitted ``ask(state, size) -> Proposal`` for ``size`` examples (static); touches no data.
        take: jitted ``take(state, proposal, data) -> (state, report)``; runs the step if it was admitted. Only for a
            proposal that ``ask`` made for that very state, which is not checked.
        adaptive: whether ``ask`` looks at releases, so that a step cannot be asked for before the one before it ran.
        unkept: why a journal cannot hold its charges; empty where one can.
        sentence: a report's reason in words, with the numbers of a query that is outside of the filter's range.
    """

    whole: Callable[[TrainState, object], tuple[TrainState, StepReport]]
    ask: Callable[[TrainState, int], Proposal]
    take: Callable[[TrainState, Proposal, object], tuple[TrainState, StepReport]]
    adaptive: bool
    unkept: str
    sentence: Callable[[StepReport], str]

    def __call__(self, state: TrainState, data: object) -> tuple[TrainState, StepReport]:
        """The state after the step, and its report."""
        return self.whole(state, data)


def make_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    filter: Filter,
    schedule: Schedule,
    *,
    clip_norm: float | AdaptiveClip,
    sampler: Sampler | None = None,
    accounts: Callable[[PyTree, PyTree], jax.Array] | None = None,
    has_aux: bool = False,
    physical_batch: int = 256,
    donate: bool = False,
    size: int | None = None,
) -> Step:
    """A jitted ``step(state, data) -> (state, report)`` that asks the filter first.

    Only if the filter admits the step are examples sampled, gradients clipped and noised, and parameters moved.

    The query that the filter is charged with is built here from the very float32 numbers that the step is then
    given. A refusal returns parameters, optimiser and filter state bit for bit as they were and sets
    ``halted``; a halted run admits nothing any more. A filter with an ``update_clipped(query, state)`` method
    (approximate GDP, Algorithm 2 of the f-DP filters paper) may shrink the clip norm of one last step to
    what the budget still pays for; that step is released and is the last.

    *With a sampler* the filter is asked at the first step of every run of its mechanism: before each batch, or once an
    epoch of `RandomAllocation` and `Shuffled`, which is then paid for as a whole.

    *With a per-example filter* every example's gradient norm at the current parameters is charged to its own account,
    sampled or not, and its gradient is clipped to what was charged. An example with no budget left contributes exactly
    nothing, and no step is refused but one of numbers out of range. ``state.filter_state`` is then as private as the
    data. ``data`` has one row for each account; rows that stand for nobody may be added, of a gradient that is 0.

    A state goes on under the filter and the sampler that it began with: under others every step is refused, with
    ``report.foreign``, and the state stays as it is. To change them, begin with new keys and the old account:
    ``init_state(...)._replace(filter_state=state.filter_state)``, or what `jaxacct.filters.lower_budget` makes of it.

    Args:
        loss, clip_norm, physical_batch, size, has_aux: as in :func:`jaxacct.training.noisy_gradient`. With a
            per-example filter ``size`` is by default the number of its accounts. A clip norm that moves stands in
            ``state.released``; not with a per-example filter.
        optimizer: any optax transformation; it sees noisy gradients only.
        filter: an object with the protocol of :mod:`jaxacct.filters`, or a per-example filter.
        schedule: from :mod:`jaxacct.training.schedules`; with a sampler ``sampler.schedule(steps)``.
        sampler: from :func:`jaxacct.training.sampler`: draws the batches. Without one everyone throws a coin.
        accounts: ``accounts(params, data)``, (size,): the gradient norms that a per-example filter charges; by default
            ``gradient_norms``, example by example. Too small a value clips that gradient, too large a one overcharges.
        donate: reuse the state's buffers, so that the state passed in is gone after the call.

    Raises:
        ValueError: ``clip_norm`` not a finite number above 0, or a physical batch or size below 1; a schedule of other
            noise than the sampler's; ``accounts`` or a sampler that do not go with the filter.
    """
    loss = _check.scalar_loss(loss, has_aux)
    _validate.methods("init", "update", optimizer=optimizer)
    _validate.methods("init", "update", "spent", "fraction", filter=filter)
    _validate.instance(Schedule, schedule=schedule)
    rule = as_clip(clip_norm)
    _validate.scalar(_check.clip_norms, clip_norm=rule.norm)
    _validate.whole(physical_batch=physical_batch)
    _validate.truth(donate=donate)
    each = isinstance(filter, ExamplesFilter)
    if rule.counts and each:
        raise ValueError("clip_norm must be one number for a filter with an account for each example: counts cost too")
    if accounts is not None:
        _validate.function(accounts=accounts)
        _validate.methods("bounds", filter=filter)  # which has an account for each example
    size = getattr(filter, "examples", None) if each and size is None else size
    if size is not None:
        _validate.whole(size=size)
    if sampler is not None:
        _check_sampled(sampler, schedule, each)
    norms = accounts or (lambda params, data: gradient_norms(loss, params, data, physical_batch=physical_batch))
    # With a sampler, of the filter too: another one's fresh account has not paid for the epoch that batches are from.
    mark = _COINS if sampler is None else _mark(sampler, filter)

    def ask(state: TrainState, size: int) -> Proposal:
        sigma, rate, schedule_state = schedule.propose(state.step, state.schedule_state, state.released)
        sigma, rate = jnp.asarray(sigma, jnp.float32), jnp.asarray(rate, jnp.float32)  # as the release uses them
        usable = usable_sigma(sigma, size) & (rate > 0) & (rate <= 1)
        # What an epoch was not paid for is not drawn, and coins of one step each leave nothing unpaid behind.
        first = jnp.bool_(True) if sampler is None else sampler.begins(state.step)
        own = belongs(filter, state.filter_state) & ((state.run == mark) | ((state.run == 0) & first))
        if each:
            fits, after, scale = jnp.bool_(True), state.filter_state, jnp.float32(1.0)
            reason = jnp.int32(Reason.ADMITTED)
        else:
            query = schedule.query(sigma, rate) if sampler is None else sampler.query(filter)
            fits, after, scale = ask_clipped(filter, query, state.filter_state)
            reason = _reason(filter, query, state.filter_state, fits)
        reason = jnp.where(first, reason, Reason.ADMITTED)
        reason = jnp.where(usable, reason, Reason.INVALID)
        reason = jnp.where(state.halted, Reason.HALTED, reason)
        reason = jnp.where(own, reason, Reason.FOREIGN_STATE).astype(jnp.int32)
        admitted = reason == Reason.ADMITTED
        after = select(first & admitted, after, state.filter_state)
        budget = (jnp.float32(-1.0), jnp.float32(-1.0)) if each else budget_of(filter, after)
        report = StepReport(admitted, sigma, rate, scale, jnp.float32(0.0), *budget, reason)
        return Proposal(report, after, schedule_state)

    def take(state: TrainState, proposal: Proposal, data: object) -> tuple[TrainState, StepReport]:
        rows, report = number_of(data), proposal.report
        if each and rows != (held := getattr(filter, "examples", rows)):
            raise ValueError(f"data must hold one row for each of the filter's {held} accounts, got {rows} rows")
        public = rows if size is None else size
        coins: Fields = {"sigma": report.sigma, "rate": report.rate, "full_batch": schedule.full_batch, "size": size}
        drawn: Fields = coins | {"physical_batch": physical_batch} if sampler is None else {"sampler": sampler}

        def run(state: TrainState) -> tuple[TrainState, jax.Array]:
            after, scale, clip = proposal.filter_state, report.clip_scale, rule.at(state.released.clip_norm)
            if each:
                query = schedule.query(report.sigma, report.rate)
                after, scale = charged(filter, query, norms(state.params, data), clip.bound, after, rows)
            keys = step_keys(state.keys, state.step)
            found = noisy_gradient(loss, state.params, data, keys, clip_norm=clip, clip_scale=scale, **drawn)
            gradient, following = found if clip.counts else (found, clip)
            params, opt_state, norm = updated(optimizer, gradient, state.params, state.opt_state)
            noise_norm = noise_length(state.params, report.sigma, report.rate, clip.bound, public)
            moved = state._replace(
                params=params,
                opt_state=opt_state,
                filter_state=after,
                schedule_state=proposal.schedule_state,
                released=state.released._replace(gradient_norm=norm, noise_norm=noise_norm, clip_norm=following.told),
                step=state.step + 1,
                halted=report.clip_scale < 1,
                run=jnp.uint32(mark),
            )
            return moved, norm

        def refuse(state: TrainState) -> tuple[TrainState, jax.Array]:
            return state._replace(halted=state.halted | ~report.foreign), jnp.float32(0.0)

        state, norm = jax.lax.cond(report.admitted, run, refuse, state)
        return state, report._replace(gradient_norm=norm)

    def whole(state: TrainState, data: object) -> tuple[TrainState, StepReport]:
        return take(state, ask(state, number_of(data)), data)

    def told(report: StepReport) -> str:
        query = schedule.query(report.sigma, report.rate) if sampler is None else sampler.query(filter)
        return sentence(report.reason, filter, query)

    unkept = "accounts of each example are private, and a journal would hold them" if each else ""
    if sampler is not None and sampler.steps > 1:
        unkept = "a resumed run would draw the batches of an epoch that was begun a second time"
    given = (0,) if donate else ()
    return Step(
        jax.jit(whole, donate_argnums=given),
        jax.jit(ask, static_argnums=1),
        jax.jit(take, donate_argnums=given),
        schedule.is_adaptive,
        unkept,
        told,
    )


def _check_sampled(sampler: Sampler, schedule: Schedule, each: bool) -> None:
    _validate.instance(Sampler, sampler=sampler)
    if each:
        raise ValueError("sampler must be left out for a filter with an account for each example: they throw coins")
    wanted = sampler.schedule(1).levels
    if schedule.levels != wanted:
        raise ValueError(
            f"schedule must have the sampler's noise and rate, {wanted[0]}, in every step, got "
            f"{schedule.levels!r:.200}: pass sampler.schedule(steps)"
        )


def _mark(sampler: Sampler, filter: Filter) -> Array:
    paid = mark_of(filter)
    return hashed(word_of((sampler.mechanism, sampler.size)), [] if paid is None else [row_of(paid)])


def updated(
    optimizer: optax.GradientTransformation, gradient: optax.Updates, params: optax.Params, opt_state: optax.OptState
) -> tuple[PyTree, optax.OptState, jax.Array]:
    """Parameters and optimiser state after an update along ``gradient``, and the gradient's norm."""
    import optax  # what reads a run asks filters as a step does, and has no optimiser

    gradient = jax.tree.map(lambda new, old: new.astype(old.dtype), gradient, params)
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, global_norm(gradient)


def ask_clipped(filter: Filter, query: Mechanism | int, state: PyTree) -> tuple[jax.Array, PyTree, jax.Array]:
    """``(admitted, new state, factor on the clip norm)``; a factor that is not above 0 is a refusal.

    A filter without ``update_clipped`` admits whole steps only, whose factor is 1.
    """
    if not isinstance(filter, LastStepFilter):
        admitted, state = filter.update(query, state)
        return jnp.asarray(admitted), state, jnp.float32(1.0)
    admitted, state, scale = filter.update_clipped(query, state)
    found = jnp.asarray(scale)
    found = outward(found, "float32", up=False) if found.dtype == "float64" else found.astype(jnp.float32)
    scale = jnp.minimum(found, 1.0)
    return jnp.asarray(admitted) & (scale > 0), state, scale


def _reason(filter: Filter, query: object, state: PyTree, admitted: jax.Array) -> Array:
    """What the filter says to a query that it was asked; of a filter of the user's own no more than "spent"."""
    if isinstance(filter, ReasonFilter):
        return filter.reason(query, state, admitted=admitted)
    return jnp.where(admitted, Reason.ADMITTED, Reason.SPENT)


def budget_of(filter: Filter, state: object) -> tuple[Array, jax.Array]:
    """``(spent, share left)`` in a state of ``filter``."""
    left = 1.0 - jnp.asarray(filter.fraction(state), jnp.float32)
    return filter.spent(state), jnp.clip(left, 0.0, 1.0)
