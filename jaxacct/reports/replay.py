"""Asks a run's filter again for every step that was charged, and compares answers and states bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._types import PyTree
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


class _Answer(NamedTuple):
    admitted: jax.Array
    state: PyTree
    scale: jax.Array
    left: jax.Array


_Ask = Callable[[PyTree, float, float], Iterator[_Answer]]


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
                answers = ask(state, record["sigma"], record["rate"])
                _agreed(where, answers, record["budget_left"], record["clip_scale"], after, exact)
                state, next_step, charged = after, next_step + 1, charged + 1
                halted = record["clip_scale"] < 1
            elif kind in ("done", "accuracy", "checkpoint") and not (kind == "done") <= record["step"] < next_step:
                raise ValueError(f"{kind} of step {record['step']} stands where {next_step - 1} steps were charged")
    return charged


def history_replayed(filter: Filter, steps: list[StepRecord], drawn: Runs | None) -> int:
    """The number of steps of a report without a journal, all of which the filter admits again.

    Of a sampler a whole run of its mechanism is paid for at the run's first step.

    Raises:
        ValueError: a step that it does not admit, or with another share of the budget left.
    """
    state, ask = filter.init(), _asking(filter)
    for number, one in enumerate(steps):
        if drawn is None:
            answers = ask(state, float(np.float32(one.sigma * one.clip_scale)), one.rate)
        else:
            admitted, after = filter.update(drawn.query(filter), state) if drawn.begins(number) else (True, state)
            answers = [_Answer(jnp.asarray(admitted), after, jnp.float32(1.0), budget_of(filter, after)[1])]
        state = _agreed(f"step {one.step}", answers, one.budget_left, one.clip_scale)
    return len(steps)


def _agreed(
    where: str, answers: Iterable[_Answer], left: float, scale: float, after: PyTree = None, exact: bool = False
) -> PyTree:
    """The state after the answer that is nearest to what was stated: share left, factor on the clip norm, and state.

    Raises:
        ValueError: the filter refuses, or nothing near comes out; with ``exact`` another state or another share.
    """
    found: list[tuple[float, PyTree]] = []
    for answer in answers:
        if answer.admitted:
            # Of two numbers `max` may drop a NaN, which is near nothing.
            apart = float(np.maximum(abs(float(answer.left) - left), abs(float(answer.scale) - scale)))
            if apart == 0 and (after is None or packed(answer.state) == packed(after)):
                return answer.state
            found.append((apart, answer.state))
    if not found:
        raise ValueError(f"{where} was charged, and the filter refuses it when asked again")
    apart, state = min(found, key=lambda one: one[0])
    if exact or not apart <= _CLOSE:
        raise ValueError(f"{where} does not replay: another state, or another share of the budget, comes out")
    return state


def _asking(filter: Filter) -> _Ask:
    """What a step asks of its filter, compiled, in each of the ways in which a program may have asked."""

    def ask(state: PyTree, sigma: ArrayLike, rate: ArrayLike, full: bool) -> _Answer:
        sigma, rate = jnp.asarray(sigma, jnp.float32), jnp.asarray(rate, jnp.float32)
        query = Gaussian(sigma) if full else PoissonSampled(Gaussian(sigma), rate)
        admitted, after, scale = ask_clipped(filter, query, state)
        return _Answer(admitted, after, scale, budget_of(filter, after)[1])

    traced = jax.jit(ask, static_argnums=3)
    # A constant's cost is worked out while a step is compiled, with other last bits than that of a variable.
    constant = jax.jit(ask, static_argnums=(1, 2, 3))

    def asked(state: PyTree, sigma: float, rate: float) -> Iterator[_Answer]:
        # A schedule in which everyone takes part asks for a Gaussian; at rate 1 both are the same mechanism.
        for full in (True, False) if rate == 1 else (False,):
            for program in (traced, constant):
                try:
                    yield program(state, sigma, rate, full)
                except ValueError:
                    if rate != 1 or full:
                        raise
                    # A filter of Gaussians has no account of a sample.

    return asked
