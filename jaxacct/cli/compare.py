"""``jaxacct compare``: what filters certify for one schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._types import Fields
from jaxacct.cli import warn
from jaxacct.cli.output import Answer, table
from jaxacct.cli.page import DELTA, as_table, question, report_of_work, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import Run, attained_group, said_of, said_of_users, users_option
from jaxacct.cli.start import cache_compilations

if TYPE_CHECKING:
    from jaxacct.cli.contestants import Claim

_question = under("Question")
_ATTAINED = "the curve of records that all pull the same way, which is attained"


@question(
    "compare --run gaussian:sigma=2.5,rate=0.01,steps=1000 --run gaussian:sigma=1.4,rate=0.01,steps=2650 --delta 1e-5",
    "compare --sigma 2 --rate 0.01 --steps 2000 --delta 1e-5 --thorough",
    "compare --sampling --sigma 1 --batch 600 --records 60000 --epochs 10 --delta 1e-6",
    "compare --run laplace:scale=10,steps=20 --run gaussian:sigma=8,steps=50 --delta 1e-6 --json",
)
@_question("--delta", type=float, required=True, help=DELTA)
@_question("--thorough", is_flag=True, help="Also filters with a table, and what approximate_gdp truly costs: minutes.")
@_question(
    "--sampling", is_flag=True, help="Instead of filters: what the run costs by how batches are drawn; needs --records."
)
@users_option
@mechanism_options()
@as_table
def compare(delta: float, thorough: bool, sampling: bool, records_per_user: int | None, **arguments: object) -> Answer:
    """Compare the epsilon that privacy filters certify for whoever runs this schedule, and might have run another.

    A filter's epsilon holds however the analyst reacts to results, so it is larger than that of the schedule fixed in
    advance, the first row. Each --run is a further level of the schedule. The relation is add_or_remove. Only what is
    called proven is a bound.
    """
    runs = runs_of(arguments)
    if sampling:
        if records_per_user is not None:
            raise click.UsageError("--sampling compares what single records pay: leave --records-per-user out")
        return _of_samplers(runs, delta)
    answers, left_out = _answers(runs, delta, thorough, records_per_user)
    said = [*_too_small(answers), *said_of(runs, delta), *said_of_users(records_per_user, _ATTAINED)]
    rows = [(name, one.epsilon, one.lower, one.kind) for name, one in answers.items()]
    total = sum(run.steps for run in runs)
    lines = [
        f"epsilon of {total} steps at delta {delta:g}, relation add_or_remove",
        *(f"not {name}: {reason}" for name, reason in left_out.items()),
        *said,
    ]
    schedule = {"runs": [run.described() for run in runs], "relation": "add_or_remove", "delta": delta}
    return _listed("method", rows, lines, schedule | {"left_out": left_out, "assumes": said})


def _of_samplers(runs: list[Run], delta: float) -> Answer:
    """What one run costs by how batches are drawn."""
    from jaxacct.cli.sampling import sampling_costs

    rows, epoch = sampling_costs(runs, delta)
    words = (
        f"epsilon of {epoch['epochs']} epochs of {epoch['batches']} batches, {epoch['records']} records, noise "
        f"multiplier {epoch['noise_multiplier']:g}, delta {delta:g}, relation add_or_remove"
    )
    return _listed("sampler", rows, [words], {**epoch, "delta": delta, "relation": "add_or_remove"})


def _listed(what: str, rows: Sequence[tuple[str, float, float, str]], lines: list[str], fields: Fields) -> Answer:
    """Names, epsilons, lower bounds where they are known, and kinds; for people rounded outwards."""
    columns = (what, "epsilon", "lower", "kind")
    shown = [
        [name, rounded_up(epsilon), "-" if math.isnan(lower) else rounded_down(lower), kind]
        for name, epsilon, lower, kind in rows
    ]
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


def _answers(
    runs: list[Run], delta: float, thorough: bool, users: int | None
) -> tuple[dict[str, Claim], dict[str, str]]:
    from jaxacct import _validate
    from jaxacct.cli.contestants import FILTERS, THOROUGH, Schedule

    cache_compilations()
    _validate.probability(delta=delta)
    if any(set(run.sampling) - {"rate", "records"} for run in runs):
        raise click.UsageError(
            "filters hold for add_or_remove and Poisson samples, not for samples of a fixed size, epochs of batches "
            "and batches that are cut: give a rate, or use compare --sampling"
        )
    _validate.count(steps=[run.steps for run in runs])
    parts = [(run.mechanism(), int(run.steps)) for run in runs]
    if users is not None:
        parts = [(attained_group(part, users)[0], steps) for part, steps in parts]
    schedule = Schedule(parts, delta)
    FILTERS["fixed in advance"](schedule)  # what is wrong with the schedule itself is an error
    asked = FILTERS | (THOROUGH if thorough else {})
    answers, left_out = {}, {}
    if not thorough:
        left_out = dict.fromkeys(THOROUGH, "its table takes seconds to minutes: add --thorough")
    report = report_of_work()
    for done, (name, ask) in enumerate(asked.items()):
        if report is not None:
            report(done, len(asked))
        try:
            answers[name] = ask(schedule)
        except ValueError as problem:
            left_out[name] = " ".join(str(problem).split())
    return answers, left_out
