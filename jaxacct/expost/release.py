"""The loop that a user calls: release with more and more budget until a private score is high enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._printing import rounded_up
from jaxacct.expost._settled import settled
from jaxacct.expost.checks import Check
from jaxacct.expost.conversions import approximate_epsilon
from jaxacct.expost.definitions import Result
from jaxacct.expost.sources import Source
from jaxacct.expost.theorems import compose, stopped_by
from jaxacct.filters._ledger import caller_dtype
from jaxacct.mechanisms._register import mechanism as _register

__all__ = ["Released", "release_until"]


@_register
class Released:
    """What `release_until` returns: the accepted release, its cost, and what may be said about the way there.

    Attributes:
        result: a `Result` whose output is the last release made.
        steps: how many releases were made.
        passed: whether the last one passed the check. False means it is the release with the largest budget, and
            either failed or was not checked.
        scores: shape (m,): the scores that the check published, NaN where it published none.
    """

    result: Result
    steps: Any
    passed: Any
    scores: Any

    def report(self, *, delta: float = 1e-5) -> str:
        """A few lines for people: what happened, the cost, and the cost in (epsilon, delta), rounded up."""
        result = self.result
        if np.ndim(self.steps):
            raise ValueError(f"report is for one run, got a batch of shape {np.shape(self.steps)}")
        epsilon, how = (
            float(np.asarray(result.epsilon)),
            "passed the check" if bool(self.passed) else "did not pass the check",
        )
        lines = [f"{int(self.steps)} of {np.shape(self.scores)[0]} releases; the last one {how}"]
        lines.append(f"ex-post epsilon {rounded_up(epsilon)}: {result.definition}")
        if result.order is not None:
            both = [
                rounded_up(float(approximate_epsilon(epsilon, order=result.order, delta=delta, tight=tight)))
                for tight in (False, True)
            ]
            lines.append(
                f"ex-post (epsilon, delta) at delta {delta:g}: {both[0]} with probability, {both[1]} approximate"
            )
        return "\n".join(lines)


def release_until(
    accurate: Callable[[Any], ArrayLike],
    mechanism: Source,
    epsilons: ArrayLike,
    check: Check,
    *,
    key: Array,
    disjoint: bool = False,
    progress: Callable[[str], Any] | None = None,
) -> Released:
    """Releases with growing budgets until ``check`` passes, with the ex-post cost of everything released.

    Cost: with ``disjoint``, Algorithm 1: the larger one of the mechanism's epsilon at the stop and the check's.
    Otherwise both may look at the same records and the epsilons add: given the sparse vector's threshold noise, its
    answers' likelihood ratios are bounded on every path, so they multiply with those of the releases (adaptive
    composition, Section 4). The definition is Rényi at the common order, or pure where both are.

    Args:
        accurate: the score of a release, higher is better; a scalar. It closes over the private validation data, and
            its sensitivity is the check's.
        mechanism: `Brownian`, `PrecisionWeighted`, `LaplaceReduction`, `Doubling`, or any `Source`. It holds
            the private value.
        epsilons: shape (m,), public budgets in the order they are tried.
        check: `PlainGaussian`, `SparseVector`, `AboveThreshold`, `PublicScore`, or any `Check`.
        key: a PRNG key that nothing else uses.
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
    path_key, check_key = jax.random.split(key)
    count = np.shape(epsilons)[0] if np.ndim(epsilons) == 1 else 0
    # The definitions must combine before anything is drawn.
    _cost(mechanism, check, 0.0, 0.0, disjoint, None)
    path = mechanism.path(path_key, epsilons)
    state = check.start(jax.random.fold_in(check_key, 0))

    def attempt(index: Any) -> tuple[Any, Array, Array]:
        release = jax.tree.map(lambda leaf: leaf[index], path)
        passes, score = check.ask(jax.random.fold_in(check_key, index + 1), state, accurate(release), index)
        return release, passes, score

    if _validate.is_traced((key, path, state, epsilons, check)):
        if progress is not None:
            raise ValueError("progress must be None inside a trace, got a function")
        steps, passed, scores = _traced_loop(attempt, count)
    else:
        steps, passed, scores = _python_loop(attempt, count, mechanism, epsilons, progress)
    release = jax.tree.map(lambda leaf: leaf[steps - 1], path)
    (row,) = settled(mechanism.spent(epsilons))
    spent = _at(row, steps - 1)
    return Released(_cost(mechanism, check, spent, check.epsilon, disjoint, release), steps, passed, scores)


def _cost(mechanism: Source, check: Check, spent: Any, asked: Any, disjoint: bool, output: Any) -> Result:
    parts = Result(output, spent, mechanism.definition), Result(None, asked, check.definition)
    both = stopped_by(*parts) if disjoint else compose(*parts)
    return Result(output, both.epsilon, both.definition)


def _traced_loop(attempt: Callable[[Any], tuple[Any, Array, Array]], count: int) -> tuple[Array, Array, Array]:
    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        steps, passed, _ = carry
        return (steps < count) & ~passed

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        steps, _, scores = carry
        _, passed, score = attempt(steps)
        return steps + 1, passed, scores.at[steps].set(score)

    start = jnp.int32(0), jnp.array(False), jnp.full(count, jnp.nan, caller_dtype())
    return jax.lax.while_loop(unfinished, step, start)


def _python_loop(
    attempt: Callable[[Any], tuple[Any, Array, Array]],
    count: int,
    mechanism: Source,
    epsilons: ArrayLike,
    progress: Callable[[str], Any] | None,
) -> tuple[int, bool, np.ndarray]:
    scores, passed, steps = np.full(count, np.nan), False, 0
    spent = np.asarray(mechanism.spent(epsilons))
    while steps < count and not passed:
        _, answer, score = attempt(steps)
        passed, scores[steps] = bool(answer), float(score)
        steps += 1
        if progress is not None:
            seen = "" if np.isnan(scores[steps - 1]) else f", score {scores[steps - 1]:.4f}"
            verdict = "passed" if passed else "not passed"
            progress(f"release {steps} of {count}: epsilon {rounded_up(float(spent[steps - 1]))}{seen}, {verdict}")
    return steps, passed, scores


@jax.enable_x64(True)
def _at(row: ArrayLike, index: Any) -> Any:
    found = jnp.asarray(row, jnp.float64)[index]
    return found if _validate.is_traced(found) else np.asarray(found)[()]
