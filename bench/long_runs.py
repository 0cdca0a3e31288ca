"""A million filter updates and ten thousand ledger transactions: no drift, no leak, no slowdown.

    python bench/long_runs.py --out bench/results/long_runs       # .json and .png

Each filter is updated a million times in compiled loops, 50 stretches of 20,000, and twenty thousand times from
Python, 50 stretches of 400; the ledger does its transactions in 50 stretches of 200. Every stretch gives the
processor's time of an operation (the wall's too, but other programs may be running) and the memory that the process
holds. Drift is what the filter says it has spent against the exact sum, in fractions.
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


def stretches(operate, count: int) -> list[dict]:
    """Runs ``operate(number of operations)`` in stretches, and measures each."""
    points = []
    each = count // STRETCHES
    for _ in range(STRETCHES):
        wall, busy = time.perf_counter(), time.process_time()
        operate(each)
        busy, wall = time.process_time() - busy, time.perf_counter() - wall
        points.append({"microseconds": 1e6 * busy / each, "wall": 1e6 * wall / each, "mib": resident()})
    return points


def flat(points: list[dict]) -> dict:
    """The first tenth (after warming up) against the last, in the processor's time and in memory."""
    part = max(1, len(points) // 10)
    first, last = points[1 : 1 + part], points[-part:]
    median = lambda rows, key: round(float(np.median([row[key] for row in rows])), 3)  # noqa: E731
    return {
        "microseconds_first": median(first, "microseconds"),
        "microseconds_last": median(last, "microseconds"),
        "mib_growth": round(median(last, "mib") - median(first, "mib"), 2),
    }


def updates(name: str, count: int) -> dict:
    """A million in compiled loops."""
    budget, query, cost = FILTERS[name]
    each = count // STRETCHES

    @jax.jit
    def many(state):
        def step(carry, _):
            state, admitted = carry
            fits, state = budget.update(query, state)
            return (state, admitted + fits.astype(np.int32)), None

        return jax.lax.scan(step, (state, np.int32(0)), None, length=each)[0]

    now = {"state": budget.init(), "admitted": 0}

    def operate(_):
        state, admitted = jax.block_until_ready(many(now["state"]))
        now.update(state=state, admitted=now["admitted"] + int(admitted))

    points = stretches(operate, count)
    assert now["admitted"] == count, f"{name} refused some"
    return {"updates": count, **drift(name, budget, now["state"], count, cost), **flat(points), "points": points}


def drift(name, budget, state, count, cost) -> dict:
    if cost is None:
        return {}
    if name == "gdp_residue":
        with jax.enable_x64(True):
            spent = fractions.Fraction(float(budget.spent(state))) ** 2
        # A residue is rounded down each time: some 2^-49 of the budget, of which the queries are a millionth.
        return {"drift_share_of_budget": float(spent - count * cost)}
    words = [int(word) for word in np.asarray(jax.tree.leaves(state)[0])]
    spent = fractions.Fraction(words[0] * 2**64 + words[1] * 2**32 + words[2], 2**88)
    assert spent >= count * cost, f"{name} counts too little"
    return {"drift_share_of_budget": float(spent - count * cost)}


def calls(name: str, count: int) -> dict:
    """From Python, one call an update."""
    budget, query, _ = FILTERS[name]
    now = {"state": budget.init()}

    def operate(number):
        state = now["state"]
        for _ in range(number):
            _, state = budget.update(query, state)
        now["state"] = jax.block_until_ready(state)

    points = stretches(operate, count)
    return {"calls": count, **flat(points), "points": points}


def transactions(count: int) -> dict:
    points = []
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(folder, "long.db")
        with Ledger(place, filters.gdp(1.0), create=True) as ledger:

            def operate(number):
                for n in range(number):
                    assert ledger.request(1e-3, f"number {n}")

            points = stretches(operate, count)
            start = time.perf_counter()
            report = ledger.verify()
            verified = time.perf_counter() - start
            state = ledger._chain.last
        size = os.path.getsize(place)
        again = Ledger(place)
        assert again.head == report.head
        assert again._chain.last is not None
        assert state is not None
        assert again._chain.last.state.text == state.state.text
        spent = again.spent()
    exact = float(count * fractions.Fraction(1e-3) ** 2) ** 0.5
    return {
        "transactions": count,
        **flat(points),
        "bytes_each": size / count,
        "seconds_to_verify": round(verified, 2),
        "drift_share_of_budget": float(spent) - exact,
        "points": points,
    }


def pictured(found: dict, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7.5, 6.5), sharex=True, constrained_layout=True)
    colors = dict(
        zip(["Ledger", *FILTERS], ["black", *pyplot.rcParams["axes.prop_cycle"].by_key()["color"]], strict=False)
    )
    for (name, kind), run in ((key.split(" ", 1), run) for key, run in found["runs"].items()):
        style = {"color": colors[name], "linestyle": {"updates": "-", "calls": "--"}.get(kind, "-")}
        x = np.linspace(0, 100, len(run["points"]))
        total = run.get("updates") or run.get("calls") or run.get("transactions")
        label = f"{name}, {total:,} {kind}" if kind != "calls" or name == "gdp" else None
        above.plot(x[1:], [point["microseconds"] for point in run["points"][1:]], label=label, **style)
        first = run["points"][1]["mib"]
        below.plot(x[1:], [point["mib"] - first for point in run["points"][1:]], **style)
    above.set_yscale("log")
    above.set_ylabel("processor time an operation, microseconds")
    below.set_ylabel("MiB above the start")
    below.set_xlabel("share of the run, %")
    below.set_ylim(-10, 30)
    below.axhline(0, color="grey", linewidth=0.6)
    above.legend(fontsize=7, ncols=2)
    above.set_title("Compiled loops (solid), one Python call an update (dashed), the ledger (black)", fontsize=10)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", choices=[*FILTERS, "Ledger"], default=["Ledger", *FILTERS])
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    found: dict = {"machine": about(), "runs": {}}
    jobs = [
        (name, kind) for name in given.only for kind in (["transactions"] if name == "Ledger" else ["updates", "calls"])
    ]
    for name, kind in jobs:
        gc.collect()
        if kind == "transactions":
            run = transactions(given.transactions)
        else:
            run = updates(name, given.updates) if kind == "updates" else calls(name, given.updates // 50)
        found["runs"][f"{name} {kind}"] = run
        print(name, kind, {k: v for k, v in run.items() if k != "points"}, flush=True)
        if given.out:
            given.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
            pictured(found, given.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
