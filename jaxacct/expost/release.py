"""`release_until` and `compose_until`: release with a growing budget until a private score is high enough."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._types import PyTree
from jaxacct.expost.checks import Check
from jaxacct.expost.definitions import Definition, ExPostResult
from jaxacct.expost.loop import Progress, Released, loop
from jaxacct.expost.odometer import RenyiOdometer, RenyiOdometerState
from jaxacct.expost.sources import Source
from jaxacct.expost.theorems import compose, stopped_by
from jaxacct.mechanisms.base import Mechanism

_Carried = tuple[object, RenyiOdometerState]  # of `compose_until`
_MOST = 2**24  # releases of one run: their scores are kept


def release_until(
    accurate: Callable[[PyTree], ArrayLike],
    mechanism: Source,
    epsilons: ArrayLike,
    check: Check,
    *,
    key: Array,
    disjoint: bool = False,
    progress: Progress | None = None,
) -> Released:
    """Releases with growing budgets until ``check`` passes, with the ex-post cost of everything released.

    Cost: with ``disjoint``, Algorithm 1: the larger one of the mechanism's epsilon at the stop and the check's.
    Otherwise both may look at the same records and the epsilons add: given the sparse vector's threshold noise, its
    answers' likelihood ratios are bounded on every path, so they multiply with those of the releases (adaptive
    composition, Section 4). The definition is Rényi at the common order, GDP where neither has one, or pure where both
    are.

    Args:
        accurate: the score of a release, higher is better; a scalar. It closes over the private validation data, and
            its sensitivity is the check's, rounding included: see :mod:`jaxacct.expost.checks`.
        mechanism: `Brownian`, `PrecisionWeighted`, `LaplaceReduction`, `GumbelReduction`, `Doubling`, or any `Source`.
            It holds the private value.
        epsilons: shape (m,), public budgets in the order they are tried.
        check: `PlainGaussian`, `SparseVector`, `AboveThreshold`, `PublicScore`, or any `Check`.
        key: a PRNG key that nothing else uses and nobody else knows: ``jax.random.key(seed)`` has few seeds;
            `jaxacct.training.fresh_keys` takes 64 bits from the operating system.
        disjoint: the mechanism's and the check's data are disjoint, and were separated record by record, so that a
            record more or less changes one of them only (see `stopped_by`).
        progress: called with a line of text after each release, published facts only; not inside a trace.

    Returns:
        `Released`. Outside of a trace the loop is Python's, and ``accurate`` may be any Python function; inside ``jit``
        or ``vmap`` it is a ``while_loop``, with the same results for the same key.

    Raises:
        ValueError: arguments that the mechanism or the check refuse, definitions that do not combine, ``progress``
            inside a trace.
    """
    _loop_arguments(check, disjoint, progress, accurate=accurate)
    _validate.methods("path", "spent", mechanism=mechanism)
    _validate.instance(Definition, **{"mechanism.definition": getattr(mechanism, "definition", None)})
    _validate.numbers(epsilons=epsilons)
    path_key, check_key = jax.random.split(key)
    count = np.shape(epsilons)[0] if np.ndim(epsilons) == 1 else 0
    # The definitions must combine before anything is drawn.
    _cost(mechanism.definition, check, 0.0, disjoint, None)
    path = mechanism.path(path_key, epsilons)
    state = check.start(jax.random.fold_in(check_key, 0))

    def attempt(index: Array, carried: None) -> tuple[None, Array, Array]:
        release = jax.tree.map(lambda leaf: leaf[index], path)
        passes, score = check.ask(jax.random.fold_in(check_key, index + 1), state, _score(accurate, release), index)
        return carried, passes, score

    def so_far(steps: int, _: None) -> Array:
        return np.asarray(mechanism.spent(epsilons, path))[steps - 1]

    private = (key, path, state, epsilons, check)
    steps, passed, scores, _ = loop(attempt, None, count, private, so_far, progress)
    release = jax.tree.map(lambda leaf: leaf[steps - 1], path)
    spent = _at(mechanism.spent(epsilons, path), steps - 1)
    return Released(_cost(mechanism.definition, check, spent, disjoint, release), steps, passed, scores)


def compose_until(
    step: Callable[[jax.Array, PyTree, PyTree], tuple[PyTree, Mechanism | ArrayLike]],
    start: object,
    accurate: Callable[[PyTree], ArrayLike],
    check: Check,
    *,
    order: float | None,
    most: int,
    key: Array,
    disjoint: bool = False,
    progress: Progress | None = None,
) -> Released:
    """Algorithm 1 for any Rényi mechanisms: run steps, each with a budget of its own choice, until ``check`` passes.

    Ex-post DP-SGD is the case where a step trains for an epoch. What is claimed: the sequence of all states and
    answers up to the stop, together, is ex-post Rényi at ``order``, with epsilon the larger one (``disjoint``) or
    the sum of two numbers: the divergences of the steps that ran, added up, and the check's epsilon (Section 4:
    composition with fully adaptive bounds, and Algorithm 1). Earlier states are paid for in full; there is no
    noise reduction between steps.

    Args:
        step: called as ``step(key, state, number)``; returns ``(state, query)``: what is released now, and the
            mechanism that it came from (one with a Rényi curve, as ``PoissonSampled(Gaussian(sigma), rate)``), or its
            Rényi divergence at ``order`` given everything released before. It may choose the query from the state,
            which is public, and from nothing private. Sampled mechanisms count for add-or-remove neighbours.
        start: the first state, public.
        accurate: the score of a state; see `release_until`, also for ``check``, ``disjoint`` and ``progress``.
        order: above 1, concrete; None sums rho instead, of queries with one, for an ex-post zCDP result.
        most: how many steps at most.
        key: a PRNG key that nothing else uses.

    Returns:
        `Released`, whose output is the last state.

    Raises:
        ValueError: arguments out of range, definitions that do not combine, ``progress`` inside a trace.
    """
    _loop_arguments(check, disjoint, progress, step=step, accurate=accurate)
    _validate.whole(most=most)
    _validate.at_most(_MOST, most=most)
    odometer = RenyiOdometer(order)
    _cost(odometer.definition, check, 0.0, disjoint, None)
    step_key, check_key = jax.random.split(key)
    secret = check.start(jax.random.fold_in(check_key, 0))

    def attempt(index: Array, carried: _Carried) -> tuple[_Carried, Array, Array]:
        released = step(jax.random.fold_in(step_key, index), carried[0], index)
        if not (isinstance(released, tuple) and len(released) == 2):
            raise ValueError(f"step must return (state, query), got {_validate.shown(released)}")
        state, query = released
        passes, score = check.ask(jax.random.fold_in(check_key, index + 1), secret, _score(accurate, state), index)
        return (state, odometer.update(query, carried[1])), passes, score

    carried = start, odometer.init()
    private = (key, secret, check)
    steps, passed, scores, (state, total) = loop(
        attempt, carried, int(most), private, lambda _, inner: odometer.spent(inner[1]), progress
    )
    cost = _cost(odometer.definition, check, odometer.spent(total), disjoint, state)
    return Released(cost, steps, passed, scores)


def _loop_arguments(check: object, disjoint: object, progress: object, **functions: object) -> None:
    _validate.function(**functions)
    if progress is not None:
        _validate.function(progress=progress)
    _validate.methods("start", "ask", check=check)
    _validate.instance(Definition, **{"check.definition": getattr(check, "definition", None)})
    _validate.truth(disjoint=disjoint)


def _score(accurate: Callable[[PyTree], ArrayLike], release: PyTree) -> ArrayLike:
    score = accurate(release)
    _validate.number(**{"what accurate returns": score})
    return score


def _cost(have: Definition, check: Check, spent: ArrayLike, disjoint: bool, output: object) -> ExPostResult:
    parts = ExPostResult(output, spent, have), ExPostResult(None, check.epsilon, check.definition)
    both = stopped_by(*parts) if disjoint else compose(*parts)
    return ExPostResult(output, both.epsilon, both.definition)


@in_float64
def _at(row: ArrayLike, index: ArrayLike) -> Array:
    return jnp.asarray(row, jnp.float64)[index]
