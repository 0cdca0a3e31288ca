"""Runs from the command line: the options of a mechanism, and ``--run`` descriptions."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import click
import numpy as np
from click import ParamType

from jaxacct._types import Fields
from jaxacct.cli.page import FIRST, MECHANISM, Command, together, under
from jaxacct.cli.runs import FAMILIES, OPTIONS, Number, Run
from jaxacct.cli.values import WHOLE

# Name: (heading, kind, help), in the order of the help pages.
_OPTIONS = {
    "noise_multiplier": (FIRST, "number", "Noise over the clip norm: --sigma at sensitivity 1."),
    "batch": (FIRST, "whole", "Expected batch size; with --records, the rate."),
    "records": (FIRST, "whole", "Records in the data set."),
    "epochs": (FIRST, "number", "Passes over the records: steps are epochs / rate, rounded up."),
    "steps": (FIRST, "whole", "Number of runs, fixed in advance.  [default: 1]"),
    "sigma": (MECHANISM, "number", "Noise in the units of the query; the noise multiplier if the sensitivity is 1."),
    "sensitivity": (MECHANISM, "number", "What a neighbour changes the query by at most.  [default: 1]"),
    "scale": (MECHANISM, "number", "Scale of Laplace noise, in the units of the query."),
    "mu": (MECHANISM, "number", "GDP parameter of each run; of Skellam noise, half the variance."),
    "epsilon": (MECHANISM, "number", "Privacy loss of each single run."),
    "categories": (MECHANISM, "number", "Number of categories.  [default: 2]"),
    "delta": (MECHANISM, "number", "Failure probability of each single run."),
    "rho": (MECHANISM, "number", "zCDP parameter of each run."),
    "order": (MECHANISM, "number", "Order at which --each-epsilon is a Renyi divergence."),
    "rate": (MECHANISM, "number", "Poisson sampling rate; 1: none.  [default: 1]"),
    "sample_size": (MECHANISM, "whole", "Records drawn, a fixed number."),
    "dataset_size": (MECHANISM, "whole", "Out of how many."),
    "with_replacement": (MECHANISM, "flag", "Draw each of them from all."),
    "largest": (MECHANISM, "whole", "Cut larger Poisson samples at random to this."),
    "batches": (MECHANISM, "whole", "Of an epoch, of which each record draws one at random; steps are then epochs."),
    "participations": (MECHANISM, "whole", "Batches that each record draws.  [default: 1]"),
    "shuffled": (MECHANISM, "flag", "Cut shuffled records into --batches instead."),
}
_PARAMETERS = {name for family in FAMILIES.values() for name in (*family.needs, *family.may)}
_AROUND = [name for name in _OPTIONS if name not in _PARAMETERS and name != "noise_multiplier"]
_SAMPLING = [name for name in _AROUND if name not in ("batch", "epochs", "steps")]
# What says nothing without another option.
_GOES_WITH = {
    "sample_size": "dataset_size",
    "dataset_size": "sample_size",
    "with_replacement": "sample_size",
    "batch": "records",
    "largest": "records",
    "participations": "batches",
    "shuffled": "batches",
}
# Of each of these, one at most.
_INSTEAD = (
    ("rate", "batch", "sample_size", "batches"),
    ("largest", "sample_size", "batches"),
    ("participations", "shuffled"),
    ("epochs", "steps"),
)


def mechanism_options(
    number: ParamType = click.FLOAT, whole: ParamType = WHOLE, short: bool = False, family: str = "gaussian"
) -> Callable[[Command], Command]:
    """Adds the options of a mechanism, numbers of the types ``number`` and ``whole``.

    With ``short``, ``--epsilon`` and ``--delta`` are the mechanism's own, in a command that asks for neither.
    ``family`` is what the help page calls the default.
    """
    types = {"number": {"type": number}, "whole": {"type": whole}, "flag": {"is_flag": True}}

    def option(name: str, heading: str, kind: str, words: str) -> Callable[[Command], Command]:
        spelled = {option_of(name), f"--{name}"} if short and name in OPTIONS else {option_of(name)}
        return under(heading)(*sorted(spelled), OPTIONS.get(name, name), help=words, **types[kind])

    return together(
        under(MECHANISM)(
            "--mechanism",
            type=click.Choice(list(FAMILIES)),
            metavar="FAMILY",
            help=f"What runs: {', '.join(FAMILIES)}.  [default: {family}]",
        ),
        *(option(name, *row) for name, row in _OPTIONS.items()),
        under(MECHANISM)(
            "--run",
            "runs",
            multiple=True,
            metavar="FAMILY:NAME=VALUE,...",
            help="A further run, composed with the rest, such as laplace:scale=2,rate=0.1,steps=50. The words are "
            "the options above. May be given several times.",
        ),
    )


def runs_of(arguments: Fields, without: str | None = None) -> list[Run]:
    """The runs that the options of `mechanism_options` describe, which are taken out of a command's ``arguments``.

    ``without`` is the part of the first run that is looked for and so must be left out: "noise" (the family's
    ``seeks``), "rate" or "steps". It is absent from the first run's parameters, or None there.
    """
    take_multiplier(arguments)
    family = arguments.pop("mechanism")
    own = {name: arguments.pop(OPTIONS.get(name, name)) for name in _PARAMETERS}
    around = {name: arguments.pop(name) for name in _AROUND}
    given, around = (
        {name: value for name, value in one.items() if value is not None and value is not False}
        for one in (own, around)
    )
    others = [_parsed(text) for text in arguments.pop("runs")]
    if others and not (family or given or around) and without is None:
        return others
    return [_run(family or "gaussian", given, around, without), *others]


def take_multiplier(arguments: dict[str, object]) -> None:
    """Turns ``--noise-multiplier`` among a command's arguments into ``--sigma``."""
    multiplier = arguments.pop("noise_multiplier", None)
    if multiplier is not None:
        if arguments["sigma"] is not None or arguments["sensitivity"] is not None:
            raise click.UsageError("--noise-multiplier is --sigma at sensitivity 1: leave out --sigma, --sensitivity")
        arguments["sigma"] = multiplier


