"""``jaxacct epsilon`` and ``jaxacct delta``: one query of :mod:`jaxacct.accounting`."""

from __future__ import annotations

import functools
from typing import Any

import click

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._progress import progress
from jaxacct.cli import plain_errors
from jaxacct.cli.output import say_json
from jaxacct.cli.page import DELTA, Page, examples, relation_option, shared, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import check_users, composed, said_of, said_of_users, users_option
from jaxacct.cli.start import without_collection

_target = functools.partial(under("Question"), type=float, required=True)


@click.command(
    cls=Page,
    epilog=examples(
        "epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5",
        "epsilon --noise-multiplier 0.9 --batch 512 --records 60000 --epochs 30 --delta 1e-5",
        "epsilon --mechanism laplace --scale 2 --steps 10 --delta 1e-6 --json",
        "epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5 --records-per-user 5 --gdp",
        "epsilon --run gaussian:sigma=2,steps=50 --run pure-dp:epsilon=0.1 --delta 1e-5",
    ),
)
@_target("--delta", "target", help=DELTA)
@under("Question")("--gdp", is_flag=True, help="Also the least mu such that the whole is mu-GDP, and its regret.")
@relation_option
@users_option
@mechanism_options()
@shared
def epsilon(**arguments: Any) -> None:
    """Print certified bounds of epsilon of a mechanism, sampled and repeated, or of several composed.

    The first line is the guarantee: the runs together are (epsilon, delta)-DP. The second says how tight it is: no
    smaller epsilon than that is possible. Everything about the runs must be fixed before any data are seen; if
    parameters react to results, use a filter (see jaxacct compare).
    """
    _answer("epsilon", "delta", **arguments)


@click.command(
    cls=Page,
    epilog=examples(
        "delta --sigma 1 --rate 0.01 --steps 1000 --epsilon 1",
        "delta --mechanism randomized-response --each-epsilon 0.5 --steps 20 --epsilon 4",
    ),
)
@_target("--epsilon", "target", help="Privacy loss in nats.")
@relation_option
@users_option
@mechanism_options()
@shared
def delta(**arguments: Any) -> None:
    """Print certified bounds of delta of a mechanism, sampled and repeated, or of several composed.

    The first line is the guarantee: the runs together are (epsilon, delta)-DP. The second says how tight it is: no
    smaller delta than that is possible.
    """
    _answer("delta", "epsilon", **arguments)


def _answer(
    wanted: str,
    given: str,
    *,
    target: float,
    relation: str,
    records_per_user: int | None,
    as_json: bool,
    quiet: bool,
    gdp: bool = False,
    **arguments: object,
) -> None:
    runs = runs_of(arguments)
    check_users(records_per_user, relation)
    with without_collection(), plain_errors(), progress(wanted, quiet):
        from jaxacct import accounting

        mechanism, steps = composed(runs)
        ask = functools.partial(getattr(accounting, wanted), relation=relation)
        tight, why, alone = True, "", None
        if records_per_user is not None:
            from jaxacct.summaries.group import group_of

            alone = ask(mechanism, target, steps=steps).lower  # a user may own a single record
            (mechanism, tight, why), steps = group_of(mechanism, records_per_user, steps=steps), 1
        bounds = ask(mechanism, target, steps=steps)
        upper = float(bounds.upper)
        lower = float(bounds.lower if tight else alone)  # pyright: ignore[reportArgumentType]
        summary = None
        if gdp:
            from jaxacct.summaries.gdp import gdp_summary

            summary = gdp_summary(mechanism, steps=steps, relation=relation)
    said = said_of(runs, target if given == "delta" else None)
    said += said_of_users(records_per_user, why)
    if as_json:
        query = {"runs": [run.described() for run in runs], "relation": relation, given: target}
        query |= {} if records_per_user is None else {"records_per_user": records_per_user}
        answer: dict[str, object] = {wanted: {"lower": lower, "upper": upper}}
        if summary is not None:
            found = {name: getattr(summary, name)._asdict() for name in ("mu", "regret")}
            well = {"describes_well": bool(summary.describes_well), "delta_aside": summary.delta_aside}
            answer["gdp"] = {name: {k: float(v) for k, v in one.items()} for name, one in found.items()} | well
        say_json({**query, "assumes": said, **answer})
        return
    click.echo(f"{wanted} <= {rounded_up(upper)}   (upper bound: the guarantee)")
    from jaxacct.mechanisms.directions import witness

    proven = tight and (records_per_user is not None or witness(mechanism, relation) is mechanism)
    what = "how tight it is" if proven else "the best attack known"
    click.echo(f"{wanted} >= {rounded_down(lower)}   (lower bound: {what})")
    total = sum(run.steps for run in runs)
    click.echo(
        f"at {given} {target:g}, relation {relation}, {total} {'step' if total == 1 else 'steps'} fixed in advance"
    )
    for line in said:
        click.echo(line)
    if summary is not None:
        mu, regret = (float(x.upper) for x in (summary.mu, summary.regret))
        click.echo(
            f"mu <= {rounded_up(mu)}   (mu-GDP up to delta {summary.delta_aside:g}; mu >= "
            f"{rounded_down(float(summary.mu.lower))}; regret at most {rounded_up(regret)}: mu "
            f"{'describes the whole curve' if summary.describes_well else 'alone describes the curve badly'})"
        )
