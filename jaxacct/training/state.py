"""The state that a training run carries, and the proposal and report of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._types import PyTree
from jaxacct.filters import Reason
from jaxacct.training import checks as _check
from jaxacct.training.keys import RootKeys, check_roots
from jaxacct.training.schedules import ReleasedValues, Schedule

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

if TYPE_CHECKING:
    import optax


class TrainState(NamedTuple):
    """Everything a run carries, as a pytree. Each part is a release or independent of the data (keys aside, and the
    accounts of a per-example filter).

    Attributes:
        params: pytree of float32 parameters.
        opt_state: the optimiser's state.
        filter_state: the filter's state; of a per-example filter *as private as the data*: never publish it, nor
            anything computed from it.
        schedule_state: the schedule's state.
        released: what the schedule may look at.
        keys: roots of the private randomness; whoever has them can remove the noise.
        step: () int32, admitted steps so far.
        halted: () bool, True from the first refusal (or last, clipped step) on.
        run: () uint32, a mark of what drew the batches so far, and of the filter that paid for an epoch of them; 0
            before the first step. A step of another sampler is refused, because its batches were not paid for.
    """

    params: PyTree
    opt_state: PyTree
    filter_state: PyTree
    schedule_state: PyTree
    released: ReleasedValues
    keys: RootKeys
    step: jax.Array
    halted: jax.Array
    run: jax.Array

    def with_accuracy(self, accuracy: ArrayLike) -> TrainState:
        """This state with a new held-out accuracy for the schedule to see. The held-out data must be public."""
        _validate.number(accuracy=accuracy)
        return self._replace(released=self.released.with_accuracy(accuracy))


class StepReport(NamedTuple):
    """The public report of one step, all scalars; nothing here is an un-noised statistic of private data.

    Attributes:
        admitted: bool; False means that nothing was released and the parameters are what they were.
        sigma: float32, the noise multiplier asked for.
        rate: float32, the sampling rate asked for.
        clip_scale: float32 in (0, 1]: the factor on the clip norm (below 1 only in a last, clipped step),
            so that the step's noise multiplier relative to its sensitivity is sigma / clip_scale.
        gradient_norm: float32, norm of the noisy averaged gradient (0 if refused).
        spent: the filter's spent budget after the step, in the filter's unit; -1 where every example has its own.
        budget_left: share of the filter's budget that is left after the step, in [0, 1]; -1 where every example has its
            own, which is private.
        reason: int32 of `jaxacct.filters.Reason`, why the step was admitted or refused; `jaxacct.filters.sentence` says
            it in words. ``FOREIGN_STATE`` is also that of a state of another sampler.
    """

    admitted: jax.Array
    sigma: jax.Array
    rate: jax.Array
    clip_scale: jax.Array
    gradient_norm: jax.Array
    spent: Array
    budget_left: jax.Array
    reason: jax.Array

    @property
    def foreign(self) -> jax.Array:
        """Whether the step was refused because its state is of another filter or another sampler."""
        return self.reason == Reason.FOREIGN_STATE


class Proposal(NamedTuple):
    """What a step asks for and what the filter says to it, before any private data is touched.

    Attributes:
        report: what the step reports if it was admitted, but for its gradient norm, which is 0 here.
        filter_state: the filter's state with the step charged, or as it was if refused.
        schedule_state: the schedule's state after its proposal.
    """

    report: StepReport
    filter_state: PyTree
    schedule_state: PyTree


def init_state(
    params: PyTree, optimizer: optax.GradientTransformation, filter: Filter, schedule: Schedule, keys: RootKeys
) -> TrainState:
    """The state before the first step. ``params`` must not have been fitted to the private data.

    Raises:
        ValueError: a parameter that is not a floating-point array; no optimizer, filter, schedule or keys.
    """
    _check.floats(params=params)
    _validate.methods("init", "update", optimizer=optimizer, filter=filter)
    _validate.instance(Schedule, schedule=schedule)
    check_roots(keys)
    state = TrainState(
        params=params,
        opt_state=optimizer.init(params),
        filter_state=filter.init(),
        schedule_state=schedule.init(),
        released=ReleasedValues.nothing(),
        keys=keys,
        step=jnp.int32(0),
        halted=jnp.bool_(False),
        run=jnp.uint32(0),
    )
    # Buffers of its own for every leaf: a donating step may then reuse them all, and the caller keeps theirs.
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)
