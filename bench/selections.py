"""Bounds of the best of a random number of runs, over random runs of DP-SGD: how far apart, how long they take.

    python bench/selections.py --out bench/results/selections.json

Twenty runs (noise 0.7 to 4, rates 0.001 to 0.1, 100 to 5,000 steps, log-uniform, of which sqrt(steps) rate / noise is
from 0.05 to 1.5; delta 1e-8 to 1e-4), for each three means of the number of runs and three distributions.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import time
import warnings
from typing import Any

import numpy as np
from machine import about

import jaxacct
from jaxacct import Composed, Gaussian, PoissonSampled, PrivateSelection

MEANS = (3.0, 20.0, 100.0)
SHAPES = {"logarithmic": 0.0, "geometric": 1.0, "Poisson": math.inf}


def settings(number: int, seed: int) -> list[tuple[float, float, int, float]]:
    """Noise, rate, steps and delta of each run."""
    random = np.random.default_rng(seed)
    ends = np.log([(0.7, 4.0), (1e-3, 0.1), (100.0, 5000.0), (1e-8, 1e-4)])
    found = []
    while len(found) < number:
        sigma, rate, steps, delta = np.exp(random.uniform(ends[:, 0], ends[:, 1]))
        if 0.05 < rate / sigma * math.sqrt(steps) < 1.5:
            found.append((float(sigma), float(rate), round(steps), float(delta)))
    return found


def asked(sigma: float, rate: float, steps: int, delta: float) -> list[dict[str, Any]]:
    """Answers for all means and distributions, and the processor's seconds that one takes on its own."""
    run = Composed([PoissonSampled(Gaussian(sigma), rate)], [steps])
    rows = []
    for mean in MEANS:
        for name, shape in SHAPES.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that bounds are wide is what is measured
                busy = time.process_time()
                found = jaxacct.epsilon(PrivateSelection(run, mean, shape, at_delta=delta), delta)
                busy = time.process_time() - busy
            row = {"sigma": sigma, "rate": rate, "steps": steps, "delta": delta, "mean": mean, "runs": name}
            lower, upper = float(found.lower), float(found.upper)
            rows.append(row | {"lower": lower, "upper": upper, "gap": upper / lower - 1.0, "seconds": round(busy, 3)})
    return rows


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each mean and distribution: how many gaps are at most 1 %, their median and the worst."""
    found = []
    for mean in MEANS:
        for name in SHAPES:
            gaps = [row["gap"] for row in rows if row["mean"] == mean and row["runs"] == name]
            share = float(np.mean(np.array(gaps) <= 0.01))
            found.append({"mean": mean, "runs": name, "within 1 %": share, "median": float(np.median(gaps))})
            found[-1]["worst"] = max(gaps)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--number", type=int, default=20)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    machine, rows = about(), []
    for setting in settings(given.number, given.seed):
        rows += asked(*setting)
        print(setting, [round(row["gap"], 4) for row in rows[-9:]], flush=True)
    found = table(rows)
    seconds = float(np.median([row["seconds"] for row in rows]))
    result = {"machine": machine, "table": found, "processor's seconds, median": seconds, "questions": rows}
    given.out.write_text(json.dumps(result) + "\n")
    for line in found:
        print(line)
    print("processor's seconds, median", seconds)


if __name__ == "__main__":
    main()
