"""DP-SGD as an optax transformation: per-example gradients in, a private update out, a filter in its state."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.filters import Filter
from jaxacct.filters.marks import belongs
from jaxacct.training import checks as _check
from jaxacct.training.gradients import fixed_point
from jaxacct.training.gradients.clipping import add_clipped, global_norm
from jaxacct.training.gradients.fixed_point import FixedPointSum
from jaxacct.training.gradients.noise import noise_length, usable_sigma
from jaxacct.training.gradients.quantile_clip import AdaptiveClip, as_clip
from jaxacct.training.keys import RootKeys, check_roots, step_keys
from jaxacct.training.release import averaged
from jaxacct.training.schedules import ReleasedValues, Schedule
from jaxacct.training.step import ask_clipped


class FilteredAggregateState(NamedTuple):
    """What the transformation carries; ``optax.tree.get(opt_state, "halted")`` finds any of it inside a chain.

    Attributes:
        filter_state, released, keys, step, halted: as in :class:`jaxacct.training.TrainState`.
        schedule_state: the schedule's state, after the proposal below.
        sigma: float32, the noise multiplier of the next step.
        rate: float32, the rate at which the next batch must be sampled.
        inner: state of the transformation that runs on admitted updates only.
    """

    filter_state: PyTree
    schedule_state: PyTree
    sigma: jax.Array
    rate: jax.Array
    released: ReleasedValues
    keys: RootKeys
    step: jax.Array
    halted: jax.Array
    inner: PyTree


def filtered_aggregate(
    filter: Filter,
    schedule: Schedule,
    keys: RootKeys,
    *,
    clip_norm: float | AdaptiveClip,
    size: int,
    then: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Clips per-example gradients, asks the filter, adds Gaussian noise: the first link of an ``optax.chain``.

    It replaces :func:`optax.contrib.differentially_private_aggregate` in a custom training loop::

        private = training.filtered_aggregate(budget, schedule, keys, clip_norm=1.0, size=len(x))
        optimizer = optax.chain(private, optax.adam(1e-3))
        gradients = training.per_example_gradients(loss, params, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params, valid=valid)

    It must be the first link, and see the whole tree of parameters and every batch: what stands before or around it
    (``optax.masked``, ``MultiSteps``, ``apply_if_finite``) sees gradients without noise. The page
    docs/how-to/dp-sgd-under-a-filter.md has a table of what is right and what is wrong.

    **The loop must do the Poisson sampling**: every example in the batch by a coin of its own with probability
    ``optax.tree.get(opt_state, "rate")``, independent in every step, as :func:`jaxacct.training.poisson_sample` and
    :func:`jaxacct.training.sample_pieces` do it. A batch of fixed length holds the sample and padding, and ``valid``
    marks the sample; a sample longer than the batch must be added up piece by piece, never cut. A row must not have its
    place in the batch by its rank in the sample (docs/proofs/training.md): leave unsampled rows where they are, marked
    in ``valid``, or take what `sample_pieces` gives. Shuffled batches are not covered by the filter's guarantee. At
    rate 1 everyone is in every batch, and there is nothing to sample.

    A refusal returns zero updates, leaves this state (``then`` included) as it was, and sets ``halted``; nothing is
    admitted from then on. Links that come after it in a chain still see the zeros (momentum goes on rolling: that is
    post-processing and no loss of privacy); give them as ``then`` to have them stand still as well.

    The update is (sum of clipped gradients + noise) / (rate * size): the expected size of the sample, never the
    realised one. The sum is exact (:mod:`jaxacct.training.gradients.fixed_point`). Updates may also be a
    ``FixedPointSum`` from :func:`jaxacct.training.clipped_gradient_sum` with the same clip norm, which microbatches and
    shards; one that moves is ``clip.at(optax.tree.get(opt_state, "clip_norm"))`` at present. The last step of an
    approximate GDP filter, which needs a smaller clip norm, is then refused.

    Two updates from one state would use a step's noise twice; the loop must avoid that.

    Args:
        filter: from :mod:`jaxacct.filters`.
        schedule: from :mod:`jaxacct.training.schedules`; it sees the norm of the noisy gradient, and the accuracy on
            public data if ``update`` is given ``accuracy=`` now and then.
        keys: roots that nothing else uses, from :func:`jaxacct.training.fresh_keys`.
        clip_norm: L2 bound of each example's gradient, in [1e-12, 1e12]; or one that moves with releases, from
            :func:`jaxacct.training.adaptive_clip`: the present one stands in ``released``.
        size: number of examples in the data set, a public constant.
        then: a transformation of the private average, run on admitted steps only.

    Returns:
        A transformation whose ``update(gradients, state, params, valid=None, accuracy=None)`` takes leaves (batch,
        *parameter shape), and ``valid``, (batch,) bool: which rows are in the sample. Without it all are, of a batch
        that the loop sampled; a batch of ``size`` rows or more then is refused unless the schedule has everyone in
        every step.

    Raises:
        ValueError: an invalid clip norm or size; gradients that are not one row an example for all of ``params`` (a
            mean, a part of the tree, no ``params``), or of more than 2^18 rows; everyone's gradients without ``valid``.
    """
    _validate.methods("init", "update", filter=filter)
    _validate.instance(Schedule, schedule=schedule)
    check_roots(keys)
    rule = as_clip(clip_norm)
    _validate.scalar(_check.clip_norms, clip_norm=rule.norm)
    _validate.whole(size=size)
    then = optax.identity() if then is None else then
    _validate.methods("init", "update", then=then)
    inner = optax.with_extra_args_support(then)

    def init(params: optax.Params) -> FilteredAggregateState:
        _check_whole(params)
        released = ReleasedValues.nothing()
        sigma, rate, schedule_state = schedule.propose(jnp.int32(0), schedule.init(), released)
        return FilteredAggregateState(
            filter_state=filter.init(),
            schedule_state=schedule_state,
            sigma=jnp.asarray(sigma, jnp.float32),
            rate=jnp.asarray(rate, jnp.float32),
            released=released,
            keys=keys,
            step=jnp.int32(0),
            halted=jnp.bool_(False),
            inner=inner.init(params),
        )

    def update(
        updates: PyTree,
        state: PyTree,
        params: optax.Params | None = None,
        *,
        valid: ArrayLike | None = None,
        accuracy: ArrayLike | None = None,
        **more: object,
    ) -> tuple[PyTree, FilteredAggregateState]:
        _validate.instance(FilteredAggregateState, state=state)
        shapes, rows = _shapes(updates, params, rule)
        summed = isinstance(updates, FixedPointSum)
        if valid is None and not summed and rows >= size and not schedule.full_batch:
            raise ValueError(
                f"valid must say which rows are in the sample, got none and {rows} rows of {size} examples: all would "
                "take part at the price of a sample (flax's TrainState.apply_gradients cannot pass valid: call "
                "tx.update and optax.apply_updates)"
            )
        if valid is not None:
            _validate.numbers(valid=valid)
            if np.shape(valid) != (rows,):
                raise ValueError(f"valid must have shape {(rows,)}, one entry a row, got {np.shape(valid)}")
        if accuracy is not None:
            _validate.number(accuracy=accuracy)
        query = schedule.query(state.sigma, state.rate)
        if summed:  # clipped already: whole steps only
            (admitted, filter_state), scale = filter.update(query, state.filter_state), jnp.float32(1.0)
        else:
            admitted, filter_state, scale = ask_clipped(filter, query, state.filter_state)
        admitted = admitted & ~state.halted & usable_sigma(state.sigma, rows) & (state.rate > 0) & (state.rate <= 1)

        def take() -> tuple[PyTree, FilteredAggregateState]:
            total, released = updates, state.released
            clip = rule.at(released.clip_norm)
            if not summed:
                mask = jnp.ones(rows, bool) if valid is None else jnp.asarray(valid, bool)
                start = fixed_point.empty_sum(clip.added(shapes), rows)
                total = add_clipped(start, updates, mask, clip, clip_scale=scale)
            expected = state.rate * jnp.float32(size)
            mean, following = averaged(step_keys(state.keys, state.step).noise, total, state.sigma, clip, expected)
            mean = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), mean, shapes)
            noise_norm = noise_length(shapes, state.sigma, state.rate, clip.bound, size)
            released = released._replace(
                gradient_norm=global_norm(mean), noise_norm=noise_norm, clip_norm=following.told
            )
            if accuracy is not None:
                released = released.with_accuracy(accuracy)
            sigma, rate, schedule_state = schedule.propose(state.step + 1, state.schedule_state, released)
            moved, inner_state = inner.update(mean, state.inner, params, **more)
            return moved, state._replace(
                filter_state=filter_state,
                schedule_state=schedule_state,
                sigma=jnp.asarray(sigma, jnp.float32),
                rate=jnp.asarray(rate, jnp.float32),
                released=released,
                step=state.step + 1,
                halted=scale < 1,
                inner=inner_state,
            )

        def refuse() -> tuple[PyTree, FilteredAggregateState]:
            nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(take)[0])
            # A state of another filter is no end of its run.
            return nothing, state._replace(halted=state.halted | belongs(filter, state.filter_state))

        return jax.lax.cond(admitted, take, refuse)

    return optax.GradientTransformationExtraArgs(init, update)


