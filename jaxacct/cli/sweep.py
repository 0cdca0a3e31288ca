"""``jaxacct sweep``: a table of epsilons, deltas or noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
import numpy as np

from jaxacct._printing import rounded_down, rounded_up
from jaxacct._types import Fields
from jaxacct.cli.calibrate import Search
from jaxacct.cli.output import Answer, table
from jaxacct.cli.page import as_table, output_file, question, relation_option, report_of_work, under
from jaxacct.cli.run_options import mechanism_options, option_of, runs_of, take_multiplier
from jaxacct.cli.runs import FAMILIES, OPTIONS, Run, composed, said_of
from jaxacct.cli.values import VALUES, WHOLE_VALUES

_WHOLE = ("steps", "sample_size", "dataset_size", "largest", "batches", "participations")
_MOST = 1_000_000


@question(
    "sweep --sigma 0.8:4:16 --rate 0.01 --steps 1000,10000 --delta 1e-5 --csv -o table.csv",
    "sweep --epsilon 1,2,4,8 --delta 1e-5 --rate 1e-3:0.1:9:log --steps 1000   # noise for each",
    "sweep --mechanism laplace --scale 1:10:10 --steps 20 --epsilon 1 --json",
)
@relation_option
@mechanism_options(VALUES, WHOLE_VALUES)
@under("Question")("--epsilon", type=VALUES, help="Privacy losses in nats.")
@under("Question")("--delta", type=VALUES, help="Failure probabilities in (0, 1).")
@output_file("Write the table to a file instead.", "into")
@as_table
def sweep(relation: str, epsilon: np.ndarray | None, delta: np.ndarray | None, **arguments: Any) -> Answer:
    """Tabulate epsilon, delta or the noise that is needed, for every combination of settings.

    Every number may be a list (1,2,4), a range (0.5:4:8 is 8 numbers from 0.5 to 4), a range of equal ratios
    (1e-3:1:20:log), or a list of these. Leave out what you want to know: --epsilon, --delta, or the mechanism's noise
    (--sigma for a Gaussian). A cell without an answer is nan (null in JSON): no noise up to a million is enough there.
    """
    take_multiplier(arguments)
    targets = {"epsilon": epsilon, "delta": delta}
    noise = FAMILIES[arguments["mechanism"] or "gaussian"].seeks
    own = OPTIONS.get(noise, noise)
    asked = [name for name, value in targets.items() if value is None]
    # Runs that are all given by --run have their noise.
    if arguments[own] is None and not (arguments["runs"] and asked):
        asked.append("noise")
    if len(asked) != 1:
        raise click.UsageError(f"leave out what you want to know: one of {option_of(noise)}, --epsilon and --delta")
    first, *others = runs_of(arguments, without="noise" if asked == ["noise"] else None)
    said = said_of([first, *others], delta)
    axes = {name: np.atleast_1d(np.asarray(value, np.float64)) for name, value in first.settings().items()}
    axes |= {name: value for name, value in targets.items() if value is not None}
    size = int(np.prod([float(len(axis)) for axis in axes.values()]))
    if size > _MOST:
        raise click.UsageError(f"a sweep has at most {_MOST} settings, got {size}")
    flat = dict(zip(axes, (part.ravel() for part in np.meshgrid(*axes.values(), indexing="ij")), strict=True))
    wanted = own if asked == ["noise"] else asked[0]  # a mechanism's own epsilon is not the question's
    answers = _answered([first.at(flat), *others], flat, wanted, relation)
    columns = flat | {name: flat[name].astype(np.int64) for name in _WHOLE if name in flat} | answers
    fixed: Fields = {"mechanism": first.family, "relation": relation}
    if others:
        fixed["composed_with"] = [run.described() for run in others]
    if said:
        fixed["assumes"] = said
    rows = [[value.item() for value in row] for row in zip(*columns.values(), strict=True)]
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    same = {name: value for name, value in fixed.items() if isinstance(value, str)}
    csv = [*same, *columns], [[*same.values(), *row] for row in rows]
    same_axes = {name: axis[0] for name, axis in axes.items() if len(axis) == 1}
    return Answer(_lines(fixed, wanted, same_axes, columns), {**fixed, "wanted": wanted, "rows": named}, csv=csv)


def _answered(runs: list[Run], flat: Mapping[str, np.ndarray], wanted: str, relation: str) -> dict[str, np.ndarray]:
    """Columns ``<wanted>_lower`` and ``<wanted>_upper``; of noise, what is certified, what fails, and its delta."""
    if wanted not in ("epsilon", "delta"):
        search = Search(runs[0], runs[1:], relation=relation)
        found = search.calibration(flat["epsilon"], flat["delta"], unreachable="nan")
        columns = {wanted: found.parameter, f"{wanted}_refuted": found.refuted, "delta_upper": found.delta.upper}
        return {name: np.asarray(column) for name, column in columns.items()}
    from jaxacct import accounting

    mechanism, steps = composed(runs)
    given = flat["delta" if wanted == "epsilon" else "epsilon"]
    query = getattr(accounting, wanted)
    bounds = query(mechanism, given, steps=steps, relation=relation, progress=report_of_work())
    return {f"{wanted}_lower": bounds.lower, f"{wanted}_upper": bounds.upper}


def _lines(fixed: Fields, wanted: str, same: Mapping[str, float], columns: Mapping[str, np.ndarray]) -> Iterator[str]:
    """What varies, and the answers rounded outwards; what is the same in all rows stands above."""
    more = FAMILIES[fixed["mechanism"]].bracket is None
    rounders: dict[str, Callable[[float], str]] = {
        f"{wanted}_lower": rounded_down,
        f"{wanted}_upper": rounded_up,
        "delta_upper": rounded_up,
        wanted: rounded_up if more else rounded_down,
        f"{wanted}_refuted": rounded_down if more else rounded_up,
    }
    plain = lambda value: f"{value:.6g}"  # noqa: E731
    shown = {
        name: [rounders.get(name, plain)(value.item()) for value in column]
        for name, column in columns.items()
        if name not in same
    }
    head = ", ".join([*(f"{name} {value:.6g}" for name, value in same.items()), f"relation {fixed['relation']}"])
    for run in fixed.get("composed_with", ()):
        head += ", and " + " ".join(f"{name} {value}" for name, value in run.items())
    yield f"{fixed['mechanism']}: {head}"
    yield table(list(shown), list(zip(*shown.values(), strict=True)))
    yield from fixed.get("assumes", ())
