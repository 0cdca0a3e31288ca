"""What each way to draw batches costs, how long it takes to say so, and how far apart the bounds are.

    python bench/samplers.py            # prints tables; writes bench/results/samplers.json and samplers.png

Times are CPU seconds of a first answer in a warm process. ``REFERENCE`` has deltas that were computed in other ways, by
the relation asked; every one is to lie between the bounds.
"""

from __future__ import annotations

import json
import math
import pathlib
import time
import warnings
from typing import Any

import numpy as np

from jaxacct import (
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    RandomSensitivityGaussian,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedPoisson,
    delta,
    epsilon,
    plotting,
)
from jaxacct.plotting.samplers import sampler_costs

RESULTS = pathlib.Path(__file__).parent / "results"
SETTINGS = [
    (1.0, 8, 1, 1e-8),
    (1.0, 64, 1, 1e-8),
    (0.5, 1000, 1, 1e-6),
    (1.0, 1000, 100, 1e-6),
    (1.0, 100_000, 1, 1e-6),
    (0.5, 100_000, 1, 1e-6),
    (0.3, 100_000, 1, 1e-6),
]
PARTICIPATIONS = [(1.0, 64, 2), (1.0, 64, 4), (2.0, 1000, 5), (1.0, 64, 16)]
"""Sigma, batches and participations, for 1 and 10 epochs at delta 1e-6: an attack from below, a proof from above."""
SAMPLES = {
    "TruncatedPoisson, at most 120": TruncatedPoisson(Gaussian(1.0), 0.01, 120, 10_000),
    "TruncatedPoisson, at most 160": TruncatedPoisson(Gaussian(1.0), 0.01, 160, 10_000),
    "SampledWithoutReplacement": SampledWithoutReplacement(Gaussian(2.0, 2.0), 100, 10_000),
    "SampledWithReplacement": SampledWithReplacement(Gaussian(2.0, 2.0), 100, 10_000),
}
"""Of 10,000 records, for 1,000 steps, at delta 1e-5."""


def _several(sigma: float, rate: float, records: int) -> RandomSensitivityGaussian:
    """Poisson samples of data in which a user has that many records: a binomial number of them is in a sample."""
    weights = [math.comb(records, k) * rate**k * (1.0 - rate) ** (records - k) for k in range(records + 1)]
    return RandomSensitivityGaussian(sigma, tuple(range(records + 1)), tuple(weights))


def _poisson(sigma: float, rate: float) -> PoissonSampled:
    return PoissonSampled(Gaussian(sigma), rate)


REFERENCE = [
    (RandomAllocation(Gaussian(1.0), 8), 1, 3.7186, {"remove": 9.995506102860672e-09}),
    (RandomAllocation(Gaussian(1.0), 64), 1, 1.7988, {"remove": 9.990629444808864e-09}),
    (RandomAllocation(Gaussian(0.8), 1000), 1, 1.0, {"remove": 8.81130842075994e-09}),
    (RandomAllocation(Gaussian(1.0), 8), 1, 1.0, {"remove": 0.004928248216268242, "add": 0.0013216864254323687}),
    (RandomAllocation(Gaussian(1.0), 64), 10, 3.0, {"remove": 3.666258e-08, "add": 1.171598e-10}),
    (_poisson(1.0, 0.01), 1000, 2.81, {"replace": 1.2181400261716736e-05}),
    (_poisson(2.0, 0.05), 500, 4.965, {"replace": 1.06210974767155e-05}),
    (_poisson(0.8, 0.005), 2000, 3.0, {"replace": 4.506546920438916e-06}),
    (_several(1.0, 0.01, 5), 1000, 11.638, {"remove": 9.9995878143514e-06, "add": 1.3043600990702255e-10}),
    (_several(3.0, 0.02, 10), 500, 6.0, {"remove": 0.0003592463884832606, "add": 0.00012266906361745026}),
]
PEER = {(1.0, 8, 1): (92.0, 3.7173, 3.7225), (1.0, 64, 1): (439.0, 1.7975, 1.8026)}
"""Seconds and bounds of a peer's accountant for random allocation; measured once, not in this run."""


def _timed(name: str, mechanism: Any) -> dict[str, Any]:
    """Bounds of epsilon and the time they take."""
    epsilon(mechanism, 1e-4, steps=900)
    begin = time.process_time()
    found = epsilon(mechanism, 1e-5, steps=1000)
    row = {"mechanism": name, "seconds": round(time.process_time() - begin, 3)}
    row |= {"lower": float(found.lower), "upper": float(found.upper)}
    print(row)
    return row


def _several_times(sigma: float, batches: int, participations: int, epochs: int) -> dict[str, Any]:
    """Bounds of epsilon for several participations, and how far apart they are."""
    found = epsilon(RandomAllocation(Gaussian(sigma), batches, participations), 1e-6, steps=epochs)
    row = {"sigma": sigma, "batches": batches, "participations": participations, "epochs": epochs}
    row |= {"lower": float(found.lower), "upper": float(found.upper), "gap": float(found.upper / found.lower - 1.0)}
    print(row)
    return row


def _held(mechanism: Any, steps: int, at: float, values: dict[str, float]) -> list[dict[str, Any]]:
    """Bounds of delta beside what it is."""
    rows = []
    for relation, value in values.items():
        found = delta(mechanism, at, steps=steps, relation=relation)
        row = {"mechanism": str(mechanism), "steps": steps, "epsilon": at, "relation": relation, "reference": value}
        row |= {"lower": float(found.lower), "upper": float(found.upper)}
        row |= {"width": float(found.upper - found.lower) / value, "held": bool(found.lower <= value <= found.upper)}
        rows.append(row)
        print(row)
    return rows


def main() -> None:
    """Prints, and writes the results."""
    warnings.simplefilter("ignore")
    epsilon(RandomAllocation(Gaussian(1.0), 4), 1e-6)
    rows = []
    for sigma, batches, epochs, at in SETTINGS:
        begin = time.process_time()
        found = epsilon(RandomAllocation(Gaussian(sigma), batches), at, steps=epochs)
        took = time.process_time() - begin
        row = {"sigma": sigma, "batches": batches, "epochs": epochs, "delta": at, "seconds": round(took, 3)}
        row |= {"lower": float(found.lower), "upper": float(found.upper), "peer": PEER.get((sigma, batches, epochs))}
        rows.append(row)
        print(row)
    several = [_several_times(*case, epochs) for case in PARTICIPATIONS for epochs in (1, 10)]
    samples = [_timed(name, mechanism) for name, mechanism in SAMPLES.items()]
    references = [row for case in REFERENCE for row in _held(*case)]
    costs = {
        str(epochs): {
            name: {"lower": np.round(bounds.lower, 4).tolist(), "upper": np.round(bounds.upper, 4).tolist()}
            for name, bounds in sampler_costs([0.5, 1.0, 2.0, 4.0], batches=100, records=60_000, epochs=epochs).items()
        }
        for epochs in (1, 100)
    }
    print(json.dumps(costs, indent=1))
    found = {
        "random_allocation": rows,
        "participations": several,
        "samples": samples,
        "references": references,
        "costs": costs,
    }
    (RESULTS / "samplers.json").write_text(json.dumps(found, indent=1) + "\n")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for ax, epochs in zip(axes, (1, 100), strict=True):
        plotting.samplers(np.geomspace(0.4, 6.0, 25), batches=100, records=60_000, epochs=epochs, ax=ax)
    figure.savefig(RESULTS / "samplers.png", dpi=110)


if __name__ == "__main__":
    main()
