"""Runs from the command line: the options of a mechanism, and ``--run`` descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import click
import numpy as np
from click import ParamType

from jaxacct._types import Fields
from jaxacct.cli.page import FIRST, WHOLE, Command, together, under
from jaxacct.cli.runs import FAMILIES, Number, Run

_WHOLE = ("sensitivity", "categories")  # where the family counts
_COUNTS = ("DiscreteGaussian", "DiscreteLaplace", "RandomizedResponse", "Skellam")
_AROUND = (
    "rate", "sample_size", "dataset_size", "with_replacement", "steps", "batch", "records", "largest", "epochs",
    "batches", "participations", "shuffled",
)  # fmt: skip
# On the command line a run's own epsilon and delta must not be taken for those of the question.
_OPTION = {"epsilon": "each_epsilon", "delta": "each_delta"}
_PARAMETERS = tuple(dict.fromkeys(name for family in FAMILIES.values() for name in (*family.needs, *family.may)))
_HELP = {
    "sigma": "Noise in the units of the query; the noise multiplier if the sensitivity is 1.",
    "scale": "Scale of Laplace noise, in the units of the query.",
    "sensitivity": "What a neighbour changes the query by at most.  [default: 1]",
    "epsilon": "Privacy loss of each single run.",
    "delta": "Failure probability of each single run.",
    "categories": "Number of categories.  [default: 2]",
    "mu": "GDP parameter of each run; of Skellam noise, half the variance.",
    "rho": "zCDP parameter of each run.",
    "order": "Order at which --each-epsilon is a Renyi divergence.",
}


def mechanism_options(
    number: ParamType = click.FLOAT, whole: ParamType = WHOLE, short: bool = False, family: str = "gaussian"
) -> Callable[[Command], Command]:
    """Adds the options of a mechanism, numbers of the types ``number`` and ``whole``.

    With ``short``, ``--epsilon`` and ``--delta`` are the mechanism's own, in a command that asks for neither.
    ``family`` is what the help page calls the default.
    """
    option, training = under("Mechanism"), under(FIRST)
    return together(
        training("--noise-multiplier", type=number, help="Noise over the clip norm: --sigma at sensitivity 1."),
        training("--batch", type=whole, help="Expected batch size; with --records, the rate."),
        training("--records", type=whole, help="Records in the data set."),
        training("--epochs", type=number, help="Passes over the records: steps are epochs / rate, rounded up."),
        training("--steps", type=whole, help="Number of runs, fixed in advance.  [default: 1]"),
        option(
            "--mechanism",
            type=click.Choice(list(FAMILIES)),
            metavar="FAMILY",
            help=f"What runs: {', '.join(FAMILIES)}.  [default: {family}]",
        ),
        *(
            option(
                *(f"--{text.replace('_', '-')}" for text in _spelled(name, short)),
                _OPTION.get(name, name),
                type=number,
                help=_HELP[name],
            )
            for name in _PARAMETERS
        ),
        option("--rate", type=number, help="Poisson sampling rate; 1: none.  [default: 1]"),
        option("--sample-size", type=whole, help="Records drawn, a fixed number."),
        option("--dataset-size", type=whole, help="Out of how many."),
        option("--with-replacement", is_flag=True, help="Draw each of them from all."),
        option("--largest", type=whole, help="Cut larger Poisson samples at random to this."),
        option(
            "--batches",
            type=whole,
            help="Of an epoch, of which each record draws one at random; steps are then epochs.",
        ),
        option("--participations", type=whole, help="Batches that each record draws.  [default: 1]"),
        option("--shuffled", is_flag=True, help="Cut shuffled records into --batches instead."),
        option(
            "--run",
            "runs",
            multiple=True,
            metavar="FAMILY:NAME=VALUE,...",
            help="A further run, composed with the rest, such as laplace:scale=2,rate=0.1,steps=50. The names are "
            "those of the options above, without 'each-'. May be given several times.",
        ),
    )


def runs_of(arguments: Fields, without: str | None = None) -> list[Run]:
    """The runs that the options of `mechanism_options` describe, which are taken out of a command's ``arguments``.

    ``without`` is the part of the first run that is looked for and so must be left out: "noise" (the family's
    ``seeks``), "rate" or "steps". It is absent from the first run's parameters, or None there.
    """
    take_multiplier(arguments)
    family = arguments.pop("mechanism")
    own = {name: arguments.pop(_OPTION.get(name, name)) for name in _PARAMETERS}
    around = {name: arguments.pop(name) for name in _AROUND}
    given = {name: value for name, value in own.items() if value is not None}
    others = [_parsed(text) for text in arguments.pop("runs")]
    asked = family is not None or given or any(value is not None and value is not False for value in around.values())
    if others and not asked and without is None:
        return others
    family = family or "gaussian"
    return [_run(family, given, around, option_of, without), *others]


def _spelled(name: str, short: bool) -> tuple[str, ...]:
    """What a parameter is called among the options."""
    long = _OPTION.get(name, name)
    return (long, name) if short and long != name else (long,)


def take_multiplier(arguments: dict[str, object]) -> None:
    """Turns ``--noise-multiplier`` among a command's arguments into ``--sigma``."""
    multiplier = arguments.pop("noise_multiplier", None)
    if multiplier is not None:
        if arguments["sigma"] is not None or arguments["sensitivity"] is not None:
            raise click.UsageError("--noise-multiplier is --sigma at sensitivity 1: leave out --sigma, --sensitivity")
        arguments["sigma"] = multiplier


