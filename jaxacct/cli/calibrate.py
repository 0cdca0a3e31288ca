"""``jaxacct calibrate``: the noise, sampling rate or number of steps that a privacy target asks for."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import click

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._progress import Report, progress
from jaxacct.cli import plain_errors
from jaxacct.cli.output import say_json
from jaxacct.cli.page import DELTA, Page, examples, relation_option, shared, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import (
    FAMILIES,
    Number,
    Run,
    alike,
    attained_group,
    check_users,
    composed,
    said_of,
    said_of_users,
    users_option,
)
from jaxacct.cli.start import without_collection

if TYPE_CHECKING:
    from jaxacct.accounting.calibration import Calibration
    from jaxacct.mechanisms.base import Mechanism

_question = under("Question")
_USERS = "records-per-user"


@click.command(
    cls=Page,
    epilog=examples(
        "calibrate --epsilon 1 --delta 1e-5 --rate 0.01 --steps 1000",
        "calibrate --epsilon 1 --delta 1e-5 --sigma 1 --rate 0.01 --seek steps",
        "calibrate --epsilon 4 --delta 1e-5 --sigma 1.36 --rate 0.005 --steps 600 --seek records-per-user",
        "calibrate --gdp 1 --rate 0.01 --steps 1000",
        "calibrate --epsilon 2 --delta 1e-6 --mechanism laplace --steps 20 --run gaussian:sigma=3",
    ),
)
@_question("--epsilon", help="Target privacy loss in nats.", type=float)
@_question("--delta", help=DELTA, type=float)
@_question(
    "--gdp", "target_mu", help="Instead of both, for noise: mu of mu-GDP up to delta 1e-10.", type=float, metavar="MU"
)
@_question(
    "--seek",
    type=click.Choice(["noise", "rate", "steps", _USERS]),
    default="noise",
    show_default=True,
    help="What to look for, and so to leave out: the least noise (or the largest privacy loss of a single run, for "
    "mechanisms that are given by it), the largest rate, the most steps, the most records of a user.",
)
@_question(
    "--between",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    help="Where to look.  [default: noise 1e-3 to 1e6, losses up to 100, rates from 1e-9, any steps]",
)
@relation_option
@users_option
@mechanism_options()
@shared
def calibrate(
    epsilon: float | None,
    delta: float | None,
    target_mu: float | None,
    seek: str,
    between: tuple[float, float] | None,
    relation: str,
    records_per_user: int | None,
    as_json: bool,
    quiet: bool,
    **arguments: object,
):
    """Print the least certified noise, or the largest rate or number of steps, that meets (epsilon, delta).

    The first line holds a number at which the certified upper bound of delta meets the target; the second one, at which
    the certified lower bound misses it. The best there is lies between the two. Runs given by --run stay as they are
    and are counted.
    """
    sought, *others = runs_of(arguments, without=None if seek == _USERS else seek)
    users = records_per_user
    check_users(1 if seek == _USERS else users, relation)
    if users is not None and seek == _USERS:
        raise click.UsageError("--records-per-user is what this command computes: leave it out")
    if target_mu is not None:
        if epsilon is not None or delta is not None or seek != "noise" or FAMILIES[sought.family].bracket is not None:
            raise click.UsageError("--gdp takes the place of --epsilon and --delta, and looks for noise")
        with without_collection(), plain_errors():
            _to_mu(sought, others, target_mu, relation, users, between, as_json)
        return
    if epsilon is None or delta is None:
        raise click.UsageError("give --epsilon and --delta, or --gdp")
    name = FAMILIES[sought.family].seeks if seek == "noise" else seek
    with without_collection(), plain_errors(), warnings.catch_warnings(), progress("calibrate", quiet) as report:
        warnings.simplefilter("ignore", RuntimeWarning)  # the second line says how far off it may be
        options = {} if between is None else {"bracket": between}
        try:
            found, why = search(sought, others, seek, epsilon, delta, relation, report, users, **options)
        except ValueError as problem:
            raise ValueError(_advised(str(problem), seek, between)) from None
    value, refuted = found.parameter.item(), found.refuted.item()
    if seek in ("steps", _USERS):
        value, refuted = int(value), refuted if refuted != refuted else int(refuted)
    known = refuted == refuted
    there = {"lower": float(found.delta.lower), "upper": float(found.delta.upper)}
    answered = sought._replace(rate=value) if seek == "rate" else sought
    said = [*said_of([answered, *others], delta), *said_of_users(value if seek == _USERS else users, why)]
    if as_json:
        fixed = {key: item for key, item in sought.described().items() if key != name}
        query = {"runs": [fixed, *(run.described() for run in others)], "relation": relation}
        answer = {name: value, f"refuted_{name}": refuted if known else None, f"delta_at_{name}": there}
        say_json({**query, "epsilon": epsilon, "delta": delta, "assumes": said, **answer})
        return
    more = seek == "noise" and FAMILIES[sought.family].bracket is None
    # Rounded towards more privacy, what meets the target still does; and what fails it the other way.
    shown = [rounded_up, rounded_down] if more else [rounded_down, rounded_up]
    if seek in ("steps", _USERS):
        shown = [str, str]
    click.echo(f"{name} = {shown[0](value)}   (meets the target: delta <= {rounded_up(there['upper'])})")
    if known:
        click.echo(f"{name} {'>' if more else '<'} {shown[1](refuted)}   (that provably fails it: how tight it is)")
    else:
        click.echo(f"no {'smaller' if more else 'larger'} {name} was shown to fail")
    click.echo(f"at epsilon {epsilon:g}, delta {delta:g}, relation {relation}, fixed in advance")
    for line in said:
        click.echo(line)


def _advised(problem: str, seek: str, between: object) -> str:
    """The search's own words, with what a shell can do about them."""
    if seek in ("steps", _USERS) and between is None:
        least = "step" if seek == "steps" else "record"
        return problem.replace(
            ": widen the bracket, or see whether seek fits", f": not even a single {least} is within it"
        )
    return problem.replace("widen the bracket, or see whether seek fits", "look further with --between LOW HIGH")


