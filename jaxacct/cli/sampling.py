"""``jaxacct compare --sampling``: what the same training costs, by how its batches are drawn."""

from __future__ import annotations

import click

from jaxacct import _validate
from jaxacct._types import Fields
from jaxacct.cli.runs import Run

_PROVEN, _ATTACKED = "proven, both bounds", "proven; below, an attack"
_KINDS = {"poisson": _PROVEN, "fixed": _PROVEN, "allocation": _PROVEN, "shuffled": _ATTACKED, "truncated": _ATTACKED}
_KINDS["everyone knows"] = "proven, nothing hidden"


def sampling_costs(runs: list[Run], delta: float) -> tuple[list[tuple[str, float, float, str]], Fields]:
    """Each sampler's name, epsilon, lower bound and kind, and the epoch that they are of."""
    from jaxacct.plotting.samplers import sampler_costs

    _validate.probability(delta=delta)
    if len(runs) != 1 or runs[0].family != "gaussian" or set(runs[0].sampling) - {"rate", "records"}:
        raise click.UsageError("--sampling compares one run of Gaussian noise: --sigma, --rate (or --batch), --steps")
    if "records" not in runs[0].sampling:
        raise click.UsageError("--sampling needs --records, the size of the data set")
    (run,) = runs
    batches = max(1, round(1.0 / run.sampling["rate"]))
    epoch: Fields = {"batches": batches, "epochs": max(1, round(float(run.steps) / batches))}
    epoch |= {"records": run.sampling["records"]}
    noise = run.parameters["sigma"] / run.parameters.get("sensitivity", 1.0)
    found = sampler_costs(noise, **epoch, delta=delta)
    rows = [(name, float(b.upper[0]), float(b.lower[0]), _KINDS[name]) for name, b in found.items()]
    return rows, epoch | {"noise_multiplier": noise}
