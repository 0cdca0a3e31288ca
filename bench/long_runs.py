"""A million filter updates and ten thousand ledger transactions: no drift, no leak, no slowdown.

    python bench/long_runs.py --out bench/results/long_runs       # .json and .png

Each filter is updated from Python, one call an update, in stretches; every stretch gives the time of an update and the
memory that the process holds. Drift is what the filter says it has spent against the exact sum, in fractions.
"""

from __future__ import annotations

import argparse
import fractions
import gc
import json
import os
import pathlib
import tempfile
import time

import jax
import numpy as np
from machine import about

from jaxacct import Ledger, filters

STRETCHES = 50
# name -> (filter that holds a million of the queries, query, exact cost of one as a share of the budget)
FILTERS = {
    "pure_dp": (filters.pure_dp(1.0), 2.0**-20, fractions.Fraction(1, 2**20)),
    "zcdp": (filters.zcdp(1.0), 1e-7, fractions.Fraction(1e-7)),
    "gdp": (filters.gdp(1.0), 1e-4, fractions.Fraction(1e-4) ** 2),
    "approximate_zcdp": (filters.approximate_zcdp(1.0, 0.1), (1e-7, 1e-9), fractions.Fraction(1e-7)),
    "renyi": (filters.renyi(3.0, 1e-5, order=8), 1e-7, None),
    "gdp_residue": (filters.gdp_residue(1.0), 1e-4, fractions.Fraction(1e-4) ** 2),
}


def resident() -> float:
    """MiB that this process holds."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def flat(points: list[dict]) -> dict:
    """Growth from the first tenth (after warming up) to the last, in time and memory."""
    part = max(1, len(points) // 10)
    first, last = points[1 : 1 + part], points[-part:]
    median = lambda rows, key: float(np.median([row[key] for row in rows]))  # noqa: E731
    return {
        "microseconds_first": median(first, "microseconds"),
        "microseconds_last": median(last, "microseconds"),
        "mib_growth": round(median(last, "mib") - median(first, "mib"), 2),
    }


def updates(name: str, count: int) -> dict:
    budget, query, cost = FILTERS[name]
    state, points, admitted = budget.init(), [], 0
    for _ in range(STRETCHES):
        start = time.perf_counter()
        for _ in range(count // STRETCHES):
            fits, state = budget.update(query, state)
        admitted += (count // STRETCHES) * int(bool(fits))
        seconds = time.perf_counter() - start
        points.append({"microseconds": 1e6 * seconds / (count // STRETCHES), "mib": resident()})
    result = {"updates": count, "admitted": admitted, **flat(points), "points": points}
    if cost is not None and name != "gdp_residue":
        words = np.asarray(jax.tree.leaves(state)[0], np.uint64).tolist()
        spent = fractions.Fraction(words[0] * 2**64 + words[1] * 2**32 + words[2], 2**88)
        exact = admitted * cost
        result["spent_over_exact_minus_1"] = float(spent / exact - 1)
        assert spent >= exact, f"{name} counts too little"
    elif cost is not None:
        with jax.enable_x64(True):
            result["spent_over_exact_minus_1"] = float(budget.spent(state)) / float(admitted * cost) ** 0.5 - 1
    return result


def transactions(count: int) -> dict:
    points = []
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "long.db")
        with Ledger(place, filters.gdp(1.0)) as ledger:
            for stretch in range(STRETCHES):
                start = time.perf_counter()
                for number in range(count // STRETCHES):
                    assert ledger.request(1e-3, f"{stretch}:{number}")
                seconds = time.perf_counter() - start
                log = os.path.getsize(f"{place}-wal") / 2**20
                points.append({"microseconds": 1e6 * seconds / (count // STRETCHES), "mib": resident(), "log_mib": log})
            start = time.perf_counter()
            report = ledger.verify()
            verified = time.perf_counter() - start
            state = ledger._last
        size = os.path.getsize(place)
        again = Ledger(place)
        assert again.head == report.head
        assert again._last is not None
        assert state is not None
        assert again._last.state.text == state.state.text
        spent = again.spent()
    exact = float(count * fractions.Fraction(1e-3) ** 2) ** 0.5
    return {
        "transactions": count,
        **flat(points),
        "bytes_each": size / count,
        "seconds_to_verify": round(verified, 2),
        "spent_over_exact_minus_1": float(spent) / exact - 1,
        "largest_log_mib": max(point["log_mib"] for point in points),
        "points": points,
    }


def pictured(found: dict, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7.5, 6), sharex=True, constrained_layout=True)
    for name, run in found["runs"].items():
        x = np.linspace(0, 100, len(run["points"]))
        total = run.get("updates") or run.get("transactions")
        style = {"linewidth": 2.2, "color": "black"} if name == "Ledger" else {"linewidth": 1.2}
        label = f"{name} ({total:,})"
        above.plot(x, [point["microseconds"] for point in run["points"]], label=label, **style)
        first = run["points"][1]["mib"]
        below.plot(x[1:], [point["mib"] - first for point in run["points"][1:]], **style)
    above.set_yscale("log")
    above.set_ylabel("microseconds an operation")
    below.set_ylabel("MiB above the start")
    below.set_xlabel("share of the run, %")
    below.axhline(0, color="grey", linewidth=0.6)
    above.legend(fontsize=8, ncols=2)
    above.set_title("One Python call an operation; the ledger syncs to disk each time", fontsize=10)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", choices=[*FILTERS, "Ledger"], default=["Ledger", *FILTERS])
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    found: dict = {"machine": about(), "runs": {}}
    for name in given.only:
        gc.collect()
        found["runs"][name] = transactions(given.transactions) if name == "Ledger" else updates(name, given.updates)
        print(name, {k: v for k, v in found["runs"][name].items() if k != "points"}, flush=True)
        if given.out:
            given.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
            pictured(found, given.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
