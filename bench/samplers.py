"""What each way to draw batches costs, how long it takes to say so, and how far apart the bounds are.

    python bench/samplers.py            # prints a table; writes bench/results/samplers.json and samplers.png

Times are CPU seconds of a first answer in a warm process; widths are of epsilon at delta 1e-6.
"""

from __future__ import annotations

import json
import pathlib
import time
import warnings

import numpy as np

from jaxacct import Gaussian, RandomAllocation, epsilon, plotting

RESULTS = pathlib.Path(__file__).parent / "results"
SETTINGS = [
    (1.0, 8, 1, 1e-8),
    (1.0, 64, 1, 1e-8),
    (0.5, 1000, 1, 1e-6),
    (1.0, 1000, 100, 1e-6),
    (1.0, 100_000, 1, 1e-6),
]
PEER = {(1.0, 8, 1): (92.0, 3.7173, 3.7225), (1.0, 64, 1): (439.0, 1.7975, 1.8026)}
"""Seconds and bounds of a peer's accountant for random allocation; measured once, not in this run."""


def main() -> None:
    """Prints, and writes the results."""
    warnings.simplefilter("ignore")
    epsilon(RandomAllocation(Gaussian(1.0), 4), 1e-6)
    rows = []
    for sigma, batches, epochs, delta in SETTINGS:
        begin = time.process_time()
        found = epsilon(RandomAllocation(Gaussian(sigma), batches), delta, steps=epochs)
        took = time.process_time() - begin
        row = {"sigma": sigma, "batches": batches, "epochs": epochs, "delta": delta, "seconds": round(took, 3)}
        row |= {"lower": float(found.lower), "upper": float(found.upper), "peer": PEER.get((sigma, batches, epochs))}
        rows.append(row)
        print(row)
    costs = {
        str(epochs): {
            name: {"lower": np.round(bounds.lower, 4).tolist(), "upper": np.round(bounds.upper, 4).tolist()}
            for name, bounds in plotting.sampler_costs(
                [0.5, 1.0, 2.0, 4.0], batches=100, records=60_000, epochs=epochs
            ).items()
        }
        for epochs in (1, 100)
    }
    print(json.dumps(costs, indent=1))
    (RESULTS / "samplers.json").write_text(json.dumps({"random_allocation": rows, "costs": costs}, indent=1) + "\n")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for ax, epochs in zip(axes, (1, 100), strict=True):
        plotting.samplers(np.geomspace(0.4, 6.0, 25), batches=100, records=60_000, epochs=epochs, ax=ax)
    figure.savefig(RESULTS / "samplers.png", dpi=110)


if __name__ == "__main__":
    main()