def option_of(name: str) -> str:
    """The option that sets a mechanism's parameter."""
    return "--" + OPTIONS.get(name, name).replace("_", "-")


def _run(family: str, given: Fields, around: Fields, without: str | None) -> Run:
    known = FAMILIES[family]
    left_out = known.seeks if without == "noise" else without
    for name in given:
        if name not in (*known.needs, *known.may):
            takers = [other for other, one in FAMILIES.items() if name in (*one.needs, *one.may)]
            raise click.UsageError(f"{option_of(name)} does not belong to {family}, but to {', '.join(takers)}")
    for name in known.needs:
        if name not in given and name != left_out:
            raise click.UsageError(f"{family} needs {option_of(name)}")
    if left_out is not None and (left_out in given or left_out in around):
        others = [seek for seek in ("noise", "steps", "rate") if seek != without]
        instead = " or ".join(f"--seek {seek}" for seek in others if seek not in around)
        raise click.UsageError(f"{option_of(left_out)} is what this command computes: leave it out, or add {instead}")
    for name, other in _GOES_WITH.items():
        if name in around and other not in around:
            raise click.UsageError(f"{option_of(name)} goes with {option_of(other)}")
    sought = {"rate": ("rate", "steps"), "steps": ("steps",)}.get(without or "", ())
    for ways in _INSTEAD:
        if len(both := [name for name in ways if name in around or name in sought]) > 1:
            words = " and ".join(map(option_of, both))
            raise click.UsageError(f"{words} do not go together, given or computed: leave one of them out")
    return Run(family, given, *_of_training(around))


def _of_training(around: Fields) -> tuple[Fields, Number]:
    """How batches are drawn, and the steps, from batch, records and epochs where these are given."""
    for name in ("batch", "records", "epochs"):
        if not np.all((np.asarray(around.get(name, 1)) > 0) & np.isfinite(around.get(name, 1))):
            raise click.UsageError(f"{option_of(name)} must be above 0, got {np.min(around[name]):g}")
    sampling = {"rate": 1.0} | {name: around[name] for name in _SAMPLING if name in around}
    if "records" in sampling:
        sampling["records"] = int(np.max(sampling["records"]))
    if "batches" in sampling and "shuffled" not in sampling:
        sampling.setdefault("participations", 1)
    if "batch" in around:
        if np.any(np.asarray(around["batch"]) > np.asarray(around["records"])):
            raise click.UsageError(f"{option_of('batch')} must be at most {option_of('records')}")
        sampling["rate"] = _divided_up(around["batch"], around["records"])
    if "epochs" not in around:
        return sampling, around.get("steps", 1)
    share = np.asarray(sampling["rate"], np.float64)
    if "sample_size" in sampling:
        share = np.asarray(sampling["sample_size"], np.float64) / sampling["dataset_size"]
    if share.size > 1:
        raise click.UsageError(f"{option_of('epochs')} needs a single rate: give {option_of('steps')} for each")
    if not np.all(share > 0):
        raise click.UsageError(f"rate must be above 0 for {option_of('epochs')}, got {np.min(share):g}")
    # What is a whole number but for rounding is not rounded up to the next.
    steps = np.maximum(np.ceil(np.asarray(around["epochs"], np.float64) / share * (1 - 2.0**-45)), 1.0)
    return sampling, int(steps) if steps.ndim == 0 else steps


def _divided_up(batch: Number, records: Number) -> Number:
    """batch / records, at most 1, rounded up to a double: the larger rate is the less private one."""

    from jaxacct._numerics.rounding import next_to

    up = lambda part, whole: next_to(Fraction(int(part), int(whole)), np.inf)  # noqa: E731
    rates = np.vectorize(up, otypes=[np.float64])(batch, records)
    return float(rates) if rates.ndim == 0 else rates


@click.command(add_help_option=False)
@mechanism_options(short=True)
def _further(**_: object) -> None:
    """The options of a run as words of ``--run``."""


def _parsed(text: str) -> Run:
    family, _, rest = text.partition(":")
    words = [f"--{item.strip().replace('_', '-')}" for item in rest.split(",")] if rest else []
    try:
        names = ["--mechanism", *(word.partition("=")[0] for word in words)]
        if len(set(names)) < len(names) or "--run" in names:
            raise click.UsageError("each name once, and no run within it")
        context = _further.make_context("--run", ["--mechanism", family, *words])
        return runs_of(context.params)[0]
    except click.UsageError as problem:
        raise click.UsageError(f"--run {text}: {problem.format_message()}") from None
