"""The menu filter against Rényi and against schedules that are fixed in advance.

Run with ``python bench/menu_table.py``; it writes ``bench/results/menu_table.json`` and ``menu_table.png`` beside it.
Each row: a schedule whose noise wanders over a range, under a filter that allows any adaptive choice in that range.
``epsilon`` holds what the same steps cost under each accounting; ``steps`` how many steps each filter admits
at the target, the box of the same range among them. The fixed schedule's own cost allows no adaptivity: it is
the floor.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from machine import about

import jaxacct
from jaxacct import Composed, Gaussian, PoissonSampled, filters
from jaxacct.filters.prices.menu import constant_schedules

HERE = pathlib.Path(__file__).resolve().parent / "results"
UPDATES = 200_000
# rate, smallest and largest noise multiplier, epsilon, delta, entries, points
SETTINGS: dict[str, tuple[float, float, float, float, float, int, int | None]] = {
    "q 0.1, sigma 3 to 6": (0.1, 3.0, 6.0, 1.0, 1e-5, 48, None),
    "q 0.05, sigma 1 to 2": (0.05, 1.0, 2.0, 3.0, 1e-5, 48, None),
    "q 0.01, sigma 0.6 to 0.9": (0.01, 0.6, 0.9, 6.0, 1e-5, 48, None),
    "q 0.2, sigma 4 to 8": (0.2, 4.0, 8.0, 8.0, 1e-5, 48, None),
    "q 0.001, sigma 0.8 to 1.2": (0.001, 0.8, 1.2, 0.5, 1e-6, 32, 8192),
    "showcase": (0.01, 1.414, 2.5, 1.24, 1e-5, 96, 4096),
    "showcase, finer": (0.01, 1.414, 2.5, 1.232, 1e-5, 128, 8192),
}


# (noise multiplier, rate) of every entry; the target is epsilon 2 at delta 1e-5.
MIXED = {
    "two noises": [(1.0, 0.01), (2.0, 0.01)],
    "six": [(1.0, 0.005), (1.0, 0.02), (2.5, 0.005), (2.5, 0.02), (1.5, 0.01), (4.0, 0.02)],
    "four, far apart": [(0.7, 0.002), (1.0, 0.01), (2.0, 0.05), (3.0, 0.1)],
    "with an evaluation": [(1.0, 0.01), (2.0, 0.01), (40.0, 1.0)],
}


def showcase(steps: int = 3650) -> np.ndarray:
    return 1.5 + np.sin(np.pi / steps * 150 * np.ceil(np.arange(1, steps + 1) / 150))


def wandering(low: float, high: float, steps: int) -> np.ndarray:
    """24 levels of noise, up and down in ten waves."""
    level = np.rint(11.5 + 11.5 * np.sin(2 * np.pi * 10 * np.arange(steps) / steps)) / 23
    return low * (high / low) ** level


@jax.jit
def admissions(ledger: Any, sigma: jax.Array, rate: jax.Array) -> jax.Array:
    def body(state: Any, s: jax.Array):
        admitted, state = ledger.update(PoissonSampled(Gaussian(s), rate), state)
        return state, admitted

    return jax.lax.scan(body, ledger.init(), sigma)[1]


def seconds_an_update(ledger: Any, low: float, high: float, rate: float, updates: int) -> float:
    @partial(jax.jit, static_argnames="count")
    def loop(ledger: Any, count: int):
        def body(i: jax.Array, state: Any):
            sigma = low + (high - low) * jnp.float32(i % 97) / 97
            return ledger.update(PoissonSampled(Gaussian(sigma), rate), state)[1]

        return jax.lax.fori_loop(0, count, body, ledger.init())

    def timed(count: int) -> float:
        jax.block_until_ready(loop(ledger, count))
        times = []
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready(loop(ledger, count))
            times.append(time.perf_counter() - start)
        return min(times)

    return (timed(updates) - timed(1)) / (updates - 1)


def finite(value: float) -> float | None:
    """JSON has no infinity: None is an epsilon that the table does not reach."""
    return value if np.isfinite(value) else None


def first_refusal(admitted: np.ndarray) -> int:
    return int(np.argmin(admitted)) if not admitted.all() else len(admitted)


def row(name: str, updates: int = UPDATES) -> dict[str, Any]:
    rate, low, high, epsilon, delta, entries, points = SETTINGS[name]
    start, cpu = time.perf_counter(), time.process_time()
    schedule = showcase() if name.startswith("showcase") else None
    menu = filters.gaussian_menu((float(schedule.min()) if schedule is not None else low, high), rate, sigmas=entries)
    ledger = filters.menu(menu, epsilon=epsilon, delta=delta, points=points, cache=False)
    built, built_cpu = time.perf_counter() - start, time.process_time() - cpu
    if schedule is None:
        schedule = wandering(low, high, 2 * int(ledger.budget) // int(ledger.prices.min()))
    with jax.enable_x64(True):
        admitted = np.asarray(admissions(ledger, jnp.asarray(schedule), jnp.asarray(rate)))
    steps = first_refusal(admitted)
    start_cpu = time.process_time()
    box = filters.sampled_gaussian(
        sigma=(float(schedule.min()), max(high, float(schedule.max()))), rate=rate, epsilon=epsilon, delta=delta,
        cache=False,
    )  # fmt: skip
    box_cpu = time.process_time() - start_cpu
    with jax.enable_x64(True):
        in_box = first_refusal(np.asarray(admissions(box, jnp.asarray(schedule), jnp.asarray(rate))))
    run = schedule[:steps]
    sigma, counts = np.unique(run, return_counts=True)
    fixed = jaxacct.epsilon(Composed([PoissonSampled(Gaussian(s), rate) for s in sigma], counts.tolist()), delta)
    plan = PoissonSampled(Gaussian(run), rate)
    order = filters.plan_order(plan, delta)
    renyi = filters.plan_epsilon(plan, delta, order=order)
    target = filters.renyi(epsilon, delta, order=filters.plan_order(plan, delta, epsilon))
    with jax.enable_x64(True):
        theirs = first_refusal(np.asarray(admissions(target, jnp.asarray(run), jnp.asarray(rate))))
    ends = [menu[0], menu[-1]]
    runs = [int(ledger.budget) // int(ledger.prices[i]) for i in (0, -1)]
    constant = [float(jaxacct.epsilon(m, delta, steps=n).lower) for m, n in zip(ends, runs, strict=True)]
    return {
        "rate": rate,
        "sigma": [low, high],
        "delta": delta,
        "entries": entries,
        "points": points,
        "epsilon": {
            "renyi": float(renyi),
            "menu": float(ledger.guarantee.epsilon(delta)),
            "constant schedules of the ends": constant,
            "fixed schedule": float(fixed.upper),
        },
        "epsilon at delta / 10": finite(float(ledger.guarantee.epsilon(delta / 10))),
        "steps": {"menu": steps, "box": in_box, "renyi": theirs, "of": len(schedule)},
        "spent at the end": float(np.asarray(ledger.price(PoissonSampled(Gaussian(run), rate))).sum() / ledger.budget),
        "runs of the ends": runs,
        "seconds to build": round(built, 1),
        "seconds of processor to build": round(built_cpu, 1),
        "seconds of processor to build the box": round(box_cpu, 1),
        "load average after": round(os.getloadavg()[0], 1),
        "nanoseconds an update": round(1e9 * seconds_an_update(ledger, low, high, rate, updates)),
    }


def mixed(name: str) -> dict[str, Any]:
    """What adaptivity costs where rates differ too: the dearest constant schedule against the certified epsilon."""
    menu = [PoissonSampled(Gaussian(s), q) for s, q in MIXED[name]]
    start, cpu = time.perf_counter(), time.process_time()
    ledger = filters.menu(menu, epsilon=2.0, delta=1e-5, points=8192, cache=False)
    built, built_cpu = time.perf_counter() - start, time.process_time() - cpu
    constant = constant_schedules(ledger, menu, 1e-5).lower
    return {
        "entries": MIXED[name],
        "runs": (int(ledger.budget) // np.asarray(ledger.prices)).tolist(),
        "certified epsilon": float(ledger.guarantee.epsilon(1e-5)),
        "constant schedules": constant.tolist(),
        "adaptivity costs": float(ledger.guarantee.epsilon(1e-5) / constant.max() - 1),
        "seconds to build": round(built, 1),
        "seconds of processor to build": round(built_cpu, 1),
    }


def picture(rows: dict[str, Any], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(rows)
    at = np.arange(len(names))[::-1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 0.55 * len(names) + 1.6), sharey=True)
    kinds = {"renyi": ("Rényi filter", "o", "#b0413e"), "menu": ("menu filter", "D", "#1f5f8b")}
    for kind, (label, marker, colour) in kinds.items():
        over = [100 * (r["epsilon"][kind] / r["epsilon"]["fixed schedule"] - 1) for r in rows.values()]
        left.plot(over, at, marker, color=colour, label=label)
    left.set_xscale("log")
    left.set_xticks([1, 2, 5, 10, 20, 50, 100, 200], ["1", "2", "5", "10", "20", "50", "100", "200"])
    left.minorticks_off()
    left.grid(axis="x", color="0.9")
    left.set_xlabel(
        "certified epsilon of the same steps, % above the\nexact cost of this schedule if it were fixed in advance"
    )
    left.set_yticks(at, [f"{n}\nepsilon {r['epsilon']['menu']:.3g}, delta {r['delta']:g}" for n, r in rows.items()])
    left.set_ylim(-0.6, len(names) - 0.4)
    left.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.16), ncol=2)
    pairs = [(r["steps"]["renyi"], r["steps"]["menu"]) for r in rows.values()]
    gain = [100 * (b / a - 1) if a else 0.0 for a, b in pairs]
    right.barh(at, gain, height=0.5, color="#1f5f8b")
    for y, g, (a, b) in zip(at, gain, pairs, strict=True):
        text = f"  +{g:.0f} %  ({a:,} to {b:,})" if a else f"  Rényi admits none (0 to {b:,})"
        right.text(g, y, text, va="center", fontsize=8)
    right.set_xlim(0, 1.75 * max(gain))
    right.set_xlabel("more steps admitted than by Rényi at the target, %")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="settings to run; all without")
    names = parser.parse_args().names or [*SETTINGS, *MIXED]
    path = HERE / "menu_table.json"
    found = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    for name in names:
        found["machine"] = about()
        if name in MIXED:
            found.setdefault("two-parameter menus", {})[name] = mixed(name)
            print(name, json.dumps(found["two-parameter menus"][name]), flush=True)
        else:
            found["rows"][name] = row(name)
            print(name, json.dumps(found["rows"][name]), flush=True)
        found["rows"] = {n: found["rows"][n] for n in SETTINGS if n in found["rows"]}
        path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
        picture(found["rows"], HERE / "menu_table.png")


if __name__ == "__main__":
    main()
