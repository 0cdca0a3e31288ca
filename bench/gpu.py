"""The heavy jobs on whatever `jax.devices()` has: one command for the first accelerator that is met.

    pip install -e '.[bench]' && python bench/gpu.py            # writes bench/results/gpu_<device>.json
    python bench/gpu.py --jobs sweep individual --seconds 600   # some jobs only, and more time for them

Sizes grow while the next one is likely to end in the job's share of `--seconds` (two minutes on a CPU, half an hour
elsewhere, of which small jobs leave most) and fits the memory. An error of one row is recorded and stops nothing else.
A thousand answers of the devices are checked against the host's, as are a thousand individual ledgers; the menus'
certified epsilons stand beside those of `results/menu_table.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import curves_speed
import jax
import jax.numpy as jnp
import menu_table
import numpy as np
import per_example_speed
import training_share
from machine import about

import jaxacct
from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.losses.compare.chain import is_chain

HERE = pathlib.Path(__file__).resolve().parent / "results"
ON_CPU = jax.default_backend() == "cpu"
SECONDS = 120.0 if ON_CPU else 1800.0
CHECKED = 1_000
UPDATES = 20_000 if ON_CPU else 1_000  # a loop of scalar updates is no work for an accelerator
BYTES_AN_EXAMPLE = 80  # norms, the words of six ledgers, who takes part, and what a step holds meanwhile


class Job:
    """The rows of one job, which are recorded as they come, errors included.

    Attributes:
        rows: what was measured, by name.
        end: when its time is over.
    """

    def __init__(self, name: str, end: float, keep: Callable[[], None]) -> None:
        self.name, self.end, self.rows, self._keep = name, end, {}, keep

    def row(self, name: str, measure: Callable[[], dict[str, Any]], expected: float = 0.0) -> dict[str, Any] | None:
        """What ``measure`` found, or None: it failed, or its ``expected`` seconds are not left (0 always are)."""
        left = max(self.end - time.perf_counter(), 0.0)
        if expected > left:
            self._record(name, {"left out": f"would take {expected:.0f} s of the {left:.0f} s left"})
            return None
        before = time.perf_counter()
        try:
            found = measure()
        except Exception:
            self._record(name, {"failed": traceback.format_exc().strip()[-600:]})
            return None
        self._record(name, found | {"seconds_in_all": round(time.perf_counter() - before, 2)})
        return found

    def _record(self, name: str, found: dict[str, Any]) -> None:
        self.rows[name] = found
        print(f"{self.name}, {name}: {json.dumps(found, default=float)}", flush=True)
        self._keep()


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    before = time.perf_counter()
    value = jax.block_until_ready(function())
    return time.perf_counter() - before, value


def host() -> Any:
    """A context in which JAX computes on the host."""
    return jax.default_device(jax.local_devices(backend="cpu")[0])


def apart(ours: jaxacct.Bounds, other: jaxacct.Bounds) -> dict[str, Any]:
    """Whether two enclosures of each answer can both hold, and how far apart their upper ends are."""
    disjoint = (ours.lower > other.upper) | (other.lower > ours.upper) | np.isnan(ours.upper) | np.isnan(other.upper)
    return {
        "checked": int(np.size(ours.upper)),
        "disagree": int(np.sum(disjoint)),
        "upper_bounds_most_apart": float(np.max(np.abs(ours.upper / other.upper - 1))),
    }


def sweep(job: Job) -> None:
    """Epsilon of random DP-SGD settings, plainly on a CPU, in a program on an accelerator, and again for the check."""
    most = 100_000
    rng = np.random.default_rng(0)
    sigma, rate = np.exp(rng.uniform(np.log([[0.6], [1e-3]]), np.log([[5.0], [0.1]]), (2, most)))
    steps = np.floor(np.exp(rng.uniform(np.log(100), np.log(20_000), most)))
    delta = 10 ** rng.uniform(-7, -5, most)

    def epsilon(sigma: Any, rate: Any, steps: Any, delta: Any) -> jaxacct.Bounds:
        return jaxacct.epsilon(PoissonSampled(Gaussian(sigma), rate), delta, steps=steps)

    program = jax.jit(epsilon)

    def asked(size: int, ask: Callable[..., jaxacct.Bounds]) -> jaxacct.Bounds:
        with jax.enable_x64(True):
            return ask(*(x[:size] for x in (sigma, rate, steps, delta)))

    def timed(size: int) -> dict[str, Any]:
        usual = epsilon if ON_CPU else program
        first, bounds = seconds(lambda: asked(size, usual))
        warm, _ = seconds(lambda: asked(size, usual))
        width = float(np.max(np.asarray(bounds.upper) / np.asarray(bounds.lower) - 1))
        return {"first_s": first, "warm_s": warm, "settings_a_second": size / warm, "widest": width}

    expected, largest = 0.0, 0
    for size in (100, 1_000, 10_000, most):
        found = job.row(f"{size:,} settings", lambda size=size: timed(size), expected)
        if found is None:
            break
        expected, largest = 2.5 * 10 * found["warm_s"], size
    if size := min(largest, CHECKED):

        def checked() -> dict[str, Any]:
            with host():
                took, plain = seconds(lambda: asked(size, epsilon))
            ours = jaxacct.Bounds(*(np.asarray(x) for x in asked(size, program)))
            return {"host_s": took} | apart(ours, plain)

        job.row("against the host", checked)


def menu(job: Job) -> None:
    """The menu table; every row builds a filter, and asks for the epsilon of a schedule that it admits."""
    kept = json.loads((HERE / "menu_table.json").read_text())

    def certified(name: str) -> dict[str, Any]:
        if name in menu_table.MIXED:
            found = menu_table.mixed(name)
            theirs = kept["two-parameter menus"].get(name, {}).get("certified epsilon")
            return found | {"committed certified epsilon": theirs}
        found = menu_table.row(name, UPDATES)
        return found | {"committed certified epsilon": kept["rows"].get(name, {}).get("epsilon", {}).get("menu")}

    expected = 0.0
    for name in (*reversed(menu_table.MIXED), *menu_table.SETTINGS):
        took, found = seconds(lambda name=name, least=expected: job.row(name, lambda: certified(name), least))
        expected = max(expected, 1.5 * took) if found is not None else expected


def supremum(job: Job) -> None:
    """The supremum of curves on a grid, and one comparison of curves; both are a few passes over an array."""

    def measured(members: int) -> dict[str, Any]:
        made, family = seconds(lambda: curves_speed.sampled_curves(members, curves_speed.POINTS))
        with jax.enable_x64(True):
            on_device = jaxacct.PrivacyProfile(jnp.asarray(family.excess), family.grid)
            best = jaxacct.supremum(on_device)
        with host():
            plain = jaxacct.supremum(family)
        return {
            "curves_s": made,
            "supremum_ms": curves_speed.milliseconds(lambda: jaxacct.supremum(on_device).excess),
            "is_chain_ms": curves_speed.milliseconds(lambda: is_chain(on_device)),
            "most_apart_from_the_host": float(np.max(np.abs(np.asarray(best.excess) - np.asarray(plain.excess)))),
        }

    expected = 0.0
    for members in (100, 1_000):
        found = job.row(
            f"{members:,} curves of {curves_speed.POINTS:,} points", lambda members=members: measured(members), expected
        )
        if found is None:
            break
        expected = 10 * (found["curves_s"] + 0.015 * found["supremum_ms"])


def memory() -> float:
    """Bytes that the first device has for us; of a CPU, what is free now."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("bytes_limit") or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def individual(job: Job) -> None:
    """A step of one ledger for each example, beside plain passes over the same arrays."""
    expected = 0.0
    for examples in (10**6, 10**7, 10**8, 10**9):
        if examples * BYTES_AN_EXAMPLE > memory():
            job.row(f"{examples:,} examples", lambda: {"left out": "does not fit the memory"})
            break
        took, found = seconds(
            lambda n=examples, least=expected: job.row(
                f"{n:,} examples", lambda: per_example_speed.measured(n, 10 if ON_CPU else 30), least
            )
        )
        if found is None:
            break
        expected = 10 * took

    def words() -> list[np.ndarray]:
        """Of a thousand ledgers after three steps, of which the last refuses some."""
        norms = np.linspace(0.01, 3.0, CHECKED, dtype=np.float32)
        found = []
        for ledger in (
            per_example_speed.menu(CHECKED),
            filters.per_example(filters.approximate_gdp(0.05), examples=CHECKED),
        ):
            state = ledger.init()
            for _ in range(3):
                state = ledger.update(per_example_speed.QUERY, norms, state)[1]
            found.append(np.asarray(ledger.fraction(state)))
        return found

    def checked() -> dict[str, Any]:
        here = words()
        with host():
            there = words()
        differ = [int(np.sum(a != b)) for a, b in zip(here, there, strict=True)]
        return {"checked": 2 * CHECKED, "menu_differ": differ[0], "approximate_gdp_differ": differ[1]}

    job.row("against the host", checked)


