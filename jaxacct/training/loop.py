"""`fit`, the loop around a jitted step: it updates, records what was released, and stops when asked."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.filters import Reason, sentence
from jaxacct.training import checks as _check
from jaxacct.training.sharding import number_of
from jaxacct.training.state import StepReport, TrainState

if TYPE_CHECKING:
    from jaxacct.training.durable_runs.run import DurableRun


class StepRecord(NamedTuple):
    """One admitted step as Python numbers: released quantities and the filter's arithmetic, nothing private.

    Attributes:
        step: number of the step, from 1.
        sigma: noise multiplier relative to the clip norm that was used: the step's charge is for
            ``PoissonSampled(Gaussian(sigma), rate)`` (a clipped last step's multiplier is larger than asked
            for).
        rate: sampling rate.
        clip_scale: factor on the clip norm, 1 except perhaps in the last step.
        gradient_norm: norm of the noisy averaged gradient; NaN where a killed run did not get to tell.
        budget_left: share of the filter's budget that is left, in [0, 1].
        lost: True for a step that was charged, and perhaps released, before the run was killed, and that the
            parameters do not hold.
    """

    step: int
    sigma: float
    rate: float
    clip_scale: float
    gradient_norm: float
    budget_left: float
    lost: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a training run.

    Attributes:
        state: the last state.
        records: one record per admitted step, those of earlier attempts and lost ones included.
        evaluations: (step, held-out accuracy) pairs, the last one for the final parameters.
        stopped: "plan finished", "budget spent", "interrupted", or another reason of the filter's in words, such as
            "noise 0.9 is below the least, 1, that this filter was made for".
        attempts: how often the run was started; above 1 if it was resumed.
    """

    state: TrainState
    records: list[StepRecord]
    evaluations: list[tuple[int, float]]
    stopped: str
    attempts: int = 1


def fit(
    step: Callable[[TrainState, PyTree], tuple[TrainState, StepReport]],
    state: TrainState,
    data: object,
    *,
    steps: int,
    evaluate: Callable[[PyTree], float],
    evaluate_every: int = 10,
    interrupted: Callable[[], bool] = lambda: False,
    on_step: Callable[[StepRecord, float], None] = lambda record, accuracy: None,
    before: DurableRun | None = None,
) -> FitResult:
    """Runs ``step`` until ``state`` holds ``steps`` steps, or until the filter refuses or ``interrupted()`` says so.

    Args:
        step: from :func:`jaxacct.training.make_step`.
        state: from :func:`jaxacct.training.init_state`.
        data: the private examples, as the step's loss takes them.
        steps: most steps to take, those that ``state`` holds already included.
        evaluate: accuracy of parameters on held-out data *declared public*; fed back to the schedule.
        evaluate_every: steps between evaluations.
        interrupted: asked before every step.
        on_step: called after every admitted step with its record and the latest held-out accuracy.
        before: the ``DurableRun`` that ``step`` and ``state`` belong to, if it may be a resumed one: its history
            becomes the beginning of the outcome's.

    Raises:
        ValueError: an invalid state or count, a state of another filter or sampler than the step's, or a ``step`` or
            ``evaluate`` that returns something else.
    """
    _validate.function(step=step, evaluate=evaluate, interrupted=interrupted, on_step=on_step)
    _validate.instance(TrainState, state=state)
    number_of(data)
    _validate.scalar(_validate.nonnegative, steps=steps)
    _validate.whole(evaluate_every=evaluate_every)
    if before is not None and not (hasattr(before, "records") and hasattr(before, "evaluations")):
        raise ValueError(f"before must be a DurableRun or None, got {before!r:.200}")
    records, evaluations = ([], []) if before is None else (list(before.records), list(before.evaluations))

    def measured(state: TrainState) -> float:
        found = evaluate(state.params)
        _validate.scalar(evaluate=found)
        return float(found)

    start = int(state.step)
    latest = measured(state)
    if not evaluations or evaluations[-1][0] != start:
        evaluations.append((start, latest))
    stopped = "plan finished"
    for number in range(start + 1, int(steps) + 1):
        if interrupted():
            stopped = "interrupted"
            break
        taken = step(state, data)
        if not (isinstance(taken, tuple) and len(taken) == 2 and isinstance(taken[1], StepReport)):
            raise ValueError(f"step must return (state, report) as make_step's does, got {_validate.shown(taken)}")
        state, report = taken
        if bool(report.foreign):
            raise ValueError(
                "state must be one of the step's own filter and sampler, got one of others: go on with those it began "
                "with, or begin anew with new keys and a filter_state of this filter (filters.lower_budget makes one "
                "for a smaller budget)"
            )
        if not bool(report.admitted):
            told = getattr(getattr(step, "__self__", step), "sentence", lambda report: sentence(report.reason))
            stopped = "budget spent" if int(report.reason) == Reason.SPENT else told(report)
            break
        scale = float(report.clip_scale)
        sigma, left = charged_sigma(float(report.sigma), scale), float(report.budget_left)
        records.append(StepRecord(number, sigma, float(report.rate), scale, float(report.gradient_norm), left))
        if number % evaluate_every == 0:
            latest = measured(state)
            evaluations.append((number, latest))
            state = state.with_accuracy(latest)
        on_step(records[-1], latest)
        if bool(state.halted):
            stopped = "budget spent"
            break
    reached = int(state.step)
    if evaluations[-1][0] != reached:
        evaluations.append((reached, measured(state)))
    return FitResult(state, records, evaluations, stopped, 1 if before is None else before.attempt + 1)


def accuracy(logits: Callable[[PyTree, jax.Array], jax.Array], x: ArrayLike, y: ArrayLike) -> Callable[[PyTree], float]:
    """A function from parameters to the share of examples (x, y) whose largest logit is the label's."""
    _validate.function(logits=logits)
    _validate.numbers(x=x, y=y)
    _check.rows(x=x)
    if np.ndim(y) != 1 or _check.rows(y=y) != np.shape(x)[0]:
        raise ValueError(f"y must have shape (examples,), as many as x, got {np.shape(y)} and x of {np.shape(x)}")
    x, y = jnp.asarray(x), jnp.asarray(y)

    @jax.jit
    def share(params: PyTree) -> jax.Array:
        scores = logits(params, x)
        _check.labels(scores, y)
        return (scores.argmax(axis=-1) == y).mean(dtype=jnp.float32)

    return lambda params: float(share(params))


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C (SIGINT) into a flag, so that the step at hand ends; a second one interrupts.

    What it yields says whether Ctrl-C was pressed.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set  # only the main thread may set signal handlers
        return
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: object) -> None:
        del number, frame
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def charged_sigma(sigma: float, clip_scale: float) -> float:
    """The noise multiplier relative to the clip norm that was used."""
    # A hair less noise than was used: dividing may round either way, and a smaller multiplier costs more.
    return sigma if clip_scale == 1 else float(np.nextafter(sigma / clip_scale, 0.0))