def option_of(name: str) -> str:
    """The option that sets a mechanism's parameter."""
    return "--" + _OPTION.get(name, name).replace("_", "-")


def _run(family: str, given: Fields, around: Fields, shown: Callable[[str], str], without: str | None = None) -> Run:
    known = FAMILIES[family]
    left_out = known.seeks if without == "noise" else without
    for name in given:
        if name not in (*known.needs, *known.may):
            takers = [other for other, one in FAMILIES.items() if name in (*one.needs, *one.may)]
            raise click.UsageError(f"{shown(name)} does not belong to {family}, but to {', '.join(takers)}")
    for name in known.needs:
        if name not in given and name != left_out:
            raise click.UsageError(f"{family} needs {shown(name)}")
    if left_out in given or (without in ("rate", "steps") and around[without] is not None):
        others = [seek for seek in ("noise", "steps", "rate") if seek != without]
        instead = " or ".join(f"--seek {seek}" for seek in others if seek == "noise" or around[seek] is None)
        raise click.UsageError(f"{shown(left_out or '')} is what this command computes: leave it out, or add {instead}")
    sizes = (around["sample_size"], around["dataset_size"])
    if (sizes[0] is None) != (sizes[1] is None):
        raise click.UsageError(f"{shown('sample_size')} and {shown('dataset_size')} go together")
    if sizes[0] is not None and (around["rate"] is not None or without == "rate"):
        raise click.UsageError(f"{shown('rate')} and {shown('sample_size')} are two ways to sample: give one of them")
    rate, steps = _of_training(around, shown, without)
    if around["with_replacement"] and sizes[0] is None:
        raise click.UsageError(f"{shown('with_replacement')} goes with {shown('sample_size')}")
    if around["largest"] is not None and (
        around["records"] is None or sizes[0] is not None or (rate is None and without != "rate")
    ):
        raise click.UsageError(
            f"{shown('largest')} goes with {shown('records')} and a Poisson sample's {shown('rate')}"
        )
    epoch = _epoch(around, shown, sizes[0] is not None or rate is not None or without == "rate")
    if known.name in _COUNTS:
        given = {name: _counted(shown(name), value) if name in _WHOLE else value for name, value in given.items()}
    return Run(
        family,
        dict(given),
        1.0 if rate is None else rate,
        None if sizes[0] is None else sizes,
        1 if steps is None else steps,
        None if around["records"] is None else int(np.max(around["records"])),
        around["largest"],
        bool(around["with_replacement"]),
        epoch,
    )


