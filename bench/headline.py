"""The README's picture: what each filter says of the same adaptive steps, and how many it admits to the same target.

Run with ``python bench/headline.py --path FOLDER``, the folder of Adult's files (OpenML without one); it writes
``bench/results/headline.json`` and ``headline.png``. Beside each other: the epsilon of 3,650 steps chosen with full
adaptivity (Rényi and the floor from the results of ``menu_table.py``, the residue from ``residue_showcase.py``), and
DP-SGD of a linear model on Adult whose noise reacts to what was released, until each filter refuses, the mean of
``--seeds`` runs. The Rényi filter runs once more with 2.5 times the noise, which suits it better. An epsilon that is no
bound is drawn hollow.
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

from jaxacct import Gaussian, PoissonSampled, filters, training
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_epsilon

HERE = pathlib.Path(__file__).resolve().parent / "results"
EPSILON, DELTA = 0.5, 1e-6
SIGMA, RATE, PLANNED = 1.0, 0.002, 1500
SLACK = DELTA / 10
# After Okabe and Ito's palette; what is no bound is drawn hollow as well.
STYLE = {"Rényi": "#D55E00", "GDP residue with slack": "#B8860B", "priced box": "#0072B2", "approximate GDP": "0.45"}
LOUDER = 2.5  # of the noise, for a Rényi filter
QUIETER = f"Rényi, {LOUDER:g} times the noise"


def reacting(sigma: float) -> training.Schedule:
    return training.adaptive(sigma, RATE, PLANNED, louder=1, quieter=1)


def largest_mu(epsilon: float, delta: float) -> float:
    """The largest GDP budget, in float64 and from below, whose curve gives at most ``epsilon`` at ``delta``."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(gdp_epsilon(middle, delta)) <= epsilon else (low, middle)
    return low * (1 - 1e-11)


def renyi(schedule: training.Schedule) -> Any:
    plan = training.planned_mechanism(schedule)
    return filters.renyi(EPSILON, DELTA, order=filters.plan_order(plan, DELTA, EPSILON, orders=range(4, 128)))


def all_filters() -> dict[str, tuple[Any, training.Schedule]]:
    """All for (EPSILON, DELTA), decided before training, and the schedules that they are asked with."""
    schedule, quieter = reacting(SIGMA), reacting(LOUDER * SIGMA)
    noises = [sigma for sigma, _ in schedule.levels]
    residue = filters.gdp_residue(largest_mu(EPSILON, (DELTA - SLACK) / (1 - SLACK)), SLACK, steps=PLANNED)
    box = filters.priced_box(sigma=(min(noises), max(noises)), rate=schedule.levels[0][1], epsilon=EPSILON, delta=DELTA)
    return {
        "Rényi": (renyi(schedule), schedule),
        "GDP residue with slack": (training.on_levels(residue, schedule.menu()), schedule),
        "priced box": (box, schedule),
        "approximate GDP": (filters.approximate_gdp(largest_mu(EPSILON, DELTA) ** 2 / 2), schedule),
        QUIETER: (renyi(quieter), quieter),
    }


def run(filter: Any, schedule: training.Schedule, data: Any, seeds: int) -> dict[str, Any]:
    examples = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    network = training.build("linear", data.train_x.shape[1:], data.classes, 0)
    optimizer = optax.sgd(0.3)
    step = training.make_step(network.loss, optimizer, filter, schedule, clip_norm=1.0, physical_batch=128, donate=True)
    measure = training.accuracy(network.logits, data.test_x, data.test_y)
    steps, final, start = [], [], time.process_time()
    for seed in range(seeds):
        state = training.init_state(network.params, optimizer, filter, schedule, training.seeded_keys(seed))
        outcome = training.fit(step, state, examples, steps=50 * PLANNED, evaluate=measure, evaluate_every=100)
        assert outcome.stopped == "budget spent"
        steps.append(len(outcome.records))
        final.append(round(float(outcome.evaluations[-1][1]), 4) if steps[-1] else None)
    guarantee = filter.guarantee
    return {
        "sigmas": [sigma for sigma, _ in schedule.levels],
        "steps": steps,
        "accuracy": final,
        "epsilon": float(guarantee.epsilon(DELTA)),
        "is_bound": bool(guarantee.is_bound),
        "seconds of processor a run": round((time.process_time() - start) / seeds, 1),
    }


def of_a_box(sigma: np.ndarray) -> float:
    """The least epsilon, in steps of 0.0005, whose box admits all steps of the showcase."""

    @jax.jit
    def admitted(box: Any, sigma: jax.Array) -> jax.Array:
        def body(state: Any, one: jax.Array) -> tuple[Any, jax.Array]:
            fits, state = box.update(PoissonSampled(Gaussian(one), 0.01), state)
            return state, fits

        return jax.lax.scan(body, box.init(), sigma)[1].all()

    with jax.enable_x64(True):
        for epsilon in np.arange(1.2275, 1.26, 0.0005):
            box = filters.priced_box(sigma=(sigma.min(), sigma.max()), rate=0.01, epsilon=float(epsilon), delta=1e-5)
            if admitted(box, jnp.asarray(sigma)):
                return float(box.guarantee.epsilon(1e-5))
    raise ArithmeticError("no box admits the showcase")