def training(job: Job) -> None:
    """DP-SGD steps on the digits with and without a filter, and its update alone."""
    from jaxacct import training

    data = training.demo.load_data("digits")
    network = training.demo.build_network("mlp", data.train_x.shape[1:], data.classes, 0)

    def measured(name: str, rate: float) -> dict[str, Any]:
        budget = training.plan_budget(name, "constant", epsilon=8.0, delta=1e-5, steps=300, rate=rate)
        update = training_share.seconds_an_update(budget.filter, budget.schedule, UPDATES)
        choices = (budget.filter, None)
        step, without = training_share.seconds_a_step(
            data, network, budget, budget.schedule, choices, physical_batch=256, blocks=2 if ON_CPU else 10
        )
        return {"update_us": 1e6 * update, "step_ms": 1e3 * step, "step_without_filter_ms": 1e3 * without}

    expected = 0.0
    for name, rate in (("gdp", 1.0), ("renyi", 0.15), ("approximate_gdp", 0.15)):
        took, _ = seconds(
            lambda name=name, rate=rate, least=expected: job.row(name, lambda: measured(name, rate), least)
        )
        expected = max(expected, took)


JOBS: dict[str, Callable[[Job], None]] = {
    "sweep": sweep,
    "individual": individual,
    "supremum": supremum,
    "training": training,
    "menu": menu,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all jobs; a row that has begun is ended")
    parser.add_argument("--output", type=pathlib.Path, help="JSON file; by default results/gpu_<device>.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    device = jax.devices()[0]
    kind = re.sub(r"\W+", "_", device.device_kind.lower()).strip("_")
    path = options.output or HERE / f"gpu_{kind}.json"
    report: dict[str, Any] = {
        "machine": about("jaxacct"),
        "devices": [one.device_kind for one in jax.devices()],
        "platform": device.platform,
        "memory_gib": round(memory() / 2**30, 1),
        "jobs": json.loads(path.read_text())["jobs"] if path.exists() else {},  # jobs that are not run keep theirs
    }
    print(json.dumps({key: report[key] for key in ("machine", "devices", "memory_gib")}), flush=True)
    start = time.perf_counter()

    def keep() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1, default=float) + "\n")

    for number, name in enumerate(options.jobs, 1):
        job = Job(name, start + options.seconds * number / len(options.jobs), keep)
        report["jobs"][name] = job.rows
        print(f"{name}: {time.perf_counter() - start:.0f} s so far", flush=True)
        try:
            JOBS[name](job)
        except Exception:
            why = traceback.format_exc().strip()[-600:]
            job.row("all of it", lambda why=why: {"failed": why})
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    report["peak_device_gib"] = round(peak / 2**30, 2) if peak else None
    report["seconds"] = round(time.perf_counter() - start, 1)
    keep()
    print(f"{report['seconds']} s in all, written to {path}")


if __name__ == "__main__":
    main()
