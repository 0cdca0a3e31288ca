"""The README's picture: what each filter says of the same adaptive steps, and how many it admits, by noise.

Run with ``python bench/headline.py --path FOLDER``, the folder of Adult's files (OpenML without one); it writes
``bench/results/headline.json`` and ``headline.png``. Above: the epsilon of 3,650 steps chosen with full adaptivity
(Rényi and the floor from the results of ``menu_table.py``, the residue from ``residue_showcase.py``); an epsilon that
is no bound is drawn hollow. Below: how many steps of one noise multiplier each filter admits to (EPSILON, DELTA), one
box for all noises, a Rényi filter of its own best order for each of them, beside the most that an exact account fixed
in advance allows. Where there is a mark a linear model was trained on Adult until the filter refused.
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

import jaxacct
from jaxacct import Gaussian, PoissonSampled, filters, training

HERE = pathlib.Path(__file__).resolve().parent / "results"
EPSILON, DELTA, RATE = 0.5, 1e-6, 0.002
NOISES = tuple(round(float(x), 4) for x in np.geomspace(1.0, 2.0, 11))
TRAINED = (1.0, 1.4)
MOST_STEPS = 10**6
# After Okabe and Ito's palette; what is no bound is drawn hollow as well.
STYLE = {"Rényi": "#D55E00", "GDP residue with slack": "#B8860B", "priced box": "#0072B2", "approximate GDP": "0.45"}


def query(sigma: float) -> PoissonSampled:
    return PoissonSampled(Gaussian(sigma), RATE)


def box() -> filters.PricedBoxFilter:
    return filters.sampled_gaussian(sigma=(NOISES[0], NOISES[-1]), rate=RATE, epsilon=EPSILON, delta=DELTA)


def renyi(sigma: float) -> filters.RenyiFilter:
    """The order that suits this noise best, which is more than a filter for all of them has."""
    return filters.renyi(EPSILON, DELTA, order=filters.plan_order(query(sigma), DELTA, EPSILON, orders=range(4, 128)))


def admitted(ledger: Any, sigma: float) -> int:
    run = jax.jit(lambda f: filters.halting_scan(lambda n, _: (query(sigma), lambda: n + 1), f, jnp.int32(0)).steps)
    return int(run(ledger))


def in_advance(sigma: float) -> int:
    """The most steps whose certified epsilon, fixed in advance, is at most EPSILON."""
    low, high = 0, MOST_STEPS
    while high - low > 1:
        middle = (low + high) // 2
        fits = float(jaxacct.epsilon(query(sigma), DELTA, steps=middle).upper) <= EPSILON
        low, high = (middle, high) if fits else (low, middle)
    return low


def steps_by_noise() -> dict[str, list[int]]:
    """Steps admitted at each of NOISES."""
    one = box()
    return {
        "fixed in advance": [in_advance(sigma) for sigma in NOISES],
        "priced box": [admitted(one, sigma) for sigma in NOISES],
        "Rényi": [admitted(renyi(sigma), sigma) for sigma in NOISES],
    }


def train(filter: Any, sigma: float, data: Any, seeds: int) -> dict[str, Any]:
    """Runs until the filter refuses, and what they reach on the held-out part."""
    examples = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    schedule = training.constant(sigma, RATE, MOST_STEPS)
    network = training.build("linear", data.train_x.shape[1:], data.classes, 0)
    optimizer = optax.sgd(0.3)
    step = training.make_step(network.loss, optimizer, filter, schedule, clip_norm=1.0, physical_batch=128, donate=True)
    measure = training.accuracy(network.logits, data.test_x, data.test_y)
    steps, final, start = [], [], time.process_time()
    for seed in range(seeds):
        state = training.init_state(network.params, optimizer, filter, schedule, training.seeded_keys(seed))
        outcome = training.fit(step, state, examples, steps=MOST_STEPS, evaluate=measure, evaluate_every=500)
        assert outcome.stopped == "budget spent"
        steps.append(len(outcome.records))
        final.append(round(float(outcome.evaluations[-1][1]), 4) if steps[-1] else None)
    seconds = round((time.process_time() - start) / seeds, 1)
    return {"steps": steps, "accuracy": final, "seconds of processor a run": seconds}


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
            box = filters.sampled_gaussian(
                sigma=(sigma.min(), sigma.max()), rate=0.01, epsilon=float(epsilon), delta=1e-5
            )
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
    """One above the other, in letters that a phone's width leaves readable."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 7.4))
    figure.set_layout_engine("constrained", h_pad=0.12)
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(0.72, 1))
    _epsilons(report["showcase"], above)
    _steps(report, below)
    for axes in (above, below):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(labelsize=12)
    figure.savefig(path, dpi=125)


