"""The loop around the jitted step: ask, record what was released, stop when told to."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxacct.training.step import StepReport, TrainState, with_accuracy

__all__ = ["Outcome", "StepRecord", "accuracy", "fit", "stop_on_interrupt"]


class StepRecord(NamedTuple):
    """One admitted step as Python numbers: released quantities and the filter's arithmetic, nothing private.

    Attributes:
        step: number of the step, from 1.
        sigma: noise multiplier relative to the clip norm that was used: the step's charge is for
            ``PoissonSampled(Gaussian(sigma), rate)`` (a clipped last step's multiplier is larger than asked
            for).
        rate: sampling rate.
        clip_scale: factor on the clip norm, 1 except perhaps in the last step.
        gradient_norm: norm of the noisy averaged gradient.
        budget_left: share of the filter's budget that is left, in [0, 1].
    """

    step: int
    sigma: float
    rate: float
    clip_scale: float
    gradient_norm: float
    budget_left: float


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a run.

    Attributes:
        state: the last state.
        records: one record per admitted step.
        evaluations: (step, held-out accuracy) pairs, the last one for the final parameters.
        stopped: "plan finished", "budget spent" or "interrupted".
    """

    state: TrainState
    records: list[StepRecord]
    evaluations: list[tuple[int, float]]
    stopped: str


def fit(
    step: Callable[[TrainState, Any], tuple[TrainState, StepReport]],
    state: TrainState,
    data: Any,
    *,
    steps: int,
    evaluate: Callable[[Any], float],
    evaluate_every: int = 10,
    interrupted: Callable[[], bool] = lambda: False,
    on_step: Callable[[StepRecord, float], None] = lambda record, accuracy: None,
) -> Outcome:
    """Runs ``step`` up to ``steps`` times, until the filter refuses or ``interrupted()`` says so.

    Args:
        step: from :func:`jaxacct.training.make_step`.
        state: from :func:`jaxacct.training.init_state`.
        data: the private examples, as the step's loss takes them.
        steps: most steps to take.
        evaluate: accuracy of parameters on held-out data *declared public*; fed back to the schedule.
        evaluate_every: steps between evaluations.
        interrupted: asked before every step.
        on_step: called after every admitted step with its record and the latest held-out accuracy.
    """
    records: list[StepRecord] = []
    latest = evaluate(state.params)
    evaluations = [(0, latest)]
    stopped = "plan finished"
    for number in range(1, steps + 1):
        if interrupted():
            stopped = "interrupted"
            break
        state, report = step(state, data)
        if not bool(report.admitted):
            stopped = "budget spent"
            break
        records.append(_record(number, report))
        if number % evaluate_every == 0:
            latest = evaluate(state.params)
            evaluations.append((number, latest))
            state = with_accuracy(state, latest)
        on_step(records[-1], latest)
        if bool(state.halted):
            stopped = "budget spent"
            break
    if evaluations[-1][0] != len(records):
        evaluations.append((len(records), evaluate(state.params)))
    return Outcome(state, records, evaluations, stopped)


def accuracy(logits: Callable[[Any, jax.Array], jax.Array], x: Any, y: Any) -> Callable[[Any], float]:
    """A function from parameters to the share of examples (x, y) whose largest logit is the label's."""
    x, y = jax.numpy.asarray(x), jax.numpy.asarray(y)

    @jax.jit
    def share(params: Any) -> jax.Array:
        return (logits(params, x).argmax(axis=-1) == y).mean(dtype=jax.numpy.float32)

    return lambda params: float(share(params))


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C (SIGINT) into a flag, so that the step at hand ends; a second one interrupts.

    Yields:
        A function that says whether Ctrl-C was pressed.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set  # only the main thread may set signal handlers
        return
    before = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: Any) -> None:
        del number, frame
        pressed.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _record(number: int, report: StepReport) -> StepRecord:
    scale = float(report.clip_scale)
    # A hair less noise than was used: dividing may round either way, and a smaller multiplier costs more.
    sigma = float(report.sigma) if scale == 1 else float(np.nextafter(float(report.sigma) / scale, 0.0))
    return StepRecord(
        step=number,
        sigma=sigma,
        rate=float(report.rate),
        clip_scale=scale,
        gradient_norm=float(report.gradient_norm),
        budget_left=float(report.budget_left),
    )
