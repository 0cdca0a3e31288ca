"""DP-SGD as an optax transformation: per-example gradients in, a private update out, a filter in its state."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.filters import Filter
from jaxacct.filters.marks import belongs
from jaxacct.training import checks as _check
from jaxacct.training import fixed_point
from jaxacct.training.clipping import add_clipped, global_norm
from jaxacct.training.fixed_point import FixedPointSum
from jaxacct.training.keys import Keys, check_keys, step_keys
from jaxacct.training.noise import add_gaussian_noise, largest_sigma, noise_length
from jaxacct.training.schedules import ReleasedValues, Schedule
from jaxacct.training.step import ask_filter


class FilteredAggregateState(NamedTuple):
    """What the transformation carries; ``optax.tree.get(opt_state, "halted")`` finds any of it inside a chain.

    Attributes:
        filter_state, released, keys, step, halted: as in :class:`jaxacct.training.TrainState`.
        schedule_state: the schedule's state, after the proposal below.
        sigma: float32, the noise multiplier of the next step.
        rate: float32, the rate at which the next batch must be sampled.
        inner: state of the transformation that runs on admitted updates only.
    """

    filter_state: Any
    schedule_state: Any
    sigma: jax.Array
    rate: jax.Array
    released: ReleasedValues
    keys: Keys
    step: jax.Array
    halted: jax.Array
    inner: Any


def filtered_aggregate(
    filter: Filter,
    schedule: Schedule,
    keys: Keys,
    *,
    clip_norm: float,
    size: int,
    then: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Clips per-example gradients, asks the filter, adds Gaussian noise: the first link of an ``optax.chain``.

    It replaces :func:`optax.contrib.differentially_private_aggregate` in a custom training loop::

        private = training.filtered_aggregate(budget, schedule, keys, clip_norm=1.0, size=len(x))
        optimizer = optax.chain(private, optax.adam(1e-3))
        gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(params, batch)
        updates, opt_state = optimizer.update(gradients, opt_state, params, valid=valid)

    **The loop must do the Poisson sampling**: every example in the batch by a coin of its own with probability
    ``optax.tree.get(opt_state, "rate")``, independent in every step, as :func:`jaxacct.training.poisson_sample` and
    :func:`jaxacct.training.sample_pieces` do it. A batch of fixed length holds the sample and padding, and ``valid``
    marks the sample; a sample longer than the batch must be added up piece by piece, never cut. Shuffled batches are
    not covered by the filter's guarantee. At rate 1 everyone is in every batch, and there is nothing to sample.

    A refusal returns zero updates, leaves this state (``then`` included) as it was, and sets ``halted``; nothing is
    admitted from then on. Links that come after it in a chain still see the zeros (momentum goes on rolling: that is
    post-processing and no loss of privacy); give them as ``then`` to have them stand still as well.

    The update is (sum of clipped gradients + noise) / (rate * size): the expected size of the sample, never the
    realised one. The sum is exact (:mod:`jaxacct.training.fixed_point`). Updates may also be a ``FixedPointSum`` from
    :func:`jaxacct.training.clipped_gradient_sum` with the same clip norm, which microbatches and shards; the last step
    of an approximate GDP filter, which needs a smaller clip norm, is then refused.

    Two updates from one state would use a step's noise twice; the loop must avoid that.

    Args:
        filter: from :mod:`jaxacct.filters`.
        schedule: from :mod:`jaxacct.training.schedules`; it sees the norm of the noisy gradient, and the accuracy on
            public data if ``update`` is given ``accuracy=`` now and then.
        keys: roots that nothing else uses, from :func:`jaxacct.training.fresh_keys`.
        clip_norm: L2 bound of each example's gradient.
        size: number of examples in the data set, a public constant.
        then: a transformation of the private average, run on admitted steps only.

    Returns:
        A transformation whose ``update(gradients, state, params, valid=None, accuracy=None)`` takes leaves (batch,
        *parameter shape), and ``valid``, (batch,) bool: which rows are in the sample (all, if not given).

    Raises:
        ValueError: an invalid clip norm or size; gradients of different batch lengths or of more than 2^18 rows.
    """
    _validate.methods("init", "update", filter=filter)
    _validate.instance(Schedule, schedule=schedule)
    check_keys(keys)
    _validate.scalar(_validate.positive, clip_norm=clip_norm)
    _validate.whole(size=size)
    then = optax.identity() if then is None else then
    _validate.methods("init", "update", then=then)
    inner = optax.with_extra_args_support(then)

    def init(params: optax.Params) -> FilteredAggregateState:
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
        updates: Any,
        state: Any,
        params: optax.Params | None = None,
        *,
        valid: ArrayLike | None = None,
        accuracy: ArrayLike | None = None,
        **more: Any,
    ) -> tuple[Any, FilteredAggregateState]:
        _validate.instance(FilteredAggregateState, state=state)
        shapes, rows = _shapes(updates)
        if valid is not None:
            _validate.numbers(valid=valid)
            if np.shape(valid) != (rows,):
                raise ValueError(f"valid must have shape {(rows,)}, one entry a row, got {np.shape(valid)}")
        if accuracy is not None:
            _validate.number(accuracy=accuracy)
        query = schedule.query(state.sigma, state.rate)
        admitted, filter_state, scale = ask_filter(filter, query, state.filter_state)
        admitted = admitted & ~state.halted & (state.sigma > 0) & (state.sigma <= largest_sigma(rows))
        if isinstance(updates, FixedPointSum):
            admitted = admitted & (scale == 1)

        def take() -> tuple[Any, FilteredAggregateState]:
            total = updates
            if not isinstance(updates, FixedPointSum):
                mask = jnp.ones(rows, bool) if valid is None else jnp.asarray(valid, bool)
                total = add_clipped(fixed_point.empty_sum(shapes, rows), updates, mask, clip_norm, clip_scale=scale)
            release = add_gaussian_noise(step_keys(state.keys, state.step).noise, total, state.sigma, clip_norm)
            expected = state.rate * jnp.float32(size)
            mean = jax.tree.map(lambda leaf, like: (leaf / expected).astype(like.dtype), release, shapes)
            noise_norm = noise_length(shapes, state.sigma, state.rate, clip_norm, size)
            released = state.released._replace(gradient_norm=global_norm(mean), noise_norm=noise_norm)
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

        def refuse() -> tuple[Any, FilteredAggregateState]:
            nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(take)[0])
            # A state of another filter is no end of its run.
            return nothing, state._replace(halted=state.halted | belongs(filter, state.filter_state))

        return jax.lax.cond(admitted, take, refuse)

    return optax.GradientTransformationExtraArgs(init, update)


def _shapes(updates: object) -> tuple[Any, int]:
    """One example's gradient as shapes, and how many rows there are (or may be, in a sum)."""
    if isinstance(updates, FixedPointSum):
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), updates.high), updates.size
    _check.floats(updates=updates)
    lengths = {leaf.shape[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(updates)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "updates must be per-example gradients, (batch, *parameter shape), of one batch length above 0, got "
            f"lengths {sorted(lengths)}"
        )
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), updates), lengths.pop()
