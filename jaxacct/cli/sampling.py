"""``jaxacct compare --sampling``: what the same training costs, by how its batches are drawn."""

from __future__ import annotations

import click
import numpy as np

from jaxacct import _validate
from jaxacct._types import Fields
from jaxacct.cli.runs import Run

COLUMNS = ("sampler", "epsilon", "lower", "kind")
_PROVEN = "proven, both bounds"
_KINDS = {
    "shuffled": "proven; below, an attack",
    "truncated": "proven; below, an attack",
    "everyone knows": "proven, nothing hidden",
}


def sampling_costs(runs: list[Run], delta: float) -> tuple[list[tuple[str, float, float, str]], Fields]:
    """The rows, of `COLUMNS`, and the epoch that they are of."""
    from jaxacct.plotting.samplers import sampler_costs

    _validate.probability(delta=delta)
    if len(runs) != 1 or runs[0].family != "gaussian" or set(runs[0].sampling) - {"rate", "records"}:
        raise click.UsageError("--sampling compares one run of Gaussian noise: --sigma, --rate (or --batch), --steps")
    settings = {name: np.ravel(value) for name, value in runs[0].settings().items()}
    if any(value.size != 1 for value in settings.values()):
        raise click.UsageError("--sampling takes one number for each parameter")
    if "records" not in runs[0].sampling:
        raise click.UsageError("--sampling needs --records, the size of the data set")
    number = {name: float(value[0]) for name, value in settings.items()}
    batches = max(1, round(1.0 / number["rate"]))
    epoch: Fields = {"batches": batches, "epochs": max(1, round(number["steps"] / batches))}
    epoch |= {"records": runs[0].sampling["records"]}
    noise = number["sigma"] / number.get("sensitivity", 1.0)
    found = sampler_costs(noise, **epoch, delta=delta)
    rows = [(name, float(b.upper[0]), float(b.lower[0]), _KINDS.get(name, _PROVEN)) for name, b in found.items()]
    return rows, epoch | {"noise_multiplier": noise}
