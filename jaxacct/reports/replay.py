"""Asks a run's filter again for every step that was charged, and compares answers and states bit for bit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._types import Array, PyTree
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.training.durable_runs.journal import Record
from jaxacct.training.durable_runs.records import software
from jaxacct.training.durable_runs.run import packed, unpacked
from jaxacct.training.loop import StepRecord
from jaxacct.training.runs import Runs
from jaxacct.training.step import ask_clipped, budget_of

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

_CLOSE = 2.0**-20  # of a budget: what another processor's or version's roundings may come to


_Ask = Callable[[PyTree, float, float], Iterator["_Answer"]]


def replayed(filter: Filter, records: list[Record]) -> int:
    """The number of charges in a journal, all of which the filter admits again.

    Each attempt has to start where a checkpoint can be, number its steps on, and stop at the first clipped one.

    Raises:
        ValueError: a charge that the filter does not admit, or with another state or share after it.
    """
    header = records[0]
    exact = {name: header["made"].get(name) for name in software()} == software()
    with jax.enable_x64(bool(header["made"].get("x64"))):
        state = unpacked(header["account"], filter.init())
        ask = _asking(filter)
        attempt, next_step, charged, halted = -1, 1, 0, False
        for record in records[1:]:
            kind = record["kind"]
            if kind == "attempt":
                attempt += 1
                next_step = record["from_step"] + 1
                if record["attempt"] != attempt or not 0 <= record["from_step"] <= charged:
                    raise ValueError(f"attempt {record['attempt']} from step {record['from_step']} is none that can be")
            elif kind == "charge":
                where = f"step {record['step']} of attempt {record['attempt']}"
                if record["step"] != next_step or record["attempt"] != attempt or halted:
                    raise ValueError(f"{where} is charged where step {next_step} of attempt {attempt} comes next")
                after = unpacked(record["filter_state"], state)
                _compare(where, ask, state, after, record, exact)
                state, next_step, charged = after, next_step + 1, charged + 1
                halted = record["clip_scale"] < 1
            elif kind in ("done", "accuracy", "checkpoint") and not 0 <= record["step"] < next_step:
                raise ValueError(f"{kind} of step {record['step']} stands where {next_step - 1} steps were charged")
    return charged


def _compare(where: str, ask: _Ask, before: PyTree, after: PyTree, record: Record, exact: bool) -> None:
    stated = packed(after), record["clip_scale"], record["budget_left"]
    admitted = close = False
    for answer in ask(before, record["sigma"], record["rate"]):
        admitted |= answer.admitted
        if (packed(answer.state), answer.scale, answer.left) == stated and answer.admitted:
            return
        shares = abs(answer.left - record["budget_left"]), abs(answer.scale - record["clip_scale"])
        close |= answer.admitted and max(shares) <= _CLOSE
    if not admitted:
        raise ValueError(f"{where} was charged, and the filter refuses it when asked again")
    if exact or not close:
        raise ValueError(f"{where} does not replay: another state comes out")


def history_replayed(filter: Filter, steps: list[StepRecord], drawn: Runs | None) -> int:
    """The number of steps of a report without a journal, all of which the filter admits again.

    Raises:
        ValueError: a step that it does not admit, or with another share of the budget left.
    """
    if drawn is not None:
        return _runs_replayed(filter, steps, drawn)
    state, ask = filter.init(), _asking(filter)
    for one in steps:
        answers = list(ask(state, float(np.float32(one.sigma * one.clip_scale)), one.rate))
        answer = min(answers, key=lambda answer: (not answer.admitted, abs(answer.left - one.budget_left)))
        _share(one, answer.admitted, answer.left, answer.scale)
        state = answer.state
    return len(steps)


def _runs_replayed(filter: Filter, steps: list[StepRecord], drawn: Runs) -> int:
    """The same where a run of the sampler's mechanism is paid for as a whole, at its first step."""
    state = filter.init()
    admitted = True
    for number, one in enumerate(steps):
        if drawn.begins(number):
            admitted, state = filter.update(drawn.query(filter), state)
        _share(one, bool(admitted), float(budget_of(filter, state)[1]), 1.0)
    return len(steps)


def _share(one: StepRecord, admitted: bool, left: float, scale: float) -> None:
    if not admitted:
        raise ValueError(f"step {one.step} was taken, and the filter refuses it when asked again")
    if abs(left - one.budget_left) > _CLOSE or abs(scale - one.clip_scale) > _CLOSE:
        raise ValueError(f"step {one.step} does not replay: another share of the budget is left")


class _Answer(NamedTuple):
    admitted: bool
    state: PyTree
    scale: float
    left: float


def _asking(filter: Filter) -> _Ask:
    """What a step asks of its filter, compiled, in each of the ways in which a program may have asked."""

    def ask(state: PyTree, sigma: Array, rate: Array, full: bool) -> tuple[Array, PyTree, Array, Array]:
        query = Gaussian(sigma) if full else PoissonSampled(Gaussian(sigma), rate)
        admitted, after, scale = ask_clipped(filter, query, state)
        return admitted, after, scale, budget_of(filter, after)[1]

    traced = jax.jit(ask, static_argnums=3)

    @functools.lru_cache(256)
    def constant(sigma: float, rate: float, full: bool) -> Callable[[PyTree], tuple[Array, PyTree, Array, Array]]:
        return jax.jit(lambda state: ask(state, jnp.float32(sigma), jnp.float32(rate), full))

    def asked(state: PyTree, sigma: float, rate: float) -> Iterator[_Answer]:
        # A schedule in which everyone takes part asks for a Gaussian; at rate 1 both are the same mechanism. And a
        # constant's cost is worked out while a step is compiled, with other last bits than that of a variable.
        for full in (True, False) if rate == 1 else (False,):
            for found in (
                lambda full=full: traced(state, jnp.float32(sigma), jnp.float32(rate), full),
                lambda full=full: constant(sigma, rate, full)(state),
            ):
                try:
                    admitted, after, scale, left = found()
                except ValueError:
                    if rate == 1 and not full:
                        continue  # a filter of Gaussians has no account of a sample
                    raise
                yield _Answer(bool(admitted), after, float(scale), float(left))

    return asked