def _shapes(updates: object, params: object, clip: AdaptiveClip) -> tuple[PyTree, int]:
    """One example's gradient as shapes, and how many rows there are (or may be, in a sum).

    Raises ValueError unless there is one row an example, or a sum, for every parameter. The gradient of a mean has rows
    too where all its leaves have one length, and would be clipped row by row.
    """
    if params is None:
        raise ValueError("params must be given, update(gradients, state, params): they tell rows from one gradient")
    _check_whole(params)
    structure, shapes = _validate.shapes(params)
    if isinstance(updates, FixedPointSum):
        structure, wanted = _validate.shapes(clip.added(params))
        found, rows = _validate.shapes(updates.high), updates.size
        single = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.float32), params)
    else:
        _check.floats(updates=updates)
        found = _validate.shapes(updates)
        rows = max((shape[0] for shape in found[1] if shape), default=0)
        wanted = [(rows, *shape) for shape in shapes]
        single = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), updates)
    if found != (structure, wanted) or not rows:
        raise ValueError(
            "updates must be per-example gradients, (batch, *parameter shape) for every parameter of params, of shapes "
            f"{shapes}, got {found[1]}: take them with training.per_example_gradients(loss, params, batch), "
            "of the loss of one example, not of a mean"
        )
    return single, rows


def _check_whole(params: object) -> None:
    """Raises ValueError where an optax wrapper hid some of the parameters."""
    leaves = jax.tree.leaves(params, is_leaf=lambda leaf: isinstance(leaf, optax.MaskedNode))
    if any(isinstance(leaf, optax.MaskedNode) for leaf in leaves):
        raise ValueError(
            "params must be the whole tree, got one with masked parts: optax.masked, multi_transform or partition "
            "around filtered_aggregate let the gradients of the other parts pass without noise; put the aggregate "
            "first in optax.chain, and such a wrapper after it or into then="
        )