def showcase() -> dict[str, Any]:
    """Epsilon of 3,650 adaptive steps under each filter."""
    menu = json.loads((HERE / "menu_table.json").read_text())["rows"]["showcase, finer"]["epsilon"]
    residue = json.loads((HERE / "residue_showcase.json").read_text())
    sigma = 1.5 + np.sin(np.pi / 3650 * 150 * np.ceil(np.arange(1, 3651) / 150))
    whole = float(np.sum(0.01**2 * np.expm1(sigma**-2) / 2))
    return {
        "Rényi": menu["renyi"],
        "GDP residue with slack": residue["epsilon"],
        "priced box": of_a_box(sigma),
        "approximate GDP": float(filters.approximate_gdp(whole).guarantee.epsilon(1e-5)),
        "fixed in advance": menu["fixed schedule"],
    }


def up(value: float) -> str:
    """Four decimals, rounded up."""
    return f"{np.ceil(1e4 * value) / 1e4:.4f}"


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
    widest = max(np.mean(report["filters"][name]["steps"]) for name in STYLE)
    left.axvline(floor, color="0.35", linestyle=":", linewidth=1.5, zorder=0)
    left.annotate(
        f"these steps fixed in advance: {up(floor)}", (floor, 3.55), (5, 0), textcoords="offset points",
        fontsize=9, color="0.35", va="center",
    )  # fmt: skip
    other = report["filters"][QUIETER]
    suited = f"refuses the first step; {LOUDER:g} times the noise:\n{np.mean(other['steps']):,.0f} steps, "
    suited += f"{100 * np.mean(other['accuracy']):.1f} %"
    for place, (name, color) in zip(places, STYLE.items(), strict=True):
        row, value = report["filters"][name], report["showcase"][name]
        proven = row["is_bound"]
        fill, line = (color, "-") if proven else ("white", "--")
        left.plot([value, floor], [place, place], color=color, linewidth=3, linestyle=line, zorder=1)
        left.plot(value, place, "o", markersize=11, markerfacecolor=fill, markeredgecolor=color, markeredgewidth=2)
        left.annotate(
            f"{up(value)}" if proven else f"{up(value)}, no bound", (max(value, floor), place),
            (10 if value > floor else 5, 0), textcoords="offset points", fontsize=10, va="center",
        )  # fmt: skip
        steps = np.mean(row["steps"])
        right.barh(place, steps, color=fill, edgecolor=color, linestyle=line, height=0.62, linewidth=1.5)
        note = f"{steps:,.0f} steps, {100 * np.mean(row['accuracy']):.1f} %" if steps else suited
        inside = steps > 0.4 * widest
        right.annotate(
            note, (steps, place), (-6 if inside else 6, 0), textcoords="offset points", va="center",
            ha="right" if inside else "left", fontsize=10, color="white" if inside and proven else "0.2",
        )  # fmt: skip
    left.set_yticks(places, list(STYLE))
    left.tick_params("y", length=0)
    left.set(xlim=(1.18, 1.37), xticks=(1.2, 1.25, 1.3, 1.35), ylim=(-0.6, 3.8), xlabel="epsilon at delta 1e-5")
    left.set_title("What 3,650 adaptive steps cost", fontsize=11, loc="left")
    right.set(yticks=[], ylim=(-0.6, 3.8), xlabel=f"steps until the filter refuses, mean of {report['seeds']} runs")
    right.set_title(f"What epsilon {EPSILON:g} buys: DP-SGD on Adult", fontsize=11, loc="left")
    for axes in (left, right):
        axes.spines[["top", "right", "left"]].set_visible(False)
    right.spines["left"].set_visible(True)
    figure.savefig(path, dpi=180)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="run one filter of the right side anew")
    parser.add_argument("--path", help="folder of Adult's files")
    parser.add_argument("--redraw", action="store_true", help="draw the numbers that are there")
    options = parser.parse_args()
    file = HERE / "headline.json"
    if options.redraw:
        draw(json.loads(file.read_text()), HERE / "headline.png")
        return
    data = training.load("adult", options.path)
    report: dict[str, Any]
    if options.only:
        report = json.loads(file.read_text())
    else:
        report = {
            "machine": about("optax", "flax"),
            "epsilon": EPSILON,
            "delta": DELTA,
            "rate": RATE,
            "slack": SLACK,
            "seeds": options.seeds,
            "accuracy of guessing the commoner class": round(
                float(np.bincount(data.test_y).max() / len(data.test_y)), 4
            ),
            "showcase": showcase(),
            "filters": {},
        }
    for name, (filter, schedule) in all_filters().items():
        if options.only not in (None, name):
            continue
        report["filters"][name] = row = run(filter, schedule, data, 1 if name == QUIETER else options.seeds)
        print(f"{name}: {np.mean(row['steps']):.0f} steps, accuracy {row['accuracy']}", row["epsilon"], flush=True)
        jax.clear_caches()
    file.write_text(json.dumps(report, indent=1) + "\n")
    draw(report, HERE / "headline.png")


if __name__ == "__main__":
    main()
