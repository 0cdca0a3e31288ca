"""``jaxacct sweep``: a table of epsilons, deltas or noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._progress import Report, progress
from jaxacct._types import Fields
from jaxacct.cli import plain_errors
from jaxacct.cli.calibrate import search
from jaxacct.cli.output import as_csv as csv_of
from jaxacct.cli.output import json_text, table
from jaxacct.cli.page import Page, csv_or_json, examples, output_file, relation_option, together, under
from jaxacct.cli.run_options import mechanism_options, option_of, runs_of, take_multiplier
from jaxacct.cli.runs import FAMILIES, Run, composed, said_of
from jaxacct.cli.values import VALUES, WHOLE_VALUES

_WHOLE = ("steps", "sample_size", "dataset_size", "largest", "batches", "participations")
_EPOCH = ("batches", "participations")
_MOST = 1_000_000


class Sweep(NamedTuple):
    """A table's axes and what was found.

    Attributes:
        axes: name and values, as they were given; one setting for each combination, the last axis fastest.
        fixed: what is the same in all of them.
        wanted: the name of what was asked for: "epsilon", "delta", or the mechanism's noise.
        columns: arrays of the flat table's length, answers last: ``<wanted>_lower`` and ``<wanted>_upper``, or for
            noise ``<wanted>`` (certified), ``<wanted>_refuted`` and ``delta_upper``.
    """

    axes: dict[str, np.ndarray]
    fixed: Fields
    wanted: str
    columns: dict[str, np.ndarray]


sweep_options = together(
    relation_option,
    mechanism_options(VALUES, WHOLE_VALUES),
    under("Question")("--epsilon", type=VALUES, help="Privacy losses in nats."),
    under("Question")("--delta", type=VALUES, help="Failure probabilities in (0, 1)."),
)
"""The mechanism and the question, all of it lists or ranges."""


@click.command(
    cls=Page,
    epilog=examples(
        "sweep --sigma 0.8:4:16 --rate 0.01 --steps 1000,10000 --delta 1e-5 --csv -o table.csv",
        "sweep --epsilon 1,2,4,8 --delta 1e-5 --rate 1e-3:0.1:9:log --steps 1000   # noise for each",
        "sweep --mechanism laplace --scale 1:10:10 --steps 20 --epsilon 1 --json",
    ),
)
@sweep_options
@output_file("Write the table to a file instead.")
@csv_or_json
def sweep(as_csv: bool, output: Path | None, as_json: bool, quiet: bool, **arguments: object) -> None:
    """Tabulate epsilon, delta or the noise that is needed, for every combination of settings.

    Every number may be a list (1,2,4), a range (0.5:4:8 is 8 numbers from 0.5 to 4), a range of equal ratios
    (1e-3:1:20:log), or a list of these. Leave out what you want to know: --epsilon, --delta, or the mechanism's noise
    (--sigma for a Gaussian). A cell without an answer is nan (null in JSON): no noise up to a million is enough there.
    """
    found = swept(arguments, quiet)
    text = _json_text(found) if as_json else _csv_text(found) if as_csv else _plain_text(found)
    if output is None:
        click.echo(text, nl=False)
        return
    with plain_errors():
        output.write_text(text, encoding="utf-8")


def swept(arguments: Fields, quiet: bool) -> Sweep:
    """Answers the question of `sweep_options`."""
    arguments = dict(arguments)
    take_multiplier(arguments)
    targets = {name: arguments.pop(name) for name in ("epsilon", "delta")}
    relation = arguments.pop("relation")
    noise = FAMILIES[arguments["mechanism"] or "gaussian"].seeks
    own = f"each_{noise}" if noise in targets else noise
    asked = [name for name, value in targets.items() if value is None]
    # Runs that are all given by --run have their noise.
    if arguments[own] is None and not (arguments["runs"] and asked):
        asked.append("noise")
    if len(asked) != 1:
        raise click.UsageError(f"leave out what you want to know: one of {option_of(noise)}, --epsilon and --delta")
    wanted = asked[0]
    first, *others = runs_of(arguments, without="noise" if wanted == "noise" else None)
    said = said_of([first, *others], targets["delta"])
    axes = _axes(first) | {name: value for name, value in targets.items() if value is not None}
    size = int(np.prod([float(len(axis)) for axis in axes.values()]))
    if size > _MOST:
        raise click.UsageError(f"a sweep has at most {_MOST} settings, got {size}")
    flat = dict(zip(axes, (part.ravel() for part in np.meshgrid(*axes.values(), indexing="ij")), strict=True))
    with plain_errors(), warnings.catch_warnings(), progress("sweep", quiet) as report:
        answers = _answered(_filled(first, flat), others, flat, wanted, own, relation, report)
    fixed: Fields = {"mechanism": first.family, "relation": relation}
    if others:
        fixed["composed_with"] = [run.described() for run in others]
    if said:
        fixed["assumes"] = said
    whole = {name: flat[name].astype(np.int64) for name in _WHOLE if name in flat}
    # A mechanism's own epsilon is not the question's.
    return Sweep(axes, fixed, own if wanted == "noise" else wanted, flat | whole | answers)


def _axes(run: Run) -> dict[str, np.ndarray]:
    named = {
        ("each_" + name if name in ("epsilon", "delta") else name): value for name, value in run.parameters.items()
    }
    named["rate"] = run.rate
    if run.sample is not None:
        named |= dict(zip(("sample_size", "dataset_size"), run.sample, strict=True))
    if run.largest is not None:
        named["largest"] = run.largest
    if run.epoch is not None:
        named |= {name: value for name, value in zip(_EPOCH, run.epoch, strict=True) if value is not None}
    return {
        name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in (named | {"steps": run.steps}).items()
    }


def _filled(run: Run, flat: dict[str, np.ndarray]) -> Run:
    parameters = {name: flat[f"each_{name}" if f"each_{name}" in flat else name] for name in run.parameters}
    sample = None if run.sample is None else (flat["sample_size"], flat["dataset_size"])
    rate = 1.0 if np.all(flat["rate"] == 1.0) else flat["rate"]
    epoch = None if run.epoch is None else (flat["batches"], flat.get("participations"))
    return run._replace(
        parameters=parameters, rate=rate, sample=sample, steps=flat["steps"], largest=flat.get("largest"), epoch=epoch
    )


def _answered(
    run: Run, others: list[Run], flat: Mapping[str, np.ndarray], wanted: str, own: str, relation: str, report: Report
) -> dict[str, np.ndarray]:
    from jaxacct import accounting

    if wanted == "noise":
        # The columns say how far off an answer may be.
        warnings.simplefilter("ignore", RuntimeWarning)
        found, _ = search(run, others, "noise", flat["epsilon"], flat["delta"], relation, report, unreachable="nan")
        columns = {own: found.parameter, f"{own}_refuted": found.refuted, "delta_upper": found.delta.upper}
        return {name: np.asarray(column) for name, column in columns.items()}
    mechanism, steps = composed([run, *others])
    given = flat["delta" if wanted == "epsilon" else "epsilon"]
    bounds = getattr(accounting, wanted)(mechanism, given, steps=steps, relation=relation, progress=report)
    return {f"{wanted}_lower": bounds.lower, f"{wanted}_upper": bounds.upper}


def _json_text(found: Sweep) -> str:
    names = list(found.columns)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*found.columns.values(), strict=True)]
    return json_text({**found.fixed, "wanted": found.wanted, "rows": rows}) + "\n"


def _csv_text(found: Sweep) -> str:
    constant = {name: value for name, value in found.fixed.items() if isinstance(value, str)}
    rows = zip(*([value.item() for value in column] for column in found.columns.values()), strict=True)
    return csv_of([*constant, *found.columns], [[*constant.values(), *row] for row in rows])


def _plain_text(found: Sweep) -> str:
    """What varies, and the answers rounded outwards; what is the same in all rows stands above."""
    more = FAMILIES[found.fixed["mechanism"]].bracket is None
    rounders: dict[str, Callable[[float], str]] = {
        f"{found.wanted}_lower": rounded_down,
        f"{found.wanted}_upper": rounded_up,
        "delta_upper": rounded_up,
        found.wanted: rounded_up if more else rounded_down,
        f"{found.wanted}_refuted": rounded_down if more else rounded_up,
    }
    same = {name: axis[0] for name, axis in found.axes.items() if len(axis) == 1}
    plain = lambda value: f"{value:.6g}"  # noqa: E731
    shown = {
        name: [rounders.get(name, plain)(value.item()) for value in column]
        for name, column in found.columns.items()
        if name not in same
    }
    head = ", ".join([*(f"{name} {value:.6g}" for name, value in same.items()), f"relation {found.fixed['relation']}"])
    for run in found.fixed.get("composed_with", ()):
        head += ", and " + " ".join(f"{name} {value}" for name, value in run.items())
    rows = list(zip(*shown.values(), strict=True))
    said = "".join(f"{line}\n" for line in found.fixed.get("assumes", ()))
    return f"{found.fixed['mechanism']}: {head}\n{table(list(shown), rows)}\n{said}"
