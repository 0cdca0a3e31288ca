"""The README's picture: what each filter says of the same adaptive steps, and how many it admits to the same target.

Run with ``python bench/headline.py``; it writes ``bench/results/headline.json`` and ``headline.png``. A network learns
scikit-learn's digits by DP-SGD whose noise reacts to what was released. Each filter is given the same target and runs
until it refuses; ``--seeds`` runs are averaged. Beside it, the epsilon of 3,650 steps chosen with full adaptivity, from
the results of ``menu_table.py`` and ``residue_showcase.py``. An epsilon that is no bound is drawn hollow.
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
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_epsilon

HERE = pathlib.Path(__file__).resolve().parent / "results"
EPSILON, DELTA = 2.0, 1e-5
SIGMA, RATE, PLANNED = 4.0, 0.1, 600
SLACK = DELTA / 10
# After Okabe and Ito's palette; what is no bound is drawn hollow as well.
STYLE = {"Rényi": "#D55E00", "GDP residue with slack": "#B8860B", "priced menu": "#0072B2", "approximate GDP": "0.45"}


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
    final = [round(path.evaluations[-1][1], 4) for path in paths]
    guarantee = filter.guarantee
    return {
        "steps": steps,
        "accuracy": final,
        "epsilon": float(guarantee.epsilon(DELTA)),
        "is_bound": bool(guarantee.is_bound),
        "seconds_a_run": (time.perf_counter() - start) / seeds,
    }


def showcase() -> dict[str, Any]:
    """Epsilon of 3,650 adaptive steps under each filter, from the results of menu_table.py and residue_showcase.py."""
    menu = json.loads((HERE / "menu_table.json").read_text())["rows"]["showcase, finer"]["epsilon"]
    residue = json.loads((HERE / "residue_showcase.json").read_text())
    sigma = 1.5 + np.sin(np.pi / 3650 * 150 * np.ceil(np.arange(1, 3651) / 150))
    whole = float(np.sum(0.01**2 * np.expm1(sigma**-2) / 2))
    return {
        "Rényi": menu["renyi"],
        "GDP residue with slack": residue["epsilon"],
        "priced menu": menu["menu"],
        "approximate GDP": float(filters.approximate_gdp(whole).guarantee.epsilon(1e-5)),
        "fixed in advance": menu["fixed schedule"],
    }


def draw(report: dict[str, Any], path: pathlib.Path) -> None:
    """Points where the axis does not begin at 0, bars where it does; what is no bound is hollow."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 3.5))
    figure.set_layout_engine("constrained", wspace=0.06)
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    places = list(range(len(STYLE)))[::-1]
    floor = report["showcase"]["fixed in advance"]
    left.axvline(floor, color="0.35", linestyle=":", linewidth=1.5, zorder=0)
    left.annotate(
        f"these steps fixed in advance: {floor:.3f}", (floor, 3.55), (5, 0), textcoords="offset points",
        fontsize=9, color="0.35", va="center",
    )  # fmt: skip
    for place, (name, color) in zip(places, STYLE.items(), strict=True):
        row, value = report["filters"][name], report["showcase"][name]
        proven = row["is_bound"]
        fill, line = (color, "-") if proven else ("white", "--")
        left.plot([value, floor], [place, place], color=color, linewidth=3, linestyle=line, zorder=1)
        left.plot(value, place, "o", markersize=11, markerfacecolor=fill, markeredgecolor=color, markeredgewidth=2)
        left.annotate(
            f"{value:.3f}" if proven else f"{value:.3f}, no bound", (max(value, floor), place),
            (10 if value > floor else 5, 0), textcoords="offset points", fontsize=10, va="center",
        )  # fmt: skip
        steps = np.mean(row["steps"])
        right.barh(place, steps, color=fill, edgecolor=color, linestyle=line, height=0.62, linewidth=1.5)
        note = f"{steps:.0f} steps, {100 * np.mean(row['accuracy']):.1f} % accurate"
        right.text(0.96 * steps, place, note, va="center", ha="right", fontsize=10, color="white" if proven else "0.2")
    left.set_yticks(places, list(STYLE))
    left.tick_params("y", length=0)
    left.set(xlim=(1.18, 1.37), xticks=(1.2, 1.25, 1.3, 1.35), ylim=(-0.6, 3.8), xlabel="epsilon at delta 1e-5")
    left.set_title("What 3,650 adaptive steps cost", fontsize=11, loc="left")
    right.set(yticks=[], ylim=(-0.6, 3.8), xlabel=f"steps until the filter refuses, mean of {report['seeds']} runs")
    right.set_title(f"What epsilon {EPSILON:g} buys: DP-SGD on digits", fontsize=11, loc="left")
    for axes in (left, right):
        axes.spines[["top", "right", "left"]].set_visible(False)
    right.spines["left"].set_visible(True)
    figure.savefig(path, dpi=180)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--redraw", action="store_true", help="draw the numbers that are there")
    options = parser.parse_args()
    file = HERE / "headline.json"
    if options.redraw:
        report = json.loads(file.read_text()) | {"showcase": showcase()}
        file.write_text(json.dumps(report, indent=1) + "\n")
        draw(report, HERE / "headline.png")
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
        "showcase": showcase(),
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
