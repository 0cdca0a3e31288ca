"""The README's picture: what each filter says of the same adaptive steps, and how many it admits, by noise.

Run with ``python bench/headline.py``; it writes ``bench/results/headline.json`` and ``headline.png``. Above: the
epsilon of 3,650 steps chosen with full adaptivity (Rényi and the floor are from ``menu_table.py``). Below: how many
steps of one noise multiplier each filter admits to (EPSILON, DELTA), one ``sampled_gaussian`` for all noises, a Rényi
filter of its own best order for each of them, beside the most that an exact account fixed in advance allows.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from machine import about

import jaxacct
from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.filters.additive.renyi import RenyiFilter
from jaxacct.filters.prices.table import TableFilter

HERE = pathlib.Path(__file__).resolve().parent / "results"
EPSILON, DELTA, RATE = 0.5, 1e-6, 0.002
NOISES = tuple(round(float(x), 4) for x in np.geomspace(1.0, 2.0, 11))
MOST_STEPS = 10**6
OURS = "sampled_gaussian"
# After Okabe and Ito's palette.
COLORS = {"fixed in advance": "0.35", OURS: "#0072B2", "Rényi filter": "#D55E00"}


def query(sigma: float) -> PoissonSampled:
    return PoissonSampled(Gaussian(sigma), RATE)


def box() -> TableFilter:
    return filters.sampled_gaussian(sigma=(NOISES[0], NOISES[-1]), rate=RATE, epsilon=EPSILON, delta=DELTA)


def renyi(sigma: float) -> RenyiFilter:
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
        OURS: [admitted(one, sigma) for sigma in NOISES],
        "Rényi filter": [admitted(renyi(sigma), sigma) for sigma in NOISES],
    }


def of_the_filter(sigma: np.ndarray) -> float:
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
    sigma = 1.5 + np.sin(np.pi / 3650 * 150 * np.ceil(np.arange(1, 3651) / 150))
    return {"Rényi filter": menu["renyi"], OURS: of_the_filter(sigma), "fixed in advance": menu["fixed schedule"]}


def up(value: float) -> str:
    """Four decimals, rounded up."""
    return f"{np.ceil(1e4 * value) / 1e4:.4f}"


def draw(report: dict[str, Any], path: pathlib.Path) -> None:
    """One above the other, in letters that a phone's width leaves readable."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 6.6))
    figure.set_layout_engine("constrained", h_pad=0.12)
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(0.6, 1))
    _epsilons(report["showcase"], above)
    _steps(report, below)
    for axes in (above, below):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(labelsize=13)
    figure.savefig(path, dpi=125)


def _epsilons(values: dict[str, float], axes: Any) -> None:
    rows = [(name, values[name], color) for name, color in COLORS.items()]
    floor = values["fixed in advance"]
    axes.axvline(floor, color=COLORS["fixed in advance"], linestyle=":", linewidth=2, zorder=0)
    for place, (name, value, color) in enumerate(reversed(rows)):
        axes.plot([floor, value], [place, place], color=color, linewidth=5, zorder=1)
        axes.plot(value, place, "o", markersize=13, color=color)
        axes.annotate(
            f"{name}: {up(value)}", (value, place), (12, 0), textcoords="offset points", fontsize=14, color=color,
            va="center",
        )  # fmt: skip
    axes.set(xlim=(1.205, 1.40), xticks=(1.2157, 1.25, 1.3, 1.35), ylim=(-0.6, 2.5), yticks=[])
    axes.set_xticks((1.25, 1.3, 1.35))
    axes.set_xlabel("epsilon at delta 1e-5", fontsize=13)
    axes.set_title("What 3,650 adaptive steps cost", fontsize=16, loc="left", fontweight="bold")


def _steps(report: dict[str, Any], axes: Any) -> None:
    noises = report["noises"]
    for name, color in COLORS.items():
        line = ":" if name == "fixed in advance" else "-"
        axes.plot(noises, report["steps"][name], color=color, linestyle=line, linewidth=3.5)
    # Each name stands beside its line, where the lines are apart.
    for name, noise, steps, side in (
        ("fixed in advance", 1.52, 7_900, "right"), (OURS, 1.01, 800, "left"), ("Rényi filter", 1.56, 4_200, "left"),
    ):  # fmt: skip
        axes.text(noise, steps, name, fontsize=13, color=COLORS[name], ha=side)
    most = max(report["steps"]["fixed in advance"])
    axes.set(xlim=(noises[0] - 0.015, noises[-1] + 0.02), ylim=(-0.02 * most, 1.08 * most))
    axes.set_yticks([0, 5000, 10000], ["0", "5,000", "10,000"])
    axes.grid(axis="y", color="0.92")
    axes.set_xlabel("noise multiplier", fontsize=13)
    axes.set_title(f"Steps of DP-SGD that epsilon {EPSILON:g} buys", fontsize=16, loc="left", fontweight="bold")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--redraw", action="store_true", help="draw the numbers that are there")
    options = parser.parse_args()
    file = HERE / "headline.json"
    if not options.redraw:
        report = {
            "machine": about(),
            "epsilon": EPSILON,
            "delta": DELTA,
            "rate": RATE,
            "showcase": showcase(),
            "noises": NOISES,
            "steps": steps_by_noise(),
        }
        file.write_text(json.dumps(report, indent=1) + "\n")
    draw(json.loads(file.read_text()), HERE / "headline.png")


if __name__ == "__main__":
    main()