def _epsilons(values: dict[str, float], axes: Any) -> None:
    floor = values["fixed in advance"]
    axes.axvline(floor, color="0.35", linestyle=":", linewidth=1.5, zorder=0)
    axes.annotate(
        f"fixed in advance: {up(floor)}", (floor, 3.55), (6, 0), textcoords="offset points", fontsize=12, color="0.35",
        va="center",
    )  # fmt: skip
    places = list(range(len(STYLE)))[::-1]
    for place, (name, color) in zip(places, STYLE.items(), strict=True):
        value, proven = values[name], name != "approximate GDP"
        fill, line = (color, "-") if proven else ("white", "--")
        axes.plot([value, floor], [place, place], color=color, linewidth=4, linestyle=line, zorder=1)
        axes.plot(value, place, "o", markersize=13, markerfacecolor=fill, markeredgecolor=color, markeredgewidth=2)
        axes.annotate(
            f"{up(value)}" if proven else f"{up(value)}, not a bound", (max(value, floor), place),
            (12 if value > floor else 6, 0), textcoords="offset points", fontsize=13, va="center",
        )  # fmt: skip
    axes.set_yticks(places, [name.replace(" with", "\nwith") for name in STYLE])
    axes.tick_params("y", length=0)
    axes.set(xlim=(1.18, 1.37), xticks=(1.2, 1.25, 1.3, 1.35), ylim=(-0.6, 3.9))
    axes.set_xlabel("epsilon at delta 1e-5", fontsize=12)
    axes.set_title("What 3,650 adaptive steps cost", fontsize=15, loc="left", fontweight="bold")


def _steps(report: dict[str, Any], axes: Any) -> None:
    def joined(name: str) -> tuple[list[float], list[float]]:
        """The steps at all noises, those at which a model was trained among them."""
        trained = {float(sigma): float(np.mean(row["steps"])) for sigma, row in report["trained"].get(name, {}).items()}
        found = dict(zip(report["noises"], report["steps"][name], strict=True)) | trained
        return sorted(found), [found[sigma] for sigma in sorted(found)]

    axes.plot(*joined("fixed in advance"), color="0.35", linestyle=":", linewidth=2.5, label="fixed in advance")
    for name in ("priced box", "Rényi"):
        axes.plot(*joined(name), color=STYLE[name], linewidth=3.5, label=name)
    axes.fill_between(*joined("priced box"), joined("Rényi")[1], color=STYLE["priced box"], alpha=0.1, linewidth=0)
    last = report["noises"][-1]
    # Above the box's points and below those of the Rényi filter, clear of both lines.
    offsets = {"priced box": [(-4, 44), (-4, 42)], "Rényi": [(10, 10), (14, -4)]}
    for name, rows in report["trained"].items():
        for (x, y), (sigma, row) in zip(offsets[name], rows.items(), strict=False):
            count = float(np.mean(row["steps"]))
            axes.plot(float(sigma), count, "o", markersize=10, color=STYLE[name], clip_on=False, zorder=3)
            text = (
                f"{count:,.0f} steps\n{100 * np.mean(row['accuracy']):.1f} % accurate" if count else "refused at once"
            )
            axes.annotate(
                text, (float(sigma), count), (x, y), textcoords="offset points", fontsize=12, color=STYLE[name],
                ha="right" if name == "priced box" and float(sigma) > 1.0 else "left",
                va="bottom" if name == "priced box" else "center",
            )  # fmt: skip
    axes.set(xlim=(report["noises"][0] - 0.015, last + 0.02), ylim=(0, 1.2 * max(report["steps"]["fixed in advance"])))
    axes.set_yticks([0, 5000, 10000, 15000], ["0", "5,000", "10,000", "15,000"])
    axes.grid(axis="y", color="0.92")
    axes.legend(loc="upper left", frameon=False, fontsize=13, bbox_to_anchor=(0.0, 1.02))
    axes.set_xlabel("noise multiplier", fontsize=12)
    axes.set_title(f"Steps of DP-SGD that epsilon {EPSILON:g} buys", fontsize=15, loc="left", fontweight="bold")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3, help="runs at the least noise; one run at the others")
    parser.add_argument("--path", help="folder of Adult's files")
    parser.add_argument("--below", action="store_true", help="only the lower picture's numbers anew")
    parser.add_argument("--redraw", action="store_true", help="draw the numbers that are there")
    options = parser.parse_args()
    file = HERE / "headline.json"
    if options.redraw:
        draw(json.loads(file.read_text()), HERE / "headline.png")
        return
    data = training.load("adult", options.path)
    guess = float(np.bincount(data.test_y).max() / len(data.test_y))
    report: dict[str, Any] = {
        "machine": about("optax", "flax"),
        "epsilon": EPSILON,
        "delta": DELTA,
        "rate": RATE,
        "accuracy of guessing the commoner class": round(guess, 4),
        "showcase": json.loads(file.read_text())["showcase"] if options.below else showcase(),
        "noises": NOISES,
        "steps": steps_by_noise(),
        "trained": {"priced box": {}, "Rényi": {}},
    }
    for sigma in TRAINED:
        for name, filter in (("priced box", box()), ("Rényi", renyi(sigma))):
            row = train(filter, sigma, data, options.seeds if sigma == TRAINED[0] else 1)
            report["trained"][name][f"{sigma:g}"] = row
            print(name, sigma, row, flush=True)
            file.write_text(json.dumps(report, indent=1) + "\n")
            jax.clear_caches()
    draw(report, HERE / "headline.png")


if __name__ == "__main__":
    main()
