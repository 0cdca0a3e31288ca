"""Ex-post DP-SGD: train with a growing budget until a private validation set says that it is enough.

A run is a list of rounds. Round i trains for a fixed number of DP-SGD steps whose Rényi divergences, at one order fixed
in advance, bring the sum up to the i-th budget; then the parameters are checked against validation records that are
private too, and the first round that passes is the last.

What is claimed, and no more: all parameters of all steps, the check's answers and the stop, together with the returned
epsilon, are alpha-ex-post Rényi private (the paper on accuracy-first Rényi privacy: Section 4, composition with fully
adaptive bounds, for the steps, each charged with the very noise it used; Algorithm 1 for the stop), for neighbours of
which one has one record more, in the training or in the validation part. It is asked of the data that

* the two parts were made record by record, as `divided` does, so that a record more or less changes one of them only;
* the sizes of both parts are public constants, as everywhere in this room.

What is not claimed: no epsilon in advance but the last budget (`jaxacct.expost.ex_ante` turns the larger one of it and
the check's epsilon into an ordinary guarantee); no noise reduction, so that earlier rounds are paid in full; nothing
about records that were in both parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from jaxacct import _validate, expost
from jaxacct._numerics.float32 import no_less
from jaxacct._numerics.roots import crossing
from jaxacct._numerics.rounding import deflated
from jaxacct._types import Array
from jaxacct.expost.loop import Released
from jaxacct.expost.parameters import check_sizes
from jaxacct.losses.renyi import renyi
from jaxacct.mechanisms import Composed
from jaxacct.training import checks as _check
from jaxacct.training.checks import Tree
from jaxacct.training.gradients.cpu_forms import in_cpu_form
from jaxacct.training.gradients.noise import largest_sigma
from jaxacct.training.keys import RootKeys, check_roots, fresh_keys, step_keys
from jaxacct.training.release import noisy_gradient
from jaxacct.training.sampling import lanes_of, over_pieces, poisson_sample, sample_pieces
from jaxacct.training.schedules import step_mechanism
from jaxacct.training.step import updated

if TYPE_CHECKING:
    from jaxacct.training.demo.models import Network

_State: TypeAlias = tuple[optax.Params, optax.OptState]

_SIGMAS = 0.05, 1e4


class Rounds(NamedTuple):
    """The growing budgets of a run's rounds, fixed before it starts.

    Attributes:
        sigmas: the noise multiplier of each round's steps, float32 values.
        rate: the sampling rate of every step, a float32 value in (0, 1].
        steps: how many steps a round takes.
        order: the Rényi order, above 1.
        budgets: the divergence that all rounds up to this one cost at most.
    """

    sigmas: tuple[float, ...]
    rate: float
    steps: int
    order: float
    budgets: tuple[float, ...]

    def query(self, number: int) -> Composed:
        """Round ``number`` (from 0) as a mechanism, of the float32 numbers that its steps use."""
        sigma, rate = float(np.float32(self.sigmas[number])), float(np.float32(self.rate))
        return Composed([step_mechanism(sigma, rate)], [self.steps])


def plan_rounds(budgets: Sequence[float], *, order: float, rate: float, steps: int) -> Rounds:
    """The least noise with which round i, of ``steps`` steps, costs ``budgets[i] - budgets[i - 1]`` at ``order``.

    Args:
        budgets: Rényi divergences, rising; at least one.
        order: above 1. Whole orders make cheaper sums.
        rate: in (0, 1].
        steps: of each round.

    Raises:
        ValueError: values out of range, or a round that costs too much with a noise multiplier of 10,000.
    """
    _validate.scalar(order=order, rate=rate, steps=steps)
    _validate.greater(1.0, order=order)
    _validate.rate(rate=rate)
    _validate.positive(rate=rate, budgets=budgets)
    _validate.count(steps=steps)
    rate, row = float(np.float32(rate)), np.asarray(budgets, np.float64)
    if row.ndim != 1 or not row.size or np.any(np.diff(row) <= 0):
        raise ValueError(f"budgets must be one rising row, got {row.tolist()}")
    # A hair less, for the roundings of the sum.
    each = deflated(np.diff(row, prepend=0.0) / steps, 1e-9)

    def costs_more(logs: Array) -> tuple[np.ndarray, np.ndarray]:
        more = np.asarray(renyi(step_mechanism(np.exp(logs), rate), order)) - each
        return ~(more <= 0.0), more

    low, high = (np.full(row.size, np.log(edge)) for edge in _SIGMAS)
    if np.any(costs_more(high)[0]):
        raise ValueError(
            f"budgets must rise by more for {steps} steps a round, got {row.tolist()}: "
            f"noise multipliers are at most {_SIGMAS[1]:g}"
        )
    _, high = crossing(costs_more, low, high)
    sigmas = tuple(np.asarray(no_less(np.exp(high)), np.float64).tolist())
    return Rounds(sigmas, rate, int(steps), float(order), tuple(map(float, row)))


def divided(key: jax.Array, examples: Tree, share: float) -> tuple[Tree, Tree]:
    """``examples`` in two disjoint parts, by a coin for each record that knows nothing of the others; NumPy arrays.

    ``key`` serves nothing else. ``share`` is the probability of a record to be in the first part, in (0, 1).
    """
    _validate.scalar(_validate.probability, share=share)
    first = np.asarray(poisson_sample(key, _check.rows(examples=examples), share))

    def part(chosen: np.ndarray) -> Tree:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], examples)

    return part(first), part(~first)


def fit_until_accurate(
    model: Network,
    optimizer: optax.GradientTransformation,
    rounds: Rounds,
    train: tuple[ArrayLike, ArrayLike],
    validation: tuple[ArrayLike, ArrayLike],
    *,
    threshold: float,
    check_epsilon: float,
    sparse: bool = False,
    clip_norm: float = 1.0,
    keys: RootKeys | None = None,
    physical_batch: int = 256,
    progress: Callable[[str], object] | None = None,
) -> Released:
    """Trains round by round until the noisy validation accuracy reaches ``threshold``; see the module for the claim.

    Args:
        model: parameters not fitted to either part, ``loss(params, (x, y))`` of one example, ``logits(params, x)``.
        optimizer, clip_norm, physical_batch: as in :func:`jaxacct.training.make_step`.
        rounds: from `plan_rounds`, made without looking at the data.
        train: (x, y), the private examples, n of them; n is public.
        validation: (x, y), disjoint from ``train`` (`divided`), private as well; its length is public.
        threshold: the accuracy to reach, in (0, 1), public.
        check_epsilon: Rényi divergence, at the rounds' order, of all answers of the check together.
        sparse: ask by a sparse vector, which publishes no scores, instead of by Gaussian accuracies.
        keys: from `fresh_keys`, which is the default.
        progress: called with a line of text after each round, published facts only.

    Returns:
        `jaxacct.expost.loop.Released`: ``result.output`` are the last round's parameters, ``result.epsilon`` is the
        larger one of the sum of what the rounds cost and ``check_epsilon``, ``scores`` the noisy accuracies. With one
        round there is nothing to stop, and the check is asked once all the same.

    Raises:
        ValueError: arguments out of range, noise that the exact sums cannot hold.
    """
    _validate.scalar(_validate.probability, threshold=threshold)
    _validate.scalar(_check.clip_norms, clip_norm=clip_norm)
    _validate.scalar(check_epsilon=check_epsilon)
    check_sizes(check_epsilon=check_epsilon)
    threshold, check_epsilon = float(threshold), float(check_epsilon)
    _validate.whole(physical_batch=physical_batch)
    _validate.methods("init", "update", optimizer=optimizer)
    _validate.instance(Rounds, rounds=rounds)
    _validate.truth(sparse=sparse)
    for part in ("loss", "logits"):
        _validate.function(**{f"model.{part}": getattr(model, part, None)})
    _check.floats(**{"model.params": model.params})
    for name, part in (("train", train), ("validation", validation)):
        if not (isinstance(part, tuple | list) and len(part) == 2):
            raise ValueError(f"{name} must be a pair (x, y), got {part!r:.200}")
    size, held = _check.rows(train=tuple(train)), _check.rows(validation=tuple(validation))
    if max(rounds.sigmas) > largest_sigma(size):
        raise ValueError(
            f"rounds must have noise multipliers of at most {largest_sigma(size):.4g} for {size} records, "
            f"got {max(rounds.sigmas):g}"
        )
    keys = fresh_keys() if keys is None else keys
    check_roots(keys)
    data = tuple(jnp.asarray(leaf) for leaf in train)
    x, y = (jnp.asarray(leaf) for leaf in validation)

    @jax.jit
    def run(state: _State, keys: RootKeys, sigma: jax.Array, data: object) -> _State:
        def one(state: _State, number: jax.Array) -> tuple[_State, None]:
            gradient = noisy_gradient(
                model.loss,
                state[0],
                data,
                step_keys(keys, number),
                sigma=sigma,
                rate=rounds.rate,
                clip_norm=clip_norm,
                physical_batch=physical_batch,
                full_batch=rounds.rate == 1,
            )
            return updated(optimizer, gradient, *state)[:2], None

        return jax.lax.scan(one, state, jnp.arange(rounds.steps))[0]

    # No round has this number. Lanes may stay the same in all checks: they know nothing of the records.
    places = jax.random.fold_in(keys.sampling, 2**32 - 1)

    @jax.jit
    def right(params: optax.Params, x: jax.Array, y: jax.Array) -> jax.Array:
        """How many answers are right, () int32: like a sum of gradients, of rows in lanes that are drawn for each.

        Records are arguments, as in `run`: a compiler may make other programs for other constants.
        """
        sample = sample_pieces(jnp.ones(held, bool), lanes_of(physical_batch, held), places)
        logits = in_cpu_form(jax.vmap(lambda params, row: model.logits(params, row[None])[0], (None, 0)))

        def add(total: jax.Array, indices: jax.Array, valid: jax.Array) -> jax.Array:
            scores, labels = logits(params, x[indices]), y[indices]
            _check.labels(scores, labels)
            return total + jnp.sum((scores.argmax(axis=-1) == labels) & valid, dtype=jnp.int32)

        return over_pieces(sample, jnp.int32(0), add)

    def step(key: jax.Array, state: _State, number: int) -> tuple[_State, Composed]:
        query = rounds.query(number)  # first: what cannot be charged must not run
        both = RootKeys(sampling=jax.random.fold_in(keys.sampling, number), noise=key)
        return run(state, both, jnp.float32(rounds.sigmas[number]), data), query

    def accuracy(state: _State) -> float:
        return int(right(state[0], x, y)) / held  # in float64: a float32 share could move by more than the sensitivity

    # The margin covers the rounding of two such shares for up to 2^30 records.
    sensitivity = (1 + 2.0**-20) / held
    kind = expost.SparseVector if sparse else partial(expost.PlainGaussian, checks=max(len(rounds.sigmas) - 1, 1))
    found = expost.compose_until(
        step,
        (model.params, optimizer.init(model.params)),
        accuracy,
        kind(threshold, check_epsilon, sensitivity, order=rounds.order),
        order=rounds.order,
        most=len(rounds.sigmas),
        key=keys.noise,
        disjoint=True,
        progress=progress,
    )
    return dataclasses.replace(found, result=expost.post_process(found.result, lambda state, _: state[0]))
