"""The README's picture: one network, one target, one adaptive schedule, four filters.

Run with ``python bench/headline.py``; it writes ``bench/results/headline.json`` and ``headline.png``. A network learns
scikit-learn's digits by DP-SGD whose noise reacts to what was released. Each filter is given the same target and runs
until it refuses. What it admits, the accuracy that this buys, and what its epsilon is, are drawn; an epsilon that is
no bound is drawn hollow. ``--seeds`` runs are averaged.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from machine import about

from jaxacct import filters, training
from jaxacct.losses.gdp_curve import gdp_epsilon

HERE = pathlib.Path(__file__).resolve().parent / "results"
EPSILON, DELTA = 2.0, 1e-5
SIGMA, RATE, PLANNED = 4.0, 0.1, 600
SLACK = DELTA / 10
# Okabe and Ito's palette; lines differ as well.
STYLE = {
    "Rényi": ("#D55E00", "--"),
    "GDP residue with slack": ("#E69F00", "-."),
    "priced menu": ("#0072B2", "-"),
    "approximate GDP": ("0.45", ":"),
}


def largest_mu(epsilon: float, delta: float) -> float:
    """The largest GDP budget, in float64 and from below, whose curve gives at most ``epsilon`` at ``delta``."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(gdp_epsilon(middle, delta)) <= epsilon else (low, middle)
    return low * (1 - 1e-11)


def four_filters(schedule: training.Schedule) -> dict[str, Any]:
    """All for (EPSILON, DELTA), decided before training."""
    menu = schedule.menu()
    plan = training.planned_mechanism(schedule)
    residue = filters.gdp_residue(largest_mu(EPSILON, (DELTA - SLACK) / (1 - SLACK)), SLACK, steps=PLANNED)
    return {
        "Rényi": filters.renyi(EPSILON, DELTA, order=filters.plan_order(plan, DELTA, EPSILON, orders=range(4, 64))),
        "GDP residue with slack": training.on_levels(residue, menu),
        "priced menu": filters.priced_menu(menu, epsilon=EPSILON, delta=DELTA),
        "approximate GDP": filters.approximate_gdp(largest_mu(EPSILON, DELTA) ** 2 / 2),
    }


def run(name: str, filter: Any, schedule: training.Schedule, seeds: int) -> dict[str, Any]:
    data = training.load("digits")
    examples = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    network = training.build("mlp", data.train_x.shape[1:], data.classes, 0)
    optimizer = optax.sgd(0.3, momentum=0.5)
    step = training.make_step(network.loss, optimizer, filter, schedule, clip_norm=1.0, physical_batch=256, donate=True)
    measure = training.accuracy(network.logits, data.test_x, data.test_y)
    paths, start = [], time.perf_counter()
    for seed in range(seeds):
        state = training.init_state(network.params, optimizer, filter, schedule, training.seeded_keys(seed))
        outcome = training.fit(step, state, examples, steps=20 * PLANNED, evaluate=measure, evaluate_every=20)
        assert outcome.stopped == "budget spent"
        paths.append(outcome)
    steps = [len(path.records) for path in paths]
    final = [path.evaluations[-1][1] for path in paths]
    guarantee = filter.guarantee
    return {
        "steps": steps,
        "accuracy": final,
        "epsilon": float(guarantee.epsilon(DELTA)),
        "is_bound": bool(guarantee.is_bound),
        "seconds_a_run": (time.perf_counter() - start) / seeds,
        "path": {
            "step": [number for number, _ in paths[0].evaluations],
            "accuracy": [value for _, value in paths[0].evaluations],
            "sigma": [record.sigma for record in paths[0].records],
            "budget_left": [record.budget_left for record in paths[0].records],
        },
    }


def draw(report: dict[str, Any], path: pathlib.Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    for name, row in report["filters"].items():
        color, line = STYLE[name]
        track = row["path"]
        left.plot(
            [0, *range(1, len(track["budget_left"]) + 1)],
            [100.0, *(100 * share for share in track["budget_left"])],
            line,
            color=color,
            linewidth=2,
            label=name,
        )
    left.set(xlabel="step", ylabel="budget left (%)", title="one adaptive run: until the filter refuses")
    left.set_ylim(-2, 102)
    left.legend(frameon=False)
    places = range(len(report["filters"]))[::-1]
    for place, (name, row) in zip(places, report["filters"].items(), strict=True):
        color = STYLE[name][0]
        right.barh(
            place, np.mean(row["steps"]), color=color if row["is_bound"] else "none", edgecolor=color, height=0.6
        )
        kind = f"epsilon {row['epsilon']:.3f}, proven" if row["is_bound"] else "asymptotic, not a bound"
        right.text(
            0.03 * np.mean(row["steps"]),
            place,
            f"{name}: {np.mean(row['steps']):.0f} steps, {100 * np.mean(row['accuracy']):.1f} %\n{kind}",
            va="center",
            fontsize=9,
            color="white" if row["is_bound"] else "0.2",
        )
    right.set(yticks=[], xlabel="steps admitted", title=f"mean of {report['seeds']} runs; held-out accuracy")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"DP-SGD on digits, noise that reacts to releases: the same target, epsilon {EPSILON:g} at delta {DELTA:g}"
    )
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--redraw", action="store_true", help="draw the numbers that are there")
    options = parser.parse_args()
    file = HERE / "headline.json"
    if options.redraw:
        draw(json.loads(file.read_text()), HERE / "headline.png")
        return
    schedule = training.adaptive(SIGMA, RATE, PLANNED)
    report: dict[str, Any] = {
        "machine": about("optax", "flax"),
        "epsilon": EPSILON,
        "delta": DELTA,
        "rate": RATE,
        "sigmas": [sigma for sigma, _ in schedule.levels],
        "slack": SLACK,
        "seeds": options.seeds,
        "filters": {},
    }
    for name, filter in four_filters(schedule).items():
        report["filters"][name] = row = run(name, filter, schedule, options.seeds)
        print(f"{name}: {np.mean(row['steps']):.0f} steps, {100 * np.mean(row['accuracy']):.2f} %", row["epsilon"])
        jax.clear_caches()
    file.write_text(json.dumps(report, indent=1) + "\n")
    draw(report, HERE / "headline.png")


if __name__ == "__main__":
    main()
