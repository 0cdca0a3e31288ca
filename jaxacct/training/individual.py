"""DP-SGD under an individual filter: every example pays for its own gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.filters.marks import belongs
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.training import checks as _check
from jaxacct.training.checks import Loss, Params
from jaxacct.training.clipping import clipped_gradient_sum, global_norm
from jaxacct.training.keys import RootKeys, check_roots, step_keys
from jaxacct.training.noise import add_gaussian_noise, usable_sigma
from jaxacct.training.sampling import poisson_sample
from jaxacct.training.step import updated

# What is charged is a hair more than the norm was computed to be, so that the clipping to it, which allows for the
# rounding of its own norm, leaves a gradient as it is.
_HAIR = 1 + 2.0**-12


class IndividualTrainState(NamedTuple):
    """Everything a run carries, as a pytree.

    Attributes:
        params, opt_state, keys, step: as in :class:`jaxacct.training.TrainState`.
        accounts: the filter's state. *As private as the data*: never publish it, nor anything computed from it.
    """

    params: Any
    opt_state: Any
    accounts: Any
    keys: RootKeys
    step: jax.Array


def gradient_norms(loss: Loss[Params], params: Params, data: object, *, physical_batch: int = 256) -> jax.Array:
    """The norm of every example's gradient at ``params``, (size,) float32; what every example is charged for.

    ``loss`` and ``data`` as in :func:`jaxacct.training.make_step`; ``physical_batch`` is the most per-example gradients
    in memory at once, static. Every row has its place in the program by its index: what a row is charged for depends on
    no other row, as long as they keep their rows.
    """
    _validate.whole(physical_batch=physical_batch)
    _check.floats(params=params)
    physical_batch = min(int(physical_batch), _check.rows(data=data))
    loss, data = _check.losses(loss), jax.tree.map(jnp.asarray, data)
    return jax.lax.map(lambda example: global_norm(jax.grad(loss)(params, example)), data, batch_size=physical_batch)


def init_individual(
    params: Any, optimizer: optax.GradientTransformation, filter: Any, keys: RootKeys
) -> IndividualTrainState:
    """The state before the first step. ``params`` must not have been fitted to the private data.

    Raises:
        ValueError: a parameter that is not a floating-point array; no optimizer, filter or keys.
    """
    _check.floats(params=params)
    _validate.methods("init", "update", optimizer=optimizer)
    _validate.methods("init", "update", "bounds", filter=filter)
    check_roots(keys)
    state = IndividualTrainState(params, optimizer.init(params), filter.init(), keys, jnp.int32(0))
    # Buffers of its own for every leaf: a donating step may then reuse them all, and the caller keeps theirs.
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)


def make_individual_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    filter: Any,
    *,
    clip_norm: float,
    physical_batch: int = 256,
    norms: Callable[[Any, Any], jax.Array] | None = None,
    donate: bool = False,
    size: int | None = None,
) -> Callable[[IndividualTrainState, object, ArrayLike, ArrayLike], tuple[IndividualTrainState, jax.Array]]:
    """A jitted ``step(state, data, sigma, rate) -> (state, gradient_norm)`` in which each example pays for itself.

    Every example's gradient norm at the current parameters is charged to its own account, sampled or not. Then coins
    decide which of the examples that take part are in the sample. Each gradient is clipped to the norm *that was
    charged* (so the charge covers the contribution whatever ``norms`` computes, and however a compiler rounds), summed
    exactly, and noised. An example with no budget left contributes exactly nothing. The sum is divided by rate times
    ``size``, a public number: the number of participants is private, and so is the number of records. ``data`` has one
    row for each account of the filter; rows that stand for nobody may be added to it, of a gradient that is 0.

    Nothing stops a run: choose the number of steps beforehand or from released quantities, and ``sigma`` and ``rate``
    likewise (they may change from step to step). docs/how-to/individual-budgets.md says what the guarantee asks.

    The cost is one pass over all gradients for their norms, however small the rate, which is what individual accounting
    takes; where a norm has a closed form (linear layers), give ``norms``.

    Args:
        loss, optimizer, physical_batch, donate: as in :func:`jaxacct.training.make_step`.
        filter: from `jaxacct.filters.per_example`
            for as many examples as ``data`` will hold; charged in units of the clip norm.
        clip_norm: L2 bound C of each example's gradient; the noise has standard deviation sigma * C.
        norms: ``norms(params, data)``, (size,): everybody's gradient norm, example by example; by default
            :func:`gradient_norms`. Too small a value clips that gradient, too large a one overcharges.
        size: the public number of examples that sums are divided by; by default the number of the filter's accounts.

    Returns:
        A step whose second result is the norm of the noisy averaged gradient, which is released. A ``sigma`` that is
        not in [2^-24, `largest_sigma`] or a ``rate`` that is not in (0, 1] releases nothing and leaves the state as it
        was, and so does a state whose accounts are another filter's.

    Raises:
        ValueError: ``clip_norm`` not a finite number above 0, or a physical batch or size below 1; a filter that does
            not say for how many examples it is, where no size is given.
    """
    loss = _check.losses(loss)
    _validate.methods("init", "update", optimizer=optimizer)
    _validate.methods("init", "update", "bounds", filter=filter)
    _validate.scalar(_check.clip_norms, clip_norm=clip_norm)
    _validate.whole(physical_batch=physical_batch)
    if norms is not None:
        _validate.function(norms=norms)
    _validate.truth(donate=donate)
    accounts = getattr(filter, "examples", None)
    public = accounts if size is None else size
    if public is None:
        raise ValueError(f"size must be given for a filter without a number of examples, got None and {filter!r:.200}")
    _validate.whole(size=public)

    def step(
        state: IndividualTrainState, data: object, sigma: ArrayLike, rate: ArrayLike
    ) -> tuple[IndividualTrainState, jax.Array]:
        size = _check.rows(data=data)
        if accounts is not None and size != accounts:
            raise ValueError(f"data must hold one row for each of the filter's {accounts} accounts, got {size} rows")
        _validate.instance(IndividualTrainState, state=state)
        _validate.number(sigma=sigma, rate=rate)
        # The query is built from the very float32 numbers that the draws are then given.
        sigma, rate = jnp.asarray(sigma, jnp.float32), jnp.asarray(rate, jnp.float32)

        def take(state: IndividualTrainState) -> tuple[IndividualTrainState, jax.Array]:
            query = PoissonSampled(Gaussian(sigma), rate)
            of_all = norms or (lambda p, d: gradient_norms(loss, p, d, physical_batch=min(physical_batch, size)))
            lengths = of_all(state.params, data)
            _validate.real_arrays(norms=lengths)
            if np.shape(lengths) != (size,):
                raise ValueError(f"norms must return one norm an example, shape {(size,)}, got {np.shape(lengths)}")
            charged = jnp.asarray(lengths, jnp.float32) / jnp.float32(clip_norm) * _HAIR
            _, accounts = filter.update(query, charged, state.accounts)
            bounds = filter.bounds(query, charged, accounts)
            keys = step_keys(state.keys, state.step)
            coins, places = jax.random.split(keys.sampling)
            mask = poisson_sample(coins, size, rate) & (bounds > 0)
            total = clipped_gradient_sum(
                loss, state.params, data, mask, clip_norm, clip_scale=bounds, physical_batch=physical_batch, key=places
            )
            release = add_gaussian_noise(keys.noise, total, sigma, clip_norm)
            gradient = jax.tree.map(lambda leaf: leaf / (rate * public), release)
            params, opt_state, norm = updated(optimizer, gradient, state.params, state.opt_state)
            return IndividualTrainState(params, opt_state, accounts, state.keys, state.step + 1), norm

        own = belongs(filter, state.accounts)
        usable = own & usable_sigma(sigma, size) & (rate > 0) & (rate <= 1)
        return jax.lax.cond(usable, take, lambda state: (state, jnp.float32(0.0)), state)

    return jax.jit(step, donate_argnums=(0,) if donate else ())
