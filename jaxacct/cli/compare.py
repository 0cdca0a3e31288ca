"""``jaxacct compare``: what filters certify for one schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._progress import Report, progress
from jaxacct.cli import plain_errors
from jaxacct.cli.output import as_csv as csv_of
from jaxacct.cli.output import say_json, table
from jaxacct.cli.page import DELTA, Page, csv_or_json, examples, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import Run, attained_group, said_of, said_of_users, users_option
from jaxacct.cli.start import cache_compilations
from jaxacct.cli.values import VALUES, WHOLE_VALUES

if TYPE_CHECKING:
    from jaxacct.cli.contestants import Answer

_question = under("Question")
_ATTAINED = "the curve of records that all pull the same way, which is attained"


@click.command(
    cls=Page,
    epilog=examples(
        "compare --sigma 1.4:2.5:8 --rate 0.01 --steps 3650 --delta 1e-5",
        "compare --sigma 2 --rate 0.01 --steps 2000 --delta 1e-5 --epsilon 1 --thorough --accountants",
        "compare --sampling --sigma 1 --batch 600 --records 60000 --epochs 10 --delta 1e-6",
        "compare --run laplace:scale=10,steps=20 --run gaussian:sigma=8,steps=50 --delta 1e-6 --json",
    ),
)
@_question("--delta", type=float, required=True, help=DELTA)
@_question("--epsilon", type=float, help="Also count the steps that each admits within this epsilon.")
@_question("--thorough", is_flag=True, help="Also filters with a table, and what approximate_gdp truly costs: minutes.")
@_question("--accountants", is_flag=True, help="Also dp_accounting's accountants, where installed.")
@_question(
    "--sampling", is_flag=True, help="Instead of filters: what the run costs by how batches are drawn; needs --records."
)
@users_option
@mechanism_options(VALUES, WHOLE_VALUES)
@csv_or_json
def compare(
    delta: float,
    epsilon: float | None,
    thorough: bool,
    accountants: bool,
    sampling: bool,
    records_per_user: int | None,
    as_csv: bool,
    as_json: bool,
    quiet: bool,
    **arguments: object,
) -> None:
    """Compare the epsilon that privacy filters certify for whoever runs this schedule, and might have run another.

    A filter's epsilon holds however the analyst reacts to results, so it is larger than that of the schedule fixed in
    advance, the first row. Lists and ranges (see jaxacct sweep) are the levels of a schedule: --steps runs in all,
    spread evenly over them, or one number for each. The relation is add_or_remove. Only what is called proven is a
    bound.
    """
    if sampling:
        if records_per_user is not None:
            raise click.UsageError("--sampling compares what single records pay: leave --records-per-user out")
        _compare_samplers(list(runs_of(arguments)), delta, as_csv, as_json)
        return
    runs = [level for run in runs_of(arguments) for level in _levels(run)]
    with plain_errors(), progress("compare", quiet) as report:
        answers, left_out = _answers(runs, delta, epsilon, thorough, accountants, report, records_per_user)
    said = [*_too_small(answers), *said_of(runs, delta), *said_of_users(records_per_user, _ATTAINED)]
    columns = ["method", "epsilon", "lower", "kind", *(["steps"] if epsilon is not None else [])]
    rows = [(name, *answer)[: len(columns)] for name, answer in answers.items()]
    if as_json:
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        schedule = {"runs": [run.described() for run in runs], "relation": "add_or_remove", "delta": delta}
        say_json({**schedule, "within_epsilon": epsilon, "rows": found, "left_out": left_out, "assumes": said})
        return
    _say(columns, rows, as_csv)
    if as_csv:
        return
    total = sum(run.steps for run in runs)
    within = "" if epsilon is None else f"; steps within epsilon {epsilon:g}, in the schedule's order"
    click.echo(f"epsilon of {total} steps at delta {delta:g}, relation add_or_remove{within}")
    for name, reason in left_out.items():
        click.echo(f"not {name}: {reason}")
    for line in said:
        click.echo(line)


def _compare_samplers(runs: list[Run], delta: float, as_csv: bool, as_json: bool) -> None:
    """Prints what one run costs by how batches are drawn."""
    from jaxacct import _validate
    from jaxacct.cli.sampling import COLUMNS, sampling_costs

    with plain_errors():
        _validate.probability(delta=delta)
        rows, epoch = sampling_costs(runs, delta)
    if as_json:
        found = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        say_json({**epoch, "delta": delta, "relation": "add_or_remove", "rows": found})
        return
    _say(COLUMNS, rows, as_csv)
    if as_csv:
        return
    click.echo(
        f"epsilon of {epoch['epochs']} epochs of {epoch['batches']} batches, {epoch['records']} records, noise "
        f"multiplier {epoch['noise_multiplier']:g}, delta {delta:g}, relation add_or_remove"
    )


def _say(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], as_csv: bool) -> None:
    """Prints names, epsilons and lower bounds, and what else is said of them; the table is rounded outwards."""
    if as_csv:
        click.echo(csv_of(columns, rows), nl=False)
        return
    shown = []
    for name, epsilon, lower, *rest in rows:
        cells = [name, rounded_up(epsilon), rounded_down(lower), *map(str, rest)]
        shown.append(["-" if cell in ("nan", "None") else cell for cell in cells])
    click.echo(table(columns, shown))


def _too_small(answers: dict[str, Answer]) -> list[str]:
    """Says which numbers that are no bounds lie below what is proven to be spent."""
    lowest = answers["fixed in advance"].lower
    said = []
    for name, answer in answers.items():
        if answer.kind == "asymptotic" and answer.epsilon < lowest:
            click.echo(
                f"jaxacct: warning: {name}: epsilon {answer.epsilon:.6g} is asymptotic, and too small: the schedule "
                f"spends at least {rounded_down(lowest)}",
                err=True,
            )
            said.append(f"{name} is too small by {lowest - answer.epsilon:.3g} at least")
    return said


def _levels(run: Run) -> list[Run]:
    """One run for each level of a schedule; numbers are scalars from here on."""
    values = {**run.parameters, "rate": run.rate}
    if run.sample is not None:
        raise click.UsageError("filters hold for add_or_remove, not for samples of a fixed size: give a rate")
    if run.epoch is not None:
        raise click.UsageError("filters take steps, not epochs of batches: use compare --sampling for those")
    sizes = {len(np.atleast_1d(value)) for value in values.values()}
    size = max(sizes)
    if sizes - {1, size}:
        raise click.UsageError(f"lists of levels must have one length, got {', '.join(map(str, sorted(sizes)))}")
    columns = {name: np.broadcast_to(value, size).tolist() for name, value in values.items()}
    given = np.atleast_1d(run.steps).astype(int).tolist()
    if len(given) == 1:
        (total,) = given
        if size > 1 and total < size:
            raise click.UsageError(f"--steps must be at least the number of levels, {size}, got {total}")
        given = [total // size + (i < total % size) for i in range(size)]
    if len(given) != size:
        raise click.UsageError(f"--steps must be one number or {size}, one for each level, got {len(given)}")
    rates = columns.pop("rate")
    pick = lambda i: {name: column[i] for name, column in columns.items()}  # noqa: E731
    return [Run(run.family, pick(i), rates[i], None, given[i], run.records) for i in range(size)]


def _answers(
    runs: list[Run],
    delta: float,
    epsilon: float | None,
    thorough: bool,
    accountants: bool,
    report: Report,
    users: int | None,
) -> tuple[dict[str, Answer], dict[str, str]]:
    from jaxacct import _validate
    from jaxacct.cli.contestants import ACCOUNTANTS, FILTERS, THOROUGH, Schedule, admitted

    cache_compilations()
    _validate.probability(delta=delta)
    if epsilon is not None:
        _validate.positive(epsilon=epsilon)
    _validate.count(steps=[run.steps for run in runs])
    parts = [(run.mechanism(), run.steps) for run in runs]
    if users is not None:
        parts = [(attained_group(part, users)[0], steps) for part, steps in parts]
    schedule = Schedule(parts, delta)
    FILTERS["fixed in advance"](schedule)  # what is wrong with the schedule itself is an error
    asked = [*FILTERS, *(THOROUGH if thorough else ()), *(ACCOUNTANTS if accountants else ())]
    answers, left_out = {}, {}
    if not thorough:
        left_out = dict.fromkeys(THOROUGH, "its table takes seconds to minutes: add --thorough")
    for done, name in enumerate(asked):
        if report is not None:
            report(done, len(asked))
        try:
            if name in THOROUGH:
                answers[name] = THOROUGH[name](schedule, epsilon)
                continue
            answer = {**FILTERS, **ACCOUNTANTS}[name](schedule)
            steps = admitted(name, schedule, epsilon) if epsilon is not None and name in FILTERS else None
            answers[name] = answer._replace(steps=steps)
        except ValueError as problem:
            left_out[name] = " ".join(str(problem).split())
    return answers, left_out
