"""The loop of Algorithm 1 (release, check, stop or go on), in Python or as a ``while_loop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.manual_axes import while_loop
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._printing import rounded_up
from jaxacct.expost.definitions import (
    ApproximateExPost,
    ExPostResult,
    GDPExPost,
    ProbabilisticExPost,
    RenyiExPost,
    ZCDPExPost,
)
from jaxacct.expost.theorems import convert
from jaxacct.filters.amounts import caller_dtype

T = TypeVar("T")
Progress = Callable[[str], object]
State = tuple[Array, Array, Array, T]  # steps, whether the check passed, scores, what is carried
# (number, what is carried) -> (what is carried, whether the check passes, the score that it publishes)
Attempt = Callable[[jax.Array, T], tuple[T, Array, Array]]


@_register
class Released:
    """What `release_until` and `compose_until` return: the last release, its cost, and what the way there published.

    Attributes:
        result: an `ExPostResult` whose output is the last release made.
        steps: how many releases were made.
        passed: whether the last one passed the check. False means that no release was left, and it either failed or
            was not checked.
        scores: shape (m,): the scores that the check published, NaN where it published none.
    """

    result: ExPostResult
    steps: Array
    passed: Array
    scores: Array

    def report(self, *, delta: float = 1e-5) -> str:
        """A few lines for people: what happened, the cost, and the cost in (epsilon, delta), rounded up."""
        result = self.result
        if np.ndim(self.steps):
            raise ValueError(f"report is for one run, got a batch of shape {np.shape(self.steps)}")
        epsilon, how = float(np.asarray(result.epsilon)), "passed" if bool(self.passed) else "did not pass"
        lines = [
            f"{int(self.steps)} of {np.shape(self.scores)[0]} releases; the last one {how} the check",
            f"ex-post epsilon {rounded_up(epsilon)}: {result.definition}",
        ]
        if isinstance(result.definition, RenyiExPost | ZCDPExPost | GDPExPost):
            markov, tight = (
                rounded_up(float(np.asarray(convert(result, to).epsilon)))
                for to in (ProbabilisticExPost(delta), ApproximateExPost(delta))
            )
            lines.append(f"at delta {delta:g}: epsilon {markov} delta-probabilistic, {tight} delta-approximate ex-post")
        return "\n".join(lines)


def loop(
    attempt: Attempt[T],
    carried: T,
    count: int,
    private: object,
    spent: Callable[[int, T], Array],
    progress: Progress | None,
) -> State[T]:
    """``(steps, passed, scores, carried)`` after at most ``count`` attempts; traced if ``private`` holds a tracer.

    ``spent(steps, carried)`` is what the progress line calls epsilon.
    """
    if not _validate.is_traced((private, carried)):
        return cast(State[T], _python_loop(attempt, carried, count, spent, progress))
    if progress is not None:
        raise ValueError("progress must be None inside a trace, got a function")

    def unfinished(state: State[T]) -> Array:
        return (state[0] < count) & ~state[1]

    def step(state: State[T]) -> State[T]:
        steps, _, scores, inner = state
        inner, passed, score = attempt(jnp.asarray(steps), inner)
        return steps + 1, passed, jnp.asarray(scores).at[steps].set(score), inner

    start = jnp.int32(0), jnp.array(False), jnp.full(count, jnp.nan, caller_dtype()), carried
    return while_loop(unfinished, step, start)


def _python_loop(
    attempt: Attempt[T], carried: T, count: int, spent: Callable[[int, T], Array], progress: Progress | None
) -> tuple[int, bool, np.ndarray, T]:
    scores, passed, steps = np.full(count, np.nan), False, 0
    while steps < count and not passed:
        carried, answer, score = attempt(cast(jax.Array, steps), carried)
        passed, scores[steps] = bool(answer), float(score)
        steps += 1
        if progress is not None:
            seen = "" if np.isnan(scores[steps - 1]) else f", score {scores[steps - 1]:.4f}"
            verdict = "passed" if passed else "not passed"
            cost = rounded_up(float(spent(steps, carried)))
            progress(f"release {steps} of {count}: epsilon {cost}{seen}, {verdict}")
    return steps, passed, scores, carried
