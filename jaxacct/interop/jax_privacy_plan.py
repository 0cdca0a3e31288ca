"""A filter inside jax_privacy's own training loop: a plan for its ``DPTrainer`` (from 2.3 on)."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxacct import _validate
from jaxacct._numerics.float32 import no_less
from jaxacct._types import PyTree
from jaxacct.filters import Filter
from jaxacct.training.gradients.clipping import global_norm
from jaxacct.training.gradients.noise import gaussian_tree
from jaxacct.training.keys import RootKeys, fresh_keys, step_keys
from jaxacct.training.schedules import ReleasedValues, Schedule


class FilteredNoiseState(NamedTuple):
    """What the noise of a `FilteredConfig` carries: ``TrainingState.noise_state``.

    Attributes:
        filter_state: the filter's state.
        schedule_state: the schedule's state, after the proposal below.
        sigma: float32, the noise multiplier of the next step.
        keys: roots of the noise: whoever has them can remove it.
        step: int32, admitted steps so far.
        halted: bool, True from the first refusal on.
    """

    filter_state: PyTree
    schedule_state: PyTree
    sigma: jax.Array
    keys: RootKeys
    step: jax.Array
    halted: jax.Array


class BudgetSpent(Exception):
    """Ends ``DPTrainer.fit`` when the filter has refused a step.

    Attributes:
        state: the ``TrainingState`` to go on with; the refused step released nothing.
    """

    def __init__(self, state: PyTree):
        super().__init__(f"the filter refused a step after {int(state.noise_state.step)} admitted ones")
        self.state = state


def stop_when_spent(step: int, state: PyTree, aux: object) -> None:
    """A callback for ``DPTrainer.fit``: raises `BudgetSpent` once the filter has refused a step."""
    if bool(state.noise_state.halted):
        raise BudgetSpent(state)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilteredConfig:
    """An ``ExecutionPlanConfig`` of jax_privacy that asks a filter before every step::

        schedule = training.schedules.constant(1.0, rate, 5000)
        plan = interop.FilteredConfig(filter=budget, schedule=schedule, expected_batch=256)
        trainer = jax_privacy.training.DPTrainer(config=plan, loss_fn=loss, optimizer=optax.adam(1e-3))
        try:
            state = trainer.fit((x, y), params, callback=interop.stop_when_spent)
        except interop.BudgetSpent as spent:
            state = spent.state
        budget.guarantee.epsilon(1e-5)

    Clipping, batch selection (plain Poisson samples) and the loop are jax_privacy's; the noise is drawn here, because
    its multiplier may depend on releases. A refused step releases nothing: its gradient is zero, and so are all later
    ones.

    The guarantee is the filter's, for adding or removing one example and for real arithmetic: jax_privacy sums in
    floating point (:mod:`jaxacct.training` is exact there). The plan's ``dp_event`` is ``UnsupportedDpEvent``, because
    no event that is fixed in advance describes a run of this kind.

    Attributes:
        filter: from :mod:`jaxacct.filters`.
        schedule: from :mod:`jaxacct.training.schedules`, of one sampling rate below 1; it sees the norm of the noisy
            gradient, and no accuracy. Its planned steps are the most that ``fit`` runs.
        expected_batch: the public number that noisy sums are divided by.
        l2_clip_norm: L2 bound C of each example's gradient.

    Raises:
        ValueError: a schedule of several rates, or of rate 1; an argument that is not above 0.
    """

    filter: Filter
    schedule: Schedule
    expected_batch: float
    l2_clip_norm: float = 1.0

    def __post_init__(self) -> None:
        _validate.methods("init", "update", filter=self.filter)
        _validate.instance(Schedule, schedule=self.schedule)
        _validate.scalar(_validate.positive, expected_batch=self.expected_batch, l2_clip_norm=self.l2_clip_norm)
        rates = sorted({rate for _, rate in self.schedule.levels})
        if len(rates) != 1 or self.schedule.full_batch:
            raise ValueError(f"schedule must have one sampling rate below 1, got {rates}")

    def make(self, performance_flags: Any = None) -> Any:
        """The ``DPExecutionPlan``; of the flags, all but ``noise_seed`` and ``intermediate_strategy`` are used."""
        import dp_accounting
        import optax

        # By name: jax_privacy is in no extra, and a module beside this one has its name.
        batch_selection, clipping, execution_plan = (
            importlib.import_module(f"jax_privacy.{name}") for name in ("batch_selection", "clipping", "execution_plan")
        )
        flags = execution_plan.PerformanceFlags() if performance_flags is None else performance_flags

        kept = {name: getattr(flags, name) for name in ("dtype", "microbatch_size", "spmd_axis_name", "keep_batch_dim")}
        selection = batch_selection.CyclicPoissonSampling(
            sampling_prob=self.schedule.levels[0][1],
            iterations=self.schedule.steps,
            partition_type=batch_selection.PartitionType.INDEPENDENT,
        )
        return execution_plan.DPExecutionPlan(
            clipped_grad=functools.partial(
                clipping.clipped_grad, l2_clip_norm=self.l2_clip_norm, rescale_to_unit_norm=False, **kept
            ),
            batch_selection_strategy=selection,
            noise_addition_transform=optax.GradientTransformation(self._init, self._update),
            dp_event=dp_accounting.UnsupportedDpEvent(),
            neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
        )

    def _init(self, params: object) -> FilteredNoiseState:
        sigma, _, schedule_state = self.schedule.propose(jnp.int32(0), self.schedule.init(), ReleasedValues.nothing())
        return FilteredNoiseState(
            filter_state=self.filter.init(),
            schedule_state=schedule_state,
            sigma=jnp.asarray(sigma, jnp.float32),
            keys=fresh_keys(),
            step=jnp.int32(0),
            halted=jnp.bool_(False),
        )

    def _update(self, updates: PyTree, state: PyTree, params: object = None) -> tuple[PyTree, FilteredNoiseState]:
        query = self.schedule.query(state.sigma, jnp.float32(self.schedule.levels[0][1]))
        # Whole steps only: a smaller clip norm of a last one would have to be known before the gradients are clipped.
        admitted, filter_state = self.filter.update(query, state.filter_state)
        admitted = admitted & (state.sigma > 0) & ~state.halted

        def take() -> tuple[object, FilteredNoiseState]:
            noise = gaussian_tree(step_keys(state.keys, state.step).noise, updates)
            deviation = jnp.nextafter(state.sigma * no_less(self.l2_clip_norm), jnp.inf)  # rounded up
            divisor = jnp.float32(self.expected_batch)
            add = lambda leaf, drawn: ((leaf + deviation * drawn) / divisor).astype(leaf.dtype)  # noqa: E731
            mean = jax.tree.map(add, updates, noise)
            dimension = sum(leaf.size for leaf in jax.tree.leaves(updates))
            noise_norm = deviation * jnp.float32(dimension**0.5) / divisor
            released = ReleasedValues.nothing()._replace(gradient_norm=global_norm(mean), noise_norm=noise_norm)
            sigma, _, schedule_state = self.schedule.propose(state.step + 1, state.schedule_state, released)
            return mean, state._replace(
                filter_state=filter_state,
                schedule_state=schedule_state,
                sigma=jnp.asarray(sigma, jnp.float32),
                step=state.step + 1,
            )

        def refuse() -> tuple[object, FilteredNoiseState]:
            return jax.tree.map(jnp.zeros_like, updates), state._replace(halted=jnp.bool_(True))

        return jax.lax.cond(admitted, take, refuse)
