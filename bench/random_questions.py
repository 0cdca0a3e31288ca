"""Random questions: how wide the bounds are and how long they take, over the field and not for a showcase.

    python bench/random_questions.py --out bench/results/random_questions       # .json and .png

Settings are log-uniform: noise 0.5 to 8, rates 1e-5 to 0.3, 1 to 500,000 steps, delta 1e-10 to 1e-4. Every setting is
asked for epsilon at its delta and for delta at a log-uniform epsilon from 0.003 to 10, which counts where it is at
least 1e-12. dp_accounting (its default lattice of 1e-4) answers every so many of the questions for epsilon; ours and
its upper bounds are compared there. Every family is asked in one process, one question after the other.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import about
from peer_queries import peer_epsilon

import jaxacct
from jaxacct import DiscreteGaussian, Gaussian, Laplace, PoissonSampled, RandomSensitivityGaussian

FAMILIES: dict[str, tuple[int, Callable[[float], Any]]] = {
    "Gaussian": (600, Gaussian),
    "Laplace": (100, Laplace),
    "discrete Gaussian": (100, DiscreteGaussian),
    "mixture": (100, lambda sigma: RandomSensitivityGaussian(sigma, (1.0, 0.5), (0.4, 0.6))),
}
LEAST_DELTA = 1e-12
COLUMNS = ("sigma", "rate", "steps", "delta", "epsilon")


def settings(number: int, seed: int) -> np.ndarray:
    """Noise, rate, steps, delta and epsilon of each question, shape ``(number, 5)``."""
    random = np.random.default_rng(seed)
    ends = np.log([(0.5, 8.0), (1e-5, 0.3), (1.0, 5e5), (1e-10, 1e-4), (0.003, 10.0)])
    found = np.exp(random.uniform(ends[:, 0], ends[:, 1], (number, 5)))
    found[:, 2] = np.rint(found[:, 2])
    return found


def answered(ask: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, float]:
    """Both bounds and the seconds that they took."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that they are wide is what is measured
        start, busy = time.perf_counter(), time.process_time()
        found = ask(*arguments, **named)
        busy, seconds = time.process_time() - busy, time.perf_counter() - start
    bounds = {"lower": float(found.lower), "upper": float(found.upper)}
    return {**bounds, "seconds": round(seconds, 5), "processor": round(busy, 5)}


def width(row: dict[str, float]) -> float:
    """Upper over lower less 1; 0 where both are 0."""
    if row["upper"] == row["lower"]:
        return 0.0
    return row["upper"] / row["lower"] - 1.0 if row["lower"] > 0 else np.inf


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Quantiles of widths and of times."""
    widths, seconds = np.array([width(row) for row in rows]), np.array([row["seconds"] for row in rows])
    at = lambda x: {  # noqa: E731
        name: float(f"{np.quantile(x, q, method='higher'):.3g}")
        for name, q in (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("worst", 1.0))
    }
    busy = round(float(np.mean([row["processor"] for row in rows])), 4)
    times = {"mean": round(seconds.mean(), 4), **at(seconds), "mean of the processor's": busy}
    return {"questions": len(rows), "width": at(widths), "seconds": times}


def family(name: str, number: int, seed: int, every: int) -> dict[str, Any]:
    """Answers to all questions about one family."""
    make = FAMILIES[name][1]
    found: dict[str, Any] = {"epsilon": [], "delta": []}
    answered(jaxacct.epsilon, PoissonSampled(make(1.0), 0.01), 1e-5, steps=100)  # what only the first call takes
    for i, (sigma, rate, steps, delta, epsilon) in enumerate(settings(number, seed)):
        mechanism = PoissonSampled(make(sigma), rate)
        asked = dict(zip(COLUMNS, (sigma, rate, int(steps), delta, epsilon), strict=True))
        row = {**asked, **answered(jaxacct.epsilon, mechanism, delta, steps=int(steps))}
        if every and name == "Gaussian" and i % every == 0:
            start = time.perf_counter()
            row["peer"] = peer_epsilon("dp_accounting", sigma, rate, int(steps), delta)
            row["peer_seconds"] = round(time.perf_counter() - start, 4)
        found["epsilon"].append(row)
        found["delta"].append({**asked, **answered(jaxacct.delta, mechanism, epsilon, steps=int(steps))})
    return found


def summarized(found: dict[str, Any]) -> dict[str, Any]:
    """What is printed and kept of :func:`family`."""
    counted = [row for row in found["delta"] if row["upper"] >= LEAST_DELTA]
    result = {"epsilon": summary(found["epsilon"]), "delta": summary(counted)}
    peers = [row for row in found["epsilon"] if "peer" in row]
    if peers:
        more = [row["upper"] / row["peer"] - 1.0 for row in peers if row["peer"] > 0]
        times = [row["peer_seconds"] / row["seconds"] for row in peers]
        wide = [row["peer"] / row["lower"] - 1.0 for row in peers if row["lower"] > 0]
        result["dp_accounting"] = {
            "questions": len(peers),
            "our upper bound above its, at most": float(f"{max(more):.3g}"),
            "its above our lower bound": {
                "median": float(f"{np.median(wide):.3g}"),
                "worst": float(f"{max(wide):.3g}"),
            },
            "mean seconds": round(float(np.mean([row["peer_seconds"] for row in peers])), 3),
            "times as long, median": round(float(np.median(times)), 1),
        }
    return result


def pictured(rows: dict[str, Any], path: pathlib.Path) -> None:
    """Width against time of every question."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.2), sharex=True, sharey=True, constrained_layout=True)
    for kind, axis in zip(("epsilon", "delta"), axes, strict=True):
        for name, found in rows.items():
            some = [row for row in found[kind] if kind == "epsilon" or row["upper"] >= LEAST_DELTA]
            widths = np.clip([width(row) for row in some], 1e-12, 10.0)
            axis.scatter([row["seconds"] for row in some], widths, s=6, label=f"sampled {name}")
        peers = [row for found in rows.values() for row in found[kind] if "peer" in row and row["lower"] > 0]
        if peers:
            above = np.clip([row["peer"] / row["lower"] - 1.0 for row in peers], 1e-12, 10.0)
            label = "dp_accounting's number over our lower bound"
            axis.scatter([row["peer_seconds"] for row in peers], above, s=14, marker="x", color="black", label=label)
        axis.set_title(f"{kind} (what is above 10 is drawn at 10)", fontsize=10)
        axis.set_xlabel("seconds")
    axes[0].set_xscale("log")
    axes[0].set_yscale("log")
    axes[0].set_ylabel("upper over lower bound, less 1")
    axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--number", type=int, help="of questions about each family")
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--peer-every", type=int, default=6, help="0 asks no peer")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": about("dp_accounting"), "seed": given.seed, "summary": {}, "rows": {}}
    for name in given.only:
        rows = family(name, given.number or FAMILIES[name][0], given.seed, given.peer_every)
        found["rows"][name], found["summary"][name] = rows, summarized(rows)
        print(name, json.dumps(found["summary"][name], indent=1), flush=True)
        if given.out:
            given.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
            pictured(found["rows"], given.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