def _epoch(around: Fields, shown: Callable[[str], str], sampled: bool) -> tuple[Number, Number | None] | None:
    """(batches, participations) of an epoch whose batches are drawn as a whole; a shuffle has no participations."""
    batches, times, shuffled = (around[name] for name in ("batches", "participations", "shuffled"))
    for name in ("participations", "shuffled"):
        if batches is None and around[name]:
            raise click.UsageError(f"{shown(name)} goes with {shown('batches')}")
    if batches is None:
        return None
    if sampled:
        raise click.UsageError(
            f"{shown('batches')} is a way to sample by itself: leave out rate, batch, largest, sizes"
        )
    if shuffled and times is not None:
        raise click.UsageError(f"{shown('participations')} goes with batches that are drawn, not {shown('shuffled')}")
    return batches, None if shuffled else 1 if times is None else times


def _of_training(
    around: Fields, shown: Callable[[str], str], without: str | None
) -> tuple[Number | None, Number | None]:
    """(rate, steps), from batch, records and epochs where these are given."""
    batch, records, epochs, rate = (around[name] for name in ("batch", "records", "epochs", "rate"))
    for name in ("batch", "records", "epochs"):
        value = around[name]
        if value is not None and not np.all((np.asarray(value) > 0) & np.isfinite(value)):
            raise click.UsageError(f"{shown(name)} must be above 0, got {np.min(value):g}")
    if batch is not None:
        if records is None:
            raise click.UsageError(f"{shown('batch')} needs {shown('records')}")
        if rate is not None or around["sample_size"] is not None or without == "rate":
            raise click.UsageError(f"{shown('batch')} sets the rate: leave one of them out")
        if np.any(np.asarray(batch) > np.asarray(records)):
            raise click.UsageError(f"{shown('batch')} must be at most {shown('records')}")
        rate = _divided_up(batch, records)
    if epochs is None:
        return rate, around["steps"]
    if around["steps"] is not None or without in ("steps", "rate"):
        raise click.UsageError(f"{shown('epochs')} sets the steps by the rate: give no steps, compute neither")
    share = rate
    if around["sample_size"] is not None:
        share = np.asarray(around["sample_size"], np.float64) / around["dataset_size"]
    share = np.asarray(1.0 if share is None else share, np.float64)
    if share.size > 1:
        raise click.UsageError(f"{shown('epochs')} needs a single rate: give {shown('steps')} for each")
    if not np.all(share > 0):
        raise click.UsageError(f"rate must be above 0 for {shown('epochs')}, got {np.min(share):g}")
    # What is a whole number but for rounding is not rounded up to the next.
    steps = np.maximum(np.ceil(np.asarray(epochs, np.float64) / share * (1 - 2.0**-45)), 1.0)
    return rate, int(steps) if steps.ndim == 0 else steps


def _divided_up(batch: Number, records: Number) -> Number:
    """batch / records, at most 1, rounded up to a double: the larger rate is the less private one."""

    def one(part: float, whole: float) -> float:
        exact = Fraction(int(part), int(whole))
        near = part / whole
        return float(near if Fraction(near) >= exact else np.nextafter(near, 1.0))

    rates = np.vectorize(one, otypes=[np.float64])(batch, records)
    return float(rates) if rates.ndim == 0 else rates


def _counted(name: str, value: Number) -> Number:
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            raise click.UsageError(f"{name} must be a whole number, got {value:g}")
        return int(value)
    return value


def _parsed(text: str) -> Run:
    family, _, rest = text.partition(":")
    if family not in FAMILIES:
        raise click.UsageError(f"--run must begin with one of {', '.join(FAMILIES)}, got {text!r}")
    given: Fields = {}
    for item in rest.split(",") if rest else []:
        name, equals, value = item.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name in given or name not in (*_PARAMETERS, *_AROUND):
            raise click.UsageError(f"--run must hold NAME=VALUE, each name once, got {item!r} in {text!r}")
        kind: ParamType = click.FLOAT if name in (*_PARAMETERS, "rate", "epochs") else WHOLE
        try:
            given[name] = kind(value.strip())
        except click.BadParameter as problem:
            raise click.UsageError(f"--run: {name}: {problem.message}") from None
    around = {name: given.pop(name, None) for name in _AROUND}
    return _run(family, given, around, lambda name: f"{name!r} in --run {text}")
