"""``jaxacct compare``: what filters certify for one schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._types import Fields
from jaxacct.cli import warn
from jaxacct.cli.output import Answer, table
from jaxacct.cli.page import DELTA, as_table, question, report_of_work, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import Run, attained_group, said_of, said_of_users, users_option
from jaxacct.cli.start import cache_compilations
from jaxacct.cli.values import VALUES, WHOLE_VALUES

if TYPE_CHECKING:
    from jaxacct.cli.contestants import Claim

_question = under("Question")
_ATTAINED = "the curve of records that all pull the same way, which is attained"


@question(
    "compare --sigma 1.4:2.5:8 --rate 0.01 --steps 3650 --delta 1e-5",
    "compare --sigma 2 --rate 0.01 --steps 2000 --delta 1e-5 --epsilon 1 --thorough",
    "compare --sampling --sigma 1 --batch 600 --records 60000 --epochs 10 --delta 1e-6",
    "compare --run laplace:scale=10,steps=20 --run gaussian:sigma=8,steps=50 --delta 1e-6 --json",
)
@_question("--delta", type=float, required=True, help=DELTA)
@_question("--epsilon", type=float, help="Also count the steps that each admits within this epsilon.")
@_question("--thorough", is_flag=True, help="Also filters with a table, and what approximate_gdp truly costs: minutes.")
@_question(
    "--sampling", is_flag=True, help="Instead of filters: what the run costs by how batches are drawn; needs --records."
)
@users_option
@mechanism_options(VALUES, WHOLE_VALUES)
@as_table
def compare(
    delta: float,
    epsilon: float | None,
    thorough: bool,
    sampling: bool,
    records_per_user: int | None,
    **arguments: object,
) -> Answer:
    """Compare the epsilon that privacy filters certify for whoever runs this schedule, and might have run another.

    A filter's epsilon holds however the analyst reacts to results, so it is larger than that of the schedule fixed in
    advance, the first row. Lists and ranges (see jaxacct sweep) are the levels of a schedule: --steps runs in all,
    spread evenly over them, or one number for each. The relation is add_or_remove. Only what is called proven is a
    bound.
    """
    given = runs_of(arguments)
    if sampling:
        if records_per_user is not None:
            raise click.UsageError("--sampling compares what single records pay: leave --records-per-user out")
        return _of_samplers(given, delta)
    runs = [level for run in given for level in _levels(run)]
    answers, left_out = _answers(runs, delta, epsilon, thorough, records_per_user)
    said = [*_too_small(answers), *said_of(runs, delta), *said_of_users(records_per_user, _ATTAINED)]
    columns = ["method", "epsilon", "lower", "kind", *(["steps"] if epsilon is not None else [])]
    rows = [(name, *answer)[: len(columns)] for name, answer in answers.items()]
    total = sum(run.steps for run in runs)
    within = "" if epsilon is None else f"; steps within epsilon {epsilon:g}, in the schedule's order"
    lines = [
        f"epsilon of {total} steps at delta {delta:g}, relation add_or_remove{within}",
        *(f"not {name}: {reason}" for name, reason in left_out.items()),
        *said,
    ]
    schedule = {"runs": [run.described() for run in runs], "relation": "add_or_remove", "delta": delta}
    return _listed(columns, rows, lines, schedule | {"within_epsilon": epsilon, "left_out": left_out, "assumes": said})


def _of_samplers(runs: list[Run], delta: float) -> Answer:
    """What one run costs by how batches are drawn."""
    from jaxacct.cli.sampling import COLUMNS, sampling_costs

    rows, epoch = sampling_costs(runs, delta)
    words = (
        f"epsilon of {epoch['epochs']} epochs of {epoch['batches']} batches, {epoch['records']} records, noise "
        f"multiplier {epoch['noise_multiplier']:g}, delta {delta:g}, relation add_or_remove"
    )
    return _listed(COLUMNS, rows, [words], {**epoch, "delta": delta, "relation": "add_or_remove"})


def _listed(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], lines: list[str], fields: Fields) -> Answer:
    """Names, epsilons and lower bounds, and what else is said of them; for people rounded outwards."""
    shown = []
    for name, epsilon, lower, *rest in rows:
        cells = [str(name), rounded_up(epsilon), rounded_down(lower), *map(str, rest)]
        shown.append(["-" if cell in ("nan", "None") else cell for cell in cells])
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return Answer([table(columns, shown), *lines], fields | {"rows": found}, csv=(columns, rows))


def _too_small(answers: dict[str, Claim]) -> list[str]:
    """Says which numbers that are no bounds lie below what is proven to be spent."""
    lowest = answers["fixed in advance"].lower
    said = []
    for name, answer in answers.items():
        if answer.kind == "asymptotic" and answer.epsilon < lowest:
            warn(
                f"{name}: epsilon {answer.epsilon:.6g} is asymptotic, and too small: the schedule spends at least "
                f"{rounded_down(lowest)}"
            )
            said.append(f"{name} is too small by {lowest - answer.epsilon:.3g} at least")
    return said


def _levels(run: Run) -> list[Run]:
    """One run for each level of a schedule; numbers are scalars from here on."""
    if set(run.sampling) - {"rate", "records"}:
        raise click.UsageError(
            "filters hold for add_or_remove and Poisson samples, not for samples of a fixed size, epochs of batches "
            "and batches that are cut: give a rate, or use compare --sampling"
        )
    values = {name: np.atleast_1d(value) for name, value in run.settings().items()}
    given = values.pop("steps").astype(int).tolist()
    size = max(len(value) for value in values.values())
    if sizes := {len(value) for value in values.values()} - {1, size}:
        raise click.UsageError(
            f"lists of levels must have one length, got {', '.join(map(str, sorted({*sizes, size})))}"
        )
    if len(given) == 1:
        (total,) = given
        if size > 1 and total < size:
            raise click.UsageError(f"--steps must be at least the number of levels, {size}, got {total}")
        given = [total // size + (i < total % size) for i in range(size)]
    if len(given) != size:
        raise click.UsageError(f"--steps must be one number or {size}, one for each level, got {len(given)}")
    columns = {name: np.broadcast_to(value, size).tolist() for name, value in values.items()} | {"steps": given}
    return [run.at({name: column[i] for name, column in columns.items()}) for i in range(size)]


def _answers(
    runs: list[Run], delta: float, epsilon: float | None, thorough: bool, users: int | None
) -> tuple[dict[str, Claim], dict[str, str]]:
    from jaxacct import _validate
    from jaxacct.cli.contestants import FILTERS, THOROUGH, Schedule

    cache_compilations()
    _validate.probability(delta=delta)
    if epsilon is not None:
        _validate.positive(epsilon=epsilon)
    _validate.count(steps=[run.steps for run in runs])
    parts = [(run.mechanism(), int(run.steps)) for run in runs]
    if users is not None:
        parts = [(attained_group(part, users)[0], steps) for part, steps in parts]
    schedule = Schedule(parts, delta)
    FILTERS["fixed in advance"](schedule, None)  # what is wrong with the schedule itself is an error
    asked = FILTERS | (THOROUGH if thorough else {})
    answers, left_out = {}, {}
    if not thorough:
        left_out = dict.fromkeys(THOROUGH, "its table takes seconds to minutes: add --thorough")
    report = report_of_work()
    for done, (name, ask) in enumerate(asked.items()):
        if report is not None:
            report(done, len(asked))
        try:
            answers[name] = ask(schedule, epsilon)
        except ValueError as problem:
            left_out[name] = " ".join(str(problem).split())
    return answers, left_out
