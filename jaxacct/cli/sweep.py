"""``jaxacct sweep``: a table of epsilons, deltas or noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import click
import numpy as np

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._types import Fields
from jaxacct.cli.calibrate import Search
from jaxacct.cli.output import Answer, table
from jaxacct.cli.page import as_table, output_file, question, relation_option, report_of_work, together, under
from jaxacct.cli.run_options import mechanism_options, option_of, runs_of, take_multiplier
from jaxacct.cli.runs import FAMILIES, Run, composed, said_of
from jaxacct.cli.values import VALUES, WHOLE_VALUES

_WHOLE = ("steps", "sample_size", "dataset_size", "largest", "batches", "participations")
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


@question(
    "sweep --sigma 0.8:4:16 --rate 0.01 --steps 1000,10000 --delta 1e-5 --csv -o table.csv",
    "sweep --epsilon 1,2,4,8 --delta 1e-5 --rate 1e-3:0.1:9:log --steps 1000   # noise for each",
    "sweep --mechanism laplace --scale 1:10:10 --steps 20 --epsilon 1 --json",
)
@sweep_options
@output_file("Write the table to a file instead.", "into")
@as_table
def sweep(**arguments: object) -> Answer:
    """Tabulate epsilon, delta or the noise that is needed, for every combination of settings.

    Every number may be a list (1,2,4), a range (0.5:4:8 is 8 numbers from 0.5 to 4), a range of equal ratios
    (1e-3:1:20:log), or a list of these. Leave out what you want to know: --epsilon, --delta, or the mechanism's noise
    (--sigma for a Gaussian). A cell without an answer is nan (null in JSON): no noise up to a million is enough there.
    """
    found = swept(arguments)
    rows = [[value.item() for value in row] for row in zip(*found.columns.values(), strict=True)]
    named = [dict(zip(found.columns, row, strict=True)) for row in rows]
    same = {name: value for name, value in found.fixed.items() if isinstance(value, str)}
    csv = [*same, *found.columns], [[*same.values(), *row] for row in rows]
    return Answer(map(_plain_text, [found]), {**found.fixed, "wanted": found.wanted, "rows": named}, csv=csv)


def swept(arguments: Fields) -> Sweep:
    """Answers the question of `sweep_options`."""
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
    axes = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in first.settings().items()}
    axes |= {name: value for name, value in targets.items() if value is not None}
    size = int(np.prod([float(len(axis)) for axis in axes.values()]))
    if size > _MOST:
        raise click.UsageError(f"a sweep has at most {_MOST} settings, got {size}")
    flat = dict(zip(axes, (part.ravel() for part in np.meshgrid(*axes.values(), indexing="ij")), strict=True))
    answers = _answered([first.at(flat), *others], flat, wanted, own, relation)
    fixed: Fields = {"mechanism": first.family, "relation": relation}
    if others:
        fixed["composed_with"] = [run.described() for run in others]
    if said:
        fixed["assumes"] = said
    whole = {name: flat[name].astype(np.int64) for name in _WHOLE if name in flat}
    # A mechanism's own epsilon is not the question's.
    return Sweep(axes, fixed, own if wanted == "noise" else wanted, flat | whole | answers)


def _answered(
    runs: list[Run], flat: Mapping[str, np.ndarray], wanted: str, own: str, relation: str
) -> dict[str, np.ndarray]:
    if wanted == "noise":
        search = Search(runs[0], runs[1:], relation=relation)
        found = search.calibration(flat["epsilon"], flat["delta"], unreachable="nan")
        columns = {own: found.parameter, f"{own}_refuted": found.refuted, "delta_upper": found.delta.upper}
        return {name: np.asarray(column) for name, column in columns.items()}
    from jaxacct import accounting

    mechanism, steps = composed(runs)
    given = flat["delta" if wanted == "epsilon" else "epsilon"]
    query = getattr(accounting, wanted)
    bounds = query(mechanism, given, steps=steps, relation=relation, progress=report_of_work())
    return {f"{wanted}_lower": bounds.lower, f"{wanted}_upper": bounds.upper}


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
    return "\n".join([f"{found.fixed['mechanism']}: {head}", table(list(shown), rows), *found.fixed.get("assumes", ())])
