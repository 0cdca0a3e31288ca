"""``jaxacct epsilon`` and ``jaxacct delta``: one query of :mod:`jaxacct.accounting`."""

from __future__ import annotations

import functools

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._types import Fields
from jaxacct.cli.output import Answer
from jaxacct.cli.page import DELTA, question, relation_option, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import check_users, composed, said_of, said_of_users, users_option

_target = functools.partial(under("Question"), type=float, required=True)


@question(
    "epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5",
    "epsilon --noise-multiplier 0.9 --batch 512 --records 60000 --epochs 30 --delta 1e-5",
    "epsilon --mechanism laplace --scale 2 --steps 10 --delta 1e-6 --json",
    "epsilon --sigma 1 --rate 0.01 --steps 1000 --delta 1e-5 --records-per-user 5 --gdp",
    "epsilon --run gaussian:sigma=2,steps=50 --run pure-dp:epsilon=0.1 --delta 1e-5",
)
@_target("--delta", "target", help=DELTA)
@under("Question")("--gdp", is_flag=True, help="Also the least mu such that the whole is mu-GDP, and its regret.")
@relation_option
@users_option
@mechanism_options()
def epsilon(**arguments: object) -> Answer:
    """Print certified bounds of epsilon of a mechanism, sampled and repeated, or of several composed.

    The first line is the guarantee: the runs together are (epsilon, delta)-DP. The second says how tight it is: no
    smaller epsilon than that is possible. Everything about the runs must be fixed before any data are seen; if
    parameters react to results, use a filter (see jaxacct compare).
    """
    return _answer("epsilon", "delta", arguments)


@question(
    "delta --sigma 1 --rate 0.01 --steps 1000 --epsilon 1",
    "delta --mechanism randomized-response --each-epsilon 0.5 --steps 20 --epsilon 4",
)
@_target("--epsilon", "target", help="Privacy loss in nats.")
@relation_option
@users_option
@mechanism_options()
def delta(**arguments: object) -> Answer:
    """Print certified bounds of delta of a mechanism, sampled and repeated, or of several composed.

    The first line is the guarantee: the runs together are (epsilon, delta)-DP. The second says how tight it is: no
    smaller delta than that is possible.
    """
    return _answer("delta", "epsilon", arguments)


def _answer(wanted: str, given: str, arguments: Fields) -> Answer:
    target, relation, users = (arguments.pop(name) for name in ("target", "relation", "records_per_user"))
    with_mu = arguments.pop("gdp", False)
    runs = runs_of(arguments)
    check_users(users, relation)
    from jaxacct import accounting
    from jaxacct.mechanisms.directions import witness

    mechanism, steps = composed(runs)
    ask = functools.partial(getattr(accounting, wanted), relation=relation)
    tight, why = True, ""
    bounds = ask(mechanism, target, steps=steps)
    upper, lower = float(bounds.upper), float(bounds.lower)
    if users is not None:
        from jaxacct.summaries.group import group_of

        (mechanism, tight, why), steps = group_of(mechanism, users, steps=steps), 1
        bounds = ask(mechanism, target, steps=steps)
        upper, lower = float(bounds.upper), float(bounds.lower) if tight else lower  # a user may own a single record
    proven = tight and (users is not None or witness(mechanism, relation) is mechanism)
    total = sum(run.steps for run in runs)
    said = [*said_of(runs, target if given == "delta" else None), *said_of_users(users, why)]
    what = "how tight it is" if proven else "the best attack known"
    lines = [
        f"{wanted} <= {rounded_up(upper)}   (upper bound: the guarantee)",
        f"{wanted} >= {rounded_down(lower)}   (lower bound: {what})",
        f"at {given} {target:g}, relation {relation}, {total} {'step' if total == 1 else 'steps'} fixed in advance",
        *said,
    ]
    fields: Fields = {"runs": [run.described() for run in runs], "relation": relation, given: target}
    if users is not None:
        fields["records_per_user"] = users
    fields |= {"assumes": said, wanted: {"lower": lower, "upper": upper}}
    if with_mu:
        from jaxacct.summaries.gdp import gdp_summary

        found = gdp_summary(mechanism, steps=steps, relation=relation)
        well = {"describes_well": found.describes_well, "delta_aside": found.delta_aside}
        fields["gdp"] = {"mu": found.mu._asdict(), "regret": found.regret._asdict()} | well
        lines.append(
            f"mu <= {rounded_up(float(found.mu.upper))}   (mu-GDP up to delta {found.delta_aside:g}; mu >= "
            f"{rounded_down(float(found.mu.lower))}; regret at most {rounded_up(float(found.regret.upper))}: mu "
            f"{'describes the whole curve' if found.describes_well else 'alone describes the curve badly'})"
        )
    return Answer(lines, fields)
