"""How long delta(epsilon) of Poisson-sampled Gaussians takes, against dp_accounting's PLD accountant.

Both answer the same question (add or remove, the worse of the two) in one process, setting by setting and run by
run in turn. "first" includes compilation, for whichever settings meet a new program; "warm" is the median of the
later runs. "all at once" is one jaxacct call on the arrays of all settings. Soundness is checked where the table
of reference values lies beside the checkout.

    python bench/accounting_speed.py                 # prints a table, writes bench/results/accounting_speed.json
    python bench/accounting_speed.py --output ""     # prints only
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation

import jaxacct

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE.parents[1] / "shared" / "reference" / "subsampled_gaussian.json"
RUNS = 5
THEIR_RUNS = 3

# (noise multiplier, sampling rate, steps, epsilon), where the table is not at hand.
BUILT_IN = [
    (2.26, 0.368, 136, 8.98),
    (5.12, 0.0127, 2232, 0.346),
    (1.41, 0.135, 407, 13.5),
    (1.02, 0.00511, 8935, 3.03),
    (2.79, 0.00504, 16582, 0.519),
    (0.985, 0.00166, 18437, 1.17),
    (5.59, 0.233, 1305, 10.3),
    (1.0, 0.01, 1000, 4.0),
]


def settings(at_most: int) -> list[dict[str, Any]]:
    if REFERENCE.exists():
        return json.loads(REFERENCE.read_text())[:at_most]
    names = ("noise_multiplier", "sampling_rate", "steps", "epsilon")
    return [dict(zip(names, row, strict=True)) for row in BUILT_IN][:at_most]


def ours(row: dict[str, Any], relation: str = "add_or_remove") -> jaxacct.Bounds:
    step = jaxacct.PoissonSampled(jaxacct.Gaussian(row["noise_multiplier"]), row["sampling_rate"])
    return jaxacct.delta(step, row["epsilon"], steps=row["steps"], relation=relation)


def theirs(row: dict[str, Any]) -> float:
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    step = dp_event.GaussianDpEvent(row["noise_multiplier"])
    accountant.compose(dp_event.PoissonSampledDpEvent(row["sampling_rate"], step), row["steps"])
    return float(accountant.get_delta(row["epsilon"]))


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    before = time.perf_counter()
    value = function(*arguments)
    return time.perf_counter() - before, value


def measure(row: dict[str, Any]) -> dict[str, Any]:
    """Times in seconds and answers of both, run after run in turn."""
    first, bounds = timed(ours, row)
    their_first, their_delta = timed(theirs, row)
    warm, their_warm = [], []
    for run in range(RUNS):
        warm.append(timed(ours, row)[0])
        if run < THEIR_RUNS:
            their_warm.append(timed(theirs, row)[0])
    found = {
        **{name: row[name] for name in ("noise_multiplier", "sampling_rate", "steps", "epsilon")},
        "lower": float(bounds.lower),
        "upper": float(bounds.upper),
        "dp_accounting": their_delta,
        "first_seconds": first,
        "warm_seconds": statistics.median(warm),
        "dp_accounting_first_seconds": their_first,
        "dp_accounting_warm_seconds": statistics.median(their_warm),
        "width": float(bounds.upper / bounds.lower - 1) if bounds.lower > 0 else float("inf"),
    }
    if "delta" in row:
        one = ours(row, row["direction"])
        found |= {"direction": row["direction"], "truth": row["delta"]}
        slack = row["delta"] * row["relative_error"]
        # The reference value has an error of its own.
        found["bracketed"] = bool(one.lower <= row["delta"] + slack and row["delta"] - slack <= one.upper)
        found["one_direction_width"] = float(one.upper / one.lower - 1) if one.lower > 0 else float("inf")
        # The reference is one direction, so the worse of both is at least as large.
        found["dp_accounting_over_truth"] = their_delta / row["delta"]
    return found


def all_at_once(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Seconds of one call on arrays: the first, and the median of the later ones."""
    columns = {name: np.array([row[name] for row in rows], float) for name in rows[0] if name != "direction"}
    first, _ = timed(ours, columns)
    return first, statistics.median(timed(ours, columns)[0] for _ in range(RUNS))


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ("jaxacct", "dp_accounting", "jax", "jaxlib", "numpy", "scipy")
    return {
        "cpu": model,
        "cores": cores,
        "load_average_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def summary(rows: list[dict[str, Any]], batch: tuple[float, float]) -> dict[str, Any]:
    median = lambda name: statistics.median(row[name] for row in rows)  # noqa: E731
    ratios = [row["dp_accounting_warm_seconds"] / row["warm_seconds"] for row in rows]
    checked = [row for row in rows if "bracketed" in row]
    upper_misses = sum(row["dp_accounting_over_truth"] < 1 - 1e-6 for row in checked)
    return {
        "settings": len(rows),
        "first_call_seconds": rows[0]["first_seconds"],
        "later_first_calls_median_seconds": statistics.median(row["first_seconds"] for row in rows[1:] or rows),
        "warm_median_seconds": median("warm_seconds"),
        "dp_accounting_warm_median_seconds": median("dp_accounting_warm_seconds"),
        "warm_ratio_median": statistics.median(ratios),
        "warm_ratio_least": min(ratios),
        "warm_ratio_largest": max(ratios),
        "all_at_once_first_seconds": batch[0],
        "all_at_once_warm_seconds": batch[1],
        "dp_accounting_all_one_by_one_seconds": sum(row["dp_accounting_warm_seconds"] for row in rows),
        "bracketed": sum(row["bracketed"] for row in checked),
        "checked": len(checked),
        "widest": max(row["width"] for row in rows),
        "widest_above_1e-9": max((row["width"] for row in rows if row["upper"] >= 1e-9), default=None),
        "dp_accounting_below_truth": upper_misses,
    }


def show(row: dict[str, Any]) -> None:
    theirs, warm = row["dp_accounting_warm_seconds"], row["warm_seconds"]
    verdict = {True: "yes", False: "NO", None: ""}[row.get("bracketed")]
    print(
        f"{row['noise_multiplier']:>6g} {row['sampling_rate']:>8g} {row['steps']:>6} {row['epsilon']:>8g} "
        f"{row['upper']:>10.3e} {row['width']:>8.1e} {verdict:>6} {row['dp_accounting']:>10.3e} "
        f"{row['first_seconds']:>7.2f} {1e3 * warm:>8.1f} {1e3 * theirs:>9.1f} {theirs / warm:>7.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=1000, help="use this many settings at most")
    parser.add_argument("--output", default=str(HERE / "results" / "accounting_speed.json"), help="JSON file")
    arguments = parser.parse_args()
    about = machine()
    rows = settings(arguments.settings)
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(
        f"{'sigma':>6} {'rate':>8} {'steps':>6} {'epsilon':>8} {'upper':>10} {'width':>8} {'sound':>6} "
        f"{'dp_acc':>10} {'first s':>7} {'warm ms':>8} {'dp_acc ms':>9} {'ratio':>7}"
    )
    found = []
    for row in rows:
        found.append(measure(row))
        show(found[-1])
    total = summary(found, all_at_once(rows))
    for name, value in total.items():
        print(f"{name:<40} {value if isinstance(value, int) or value is None else f'{value:.4g}'}")
    if arguments.output:
        file = pathlib.Path(arguments.output)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"machine": about, "summary": total, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
