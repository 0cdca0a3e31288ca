"""``jaxacct calibrate``: the noise, sampling rate or number of steps that a privacy target asks for."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING

import click

from jaxacct._printing import rounded_down, rounded_up
from jaxacct.cli.output import Answer
from jaxacct.cli.page import DELTA, question, relation_option, report_of_work, under
from jaxacct.cli.run_options import mechanism_options, runs_of
from jaxacct.cli.runs import (
    FAMILIES,
    Number,
    Run,
    attained_group,
    check_users,
    composed,
    said_of,
    said_of_users,
    users_option,
)

if TYPE_CHECKING:
    from jaxacct.accounting.calibration import Calibration
    from jaxacct.mechanisms.base import Mechanism

_question = under("Question")
_USERS = "records-per-user"


@question(
    "calibrate --epsilon 1 --delta 1e-5 --rate 0.01 --steps 1000",
    "calibrate --epsilon 1 --delta 1e-5 --sigma 1 --rate 0.01 --seek steps",
    "calibrate --epsilon 4 --delta 1e-5 --sigma 1.36 --rate 0.005 --steps 600 --seek records-per-user",
    "calibrate --gdp 1 --rate 0.01 --steps 1000",
    "calibrate --epsilon 2 --delta 1e-6 --mechanism laplace --steps 20 --run gaussian:sigma=3",
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
    "--bracket",
    type=float,
    nargs=2,
    metavar="LOW HIGH",
    help="Where to look.  [default: noise 1e-3 to 1e6, losses up to 100, rates from 1e-9, any steps]",
)
@relation_option
@users_option
@mechanism_options()
def calibrate(
    epsilon: float | None,
    delta: float | None,
    target_mu: float | None,
    seek: str,
    bracket: tuple[float, float] | None,
    relation: str,
    records_per_user: int | None,
    **arguments: object,
) -> Answer:
    """Print the least certified noise, or the largest rate or number of steps, that meets (epsilon, delta).

    The first line holds a number at which the certified upper bound of delta meets the target; the second one, at which
    the certified lower bound misses it. The best there is lies between the two. Runs given by --run stay as they are
    and are counted.
    """
    sought, *others = runs_of(arguments, without=None if seek == _USERS else seek)
    check_users(1 if seek == _USERS else records_per_user, relation)
    if records_per_user is not None and seek == _USERS:
        raise click.UsageError("--records-per-user is what this command computes: leave it out")
    known = FAMILIES[sought.family]
    more = seek == "noise" and known.bracket is None
    name = known.seeks if seek == "noise" else seek
    asked = Search(sought, others, seek, relation, records_per_user)
    if target_mu is None:
        if epsilon is None or delta is None:
            raise click.UsageError("give --epsilon and --delta, or --gdp")
        found = asked.calibration(epsilon, delta, bracket)
        value, refuted = found.parameter.item(), found.refuted.item()
        there = float(found.delta.lower), float(found.delta.upper)
        targets = {"epsilon": epsilon, "delta": delta}
        fields = {f"refuted_{name}": refuted, f"delta_at_{name}": dict(zip(("lower", "upper"), there, strict=True))}
        met, where = f"delta <= {rounded_up(there[1])}", f"at epsilon {epsilon:g}, delta {delta:g}"
        missed = f"{'>' if more else '<'} {{}}   (that provably fails it: how tight it is)"
    else:
        if not (epsilon is None and delta is None and more):
            raise click.UsageError("--gdp takes the place of --epsilon and --delta, and looks for noise")
        value, refuted, reached = asked.to_mu(target_mu, *(bracket or (0.05, 1e4)))
        targets, fields = {"mu": target_mu}, {f"mu_at_{name}": reached}
        met, where = f"mu <= {rounded_up(reached)}", "mu-GDP up to delta 1e-10"
        missed = "= {} was not shown to"
    # Rounded towards more privacy, what meets the target still does; and what fails it the other way.
    shown = [rounded_up, rounded_down] if more else [rounded_down, rounded_up]
    if seek in ("steps", _USERS):
        shown, value, refuted = [str, str], int(value), refuted if refuted != refuted else int(refuted)
    answered = sought._replace(sampling=sought.sampling | {"rate": value}) if seek == "rate" else sought
    said = said_of([answered, *others], delta)
    said += said_of_users(value if seek == _USERS else records_per_user, asked.why)
    fixed = {key: item for key, item in sought.described().items() if key != name}
    query = {"runs": [fixed, *(run.described() for run in others)], "relation": relation}
    if refuted == refuted:
        second = f"{name} {missed.format(shown[1](refuted))}"
    else:
        second = f"no {'smaller' if more else 'larger'} {name} was shown to fail"
    lines = [
        f"{name} = {shown[0](value)}   (meets the target: {met})",
        second,
        f"{where}, relation {relation}, fixed in advance",
        *said,
    ]
    return Answer(lines, query | targets | {"assumes": said, name: value} | fields)


@dataclasses.dataclass
class Search:
    """What is left out of ``run``, looked for; the values that are tried may be arrays.

    Attributes:
        run: the run that lacks something.
        others: composed with it.
        seek: "noise", "rate", "steps" or "records-per-user".
        relation: what neighbours differ in.
        users: how many records a user owns, where neighbours differ in all of them.
        why: what the curve of all records of a user is, once it was looked for.
    """

    run: Run
    others: list[Run]
    seek: str = "noise"
    relation: str = "add_or_remove"
    users: int | None = None
    why: str = ""

    def made(self, value: Number) -> tuple[Mechanism, Number]:
        """All runs with a value in the place of what is looked for: (mechanism, steps)."""
        run, users = self.run, self.users
        if self.seek == "noise":
            run = run._replace(parameters={**run.parameters, FAMILIES[run.family].seeks: value})
        elif self.seek == "rate":
            run = run._replace(sampling=run.sampling | {"rate": value})
        elif self.seek == "steps":
            run = run._replace(steps=value)
        else:
            users = value
        mechanism, steps = composed([run, *self.others])
        if users is None:
            return mechanism, steps
        mechanism, self.why = attained_group(mechanism, users, steps)
        return mechanism, 1

    def calibration(
        self, epsilon: Number, delta: Number, bracket: tuple[float, float] | None = None, unreachable: str = "raise"
    ) -> Calibration:
        """The `Calibration` for targets, numbers or arrays."""
        from jaxacct.accounting.calibration import calibrate as calibrated

        losses = FAMILIES[self.run.family].bracket
        known = {"noise": losses, "rate": (1e-9, 1.0), _USERS: (1.0, 100_000.0)}
        seek = "smallest" if self.seek == "noise" and losses is None else "largest"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the answer says how far off it may be
            steps = lambda value: self.made(value)[1]  # noqa: E731
            return calibrated(
                lambda value: self.made(value)[0],
                *(epsilon, delta),
                steps=steps,
                relation=self.relation,
                seek=seek,
                whole=self.seek in ("steps", _USERS),
                bracket=bracket or known.get(self.seek),
                unreachable=unreachable,
                progress=report_of_work(),
            )

    def to_mu(self, mu: float, least: float, most: float) -> tuple[float, float, float]:
        """The least noise at which all runs together are mu-GDP up to delta 1e-10, what fails, and the mu reached."""
        from jaxacct import attacks
        from jaxacct.summaries.gdp import gdp_summary

        mu_of = lambda made: gdp_summary(made[0], steps=made[1], relation=self.relation).mu  # noqa: E731
        found = attacks.calibrate(self.made, mu_of, mu, least=least, most=most)
        return found.parameter, found.refuted, found.value
