"""``jaxacct compare --sampling``: what the same training costs, by how its batches are drawn."""

from __future__ import annotations

import click
import numpy as np

from jaxacct.cli.runs import Run

COLUMNS = ("sampler", "epsilon", "lower", "kind")
_PROVEN = "proven, both bounds"
_KINDS = {
    "shuffled": "proven; below, an attack",
    "truncated": "proven; below, an attack",
    "everyone knows": "proven, nothing hidden",
}


def sampling_costs(runs: list[Run], delta: float) -> tuple[list[tuple[str, float, float, str]], dict[str, float]]:
    """The rows, of `COLUMNS`, and the epoch that they are of."""
    from jaxacct.plotting.samplers import sampler_costs

    if len(runs) != 1 or runs[0].family != "gaussian" or runs[0].sample is not None:
        raise click.UsageError("--sampling compares one run of Gaussian noise: --sigma, --rate (or --batch), --steps")
    (run,) = runs
    given = {**run.parameters, "rate": run.rate, "steps": run.steps}
    if any(np.size(value) != 1 for value in given.values()):
        raise click.UsageError("--sampling takes one number for each parameter")
    if run.records is None:
        raise click.UsageError("--sampling needs --records, the size of the data set")
    number = {name: float(np.ravel(value)[0]) for name, value in given.items()}
    batches = max(1, round(1.0 / number["rate"]))
    epochs = max(1, round(number["steps"] / batches))
    noise = number["sigma"] / number.get("sensitivity", 1.0)
    found = sampler_costs([noise], batches=batches, records=int(run.records), epochs=epochs, delta=delta)  # pyright: ignore[reportArgumentType]
    rows = [(name, float(b.upper[0]), float(b.lower[0]), _KINDS.get(name, _PROVEN)) for name, b in found.items()]
    return rows, {"batches": batches, "epochs": epochs, "records": int(run.records), "noise_multiplier": noise}