def search(
    run: Run,
    others: list[Run],
    seek: str,
    epsilon: Number,
    delta: Number,
    relation: str,
    report: Report,
    users: int | None = None,
    **options: Any,
) -> tuple[Calibration, str]:
    """A `Calibration` of what was left out of ``run``; values and targets may be arrays.

    ``users`` is how many records a user owns, where neighbours differ in all of them; then what the curve is comes
    second.
    """
    from jaxacct.accounting.calibration import calibrate as calibrated
    from jaxacct.mechanisms import Composed

    known = FAMILIES[run.family]
    fixed = [other.mechanism() for other in others]
    counts = [other.steps for other in others]

    def make(value: Number) -> Mechanism:
        filled = run._replace(parameters={**run.parameters, known.seeks: value}) if seek == "noise" else run
        filled = filled._replace(rate=value) if seek == "rate" else filled
        steps = value if seek == "steps" else filled.steps
        return Composed([filled.mechanism(), *fixed], alike([steps, *counts])) if others else filled.mechanism()

    steps = 1 if others else (lambda value: value) if seek == "steps" else run.steps
    why = ""
    if users is not None or seek == _USERS:
        of_run, counted = make, steps

        def make(value: Number) -> Mechanism:
            nonlocal why
            count = counted(value) if callable(counted) else counted
            found, why = attained_group(of_run(value), value if seek == _USERS else users, count)
            return found

        steps = 1
    if seek == "rate":
        options = {"seek": "largest", "bracket": (1e-9, 1.0)} | options
    elif seek == "steps":
        options |= {"seek": "largest", "whole": True}
    elif seek == _USERS:
        options = {"bracket": (1.0, 100_000.0)} | options | {"seek": "largest", "whole": True}
    elif known.bracket is not None:
        options = {"seek": "largest", "bracket": known.bracket} | options
    found = calibrated(make, epsilon, delta, steps=steps, relation=relation, progress=report, **options)
    return found, why


def _to_mu(
    run: Run,
    others: list[Run],
    mu: float,
    relation: str,
    users: int | None,
    between: tuple[float, float] | None,
    as_json: bool,
) -> None:
    """Prints the least noise at which all runs together are mu-GDP up to delta 1e-10."""
    from jaxacct import attacks
    from jaxacct.summaries.gdp import gdp_summary

    name = FAMILIES[run.family].seeks
    why = ""

    def made(noise: float) -> tuple[Mechanism, Any]:
        nonlocal why
        mechanism, steps = composed([run._replace(parameters={**run.parameters, name: noise}), *others])
        if users is None:
            return mechanism, steps
        mechanism, why = attained_group(mechanism, users, steps)
        return mechanism, 1

    least, most = between or (0.05, 1e4)
    mu_of = lambda one: gdp_summary(one[0], steps=one[1], relation=relation).mu  # noqa: E731
    found = attacks.calibrate(made, mu_of, mu, least=least, most=most)
    said = [*said_of([run, *others]), *said_of_users(users, why)]
    if as_json:
        runs = {"runs": [run.described(), *(other.described() for other in others)], "relation": relation, "mu": mu}
        say_json({**runs, "assumes": said, name: found.parameter, f"mu_at_{name}": found.value})
        return
    click.echo(f"{name} = {rounded_up(found.parameter)}   (meets the target: mu <= {rounded_up(found.value)})")
    click.echo(f"{name} = {rounded_down(found.refuted)} was not shown to")
    click.echo(f"mu-GDP up to delta 1e-10, relation {relation}, fixed in advance")
    for line in said:
        click.echo(line)
