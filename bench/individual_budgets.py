"""What individual budgets buy on Adult and MNIST: more steps, at the same worst-case guarantee as a common budget.

Run with ``python bench/individual_budgets.py --adult FOLDER --mnist FOLDER``; writes
``results/individual_budgets.json`` and ``individual_budgets.png``. One priced menu with one budget serves both sides.
With the common budget everybody pays for the clip norm, and the run ends when it is spent. With individual budgets each
example pays for its own clipped gradient norm, and the run goes on.

The histograms show what examples have spent. That is published here because the data are public: in a private run it
must never leave the program (see ``jaxacct.filters.individual``).
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

EPSILON, DELTA, RATE, SIGMA, SPAN = 1.0, 1e-5, 0.05, 3.0, 6.0
CLIP, MOMENTUM, RATES = 1.0, 0.9, (0.25, 0.5, 1.0, 2.0)
SPENT = 1 - 1 / 200  # of the budget: less is left than a step at the clip norm takes
BINS = np.linspace(0, 1, 41)


def features(x: np.ndarray) -> jnp.ndarray:
    """Rows of length 1 with a constant beside them."""
    x = x.reshape(len(x), -1)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)
    return jnp.asarray(np.concatenate([x, np.ones((len(x), 1), np.float32)], 1))


def loss(weights: jax.Array, example: Any) -> jax.Array:
    x, y, _ = example
    return optax.softmax_cross_entropy_with_integer_labels(x @ weights, y)


def norms(weights: jax.Array, data: Any) -> jax.Array:
    """||p - y|| ||x||: the gradient of a linear layer is an outer product. At least what the data say: the clip norm
    where the budget is a common one, because then everybody pays for that."""
    x, y, least = data
    error = jax.nn.softmax(x @ weights) - jax.nn.one_hot(y, weights.shape[1])
    return jnp.maximum(jnp.linalg.norm(error, axis=1) * jnp.linalg.norm(x, axis=1), least)


class Lab:
    """One data set, one ledger, one compiled step for both sides."""

    def __init__(self, name: str, folder: pathlib.Path, menu: list[Any]) -> None:
        data = training.load(name, folder)
        self.size, self.held_out_size = len(data.train_y), len(data.test_y)
        self.data = features(data.train_x), jnp.asarray(data.train_y)
        held_x, held_y = features(data.test_x), jnp.asarray(data.test_y)
        self.ledger = filters.individual_priced_menu(menu, examples=self.size, epsilon=EPSILON, delta=DELTA)
        price = int(self.ledger.common.price(PoissonSampled(Gaussian(SIGMA), np.float32(RATE))))
        self.steps = int(self.ledger.common.budget) // price
        self.optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=1.0, momentum=MOMENTUM)
        self.step = training.make_individual_step(
            loss, self.optimizer, self.ledger, clip_norm=CLIP, physical_batch=256, norms=norms, donate=True
        )
        self.weights = jnp.zeros((self.data[0].shape[1], int(self.data[1].max()) + 1))
        self.accuracy = jax.jit(lambda w: ((held_x @ w).argmax(1) == held_y).mean())
        self.exhausted = jax.jit(lambda ledgers: (self.ledger.fraction(ledgers) > SPENT).mean())

    def run(self, least: float, steps: int, rate: float, seed: int) -> dict[str, Any]:
        """A run: accuracy after every step, and what everybody has spent."""
        state = training.init_individual(self.weights, self.optimizer, self.ledger, training.seeded_keys(seed))
        state.opt_state.hyperparams["learning_rate"] = jnp.float32(rate)
        data = (*self.data, jnp.full(self.size, least, jnp.float32))
        found: dict[str, Any] = {"accuracy": [], "exhausted": [], "histograms": []}
        for number in range(1, steps + 1):
            state, _ = self.step(state, data, SIGMA, RATE)
            found["accuracy"].append(self.accuracy(state.params))
            found["exhausted"].append(self.exhausted(state.ledgers))
            if number in (self.steps, steps):
                share = np.asarray(self.ledger.fraction(state.ledgers))
                found["histograms"].append(np.histogram(np.minimum(share, 1), BINS)[0].tolist())
        return {key: np.asarray(value) for key, value in found.items()}


def measure(name: str, folder: pathlib.Path, menu: list[Any], seeds: int, times: int) -> dict[str, Any]:
    lab = Lab(name, folder, menu)
    # Chosen for the common budget, on the held-out data (declared public), with seeds of its own; then used for both.
    sweep = {rate: float(lab.run(CLIP, lab.steps, rate, 100)["accuracy"][-1]) for rate in RATES}
    rate = max(sweep, key=lambda r: sweep[r])
    rows: dict[str, Any] = {}
    for side, least, length in (("common", CLIP, lab.steps), ("individual", 0.0, times * lab.steps)):
        start = time.perf_counter()
        runs = [lab.run(least, length, rate, seed) for seed in range(seeds)]
        accuracy = np.stack([run["accuracy"] for run in runs])
        rows[side] = {
            "steps": length,
            "accuracy": np.round(accuracy.mean(0), 4).tolist(),
            "last_accuracy": round(float(accuracy[:, -1].mean()), 4),
            "last_accuracy_each": np.round(accuracy[:, -1], 4).tolist(),
            "exhausted": np.round(runs[0]["exhausted"], 4).tolist(),
            "histogram_at_the_common_end": runs[0]["histograms"][0].tolist(),
            "histogram_at_the_end": runs[0]["histograms"][-1].tolist(),
            "seconds": round(time.perf_counter() - start, 1),
        }
        print(name, side, length, rows[side]["last_accuracy_each"], flush=True)
    return {
        "examples": lab.size,
        "held_out": lab.held_out_size,
        "learning_rates": sweep,
        "learning_rate": rate,
        "certified_epsilon": float(lab.ledger.guarantee.epsilon(DELTA)),
        "delta": DELTA,
        "first_exhausted_step": int(np.argmax(np.array(rows["individual"]["exhausted"]) > 0)) + 1,
        **rows,
    }


def draw(found: dict[str, Any], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(found)
    figure, axes = plt.subplots(2, len(names), figsize=(5.2 * len(names), 6.4), squeeze=False, constrained_layout=True)
    common, own = "#b5651d", "#1f5fa8"
    for column, name in enumerate(names):
        row, top, low = found[name], *axes[:, column]
        for side, colour in (("individual", own), ("common", common)):
            accuracy = np.array(row[side]["accuracy"])
            top.plot(np.arange(1, len(accuracy) + 1), 100 * accuracy, color=colour, label=f"{side} budget")
        end = row["common"]["steps"]
        top.plot([end], [100 * row["common"]["last_accuracy"]], "o", color=common)
        top.annotate("common budget spent", (end, 100 * row["common"]["last_accuracy"]), (6, -16),
                     textcoords="offset points", fontsize=8, color=common)  # fmt: skip
        last = np.array(row["individual"]["accuracy"])
        settled = np.array(row["common"]["accuracy"])[end // 4 :].min()
        top.set_ylim(100 * settled - 1, 100 * last.max() + 0.5)
        top.set_title(
            f"{'Adult' if name == 'adult' else 'MNIST (8,000 images)'}: linear model, "
            f"ε = {row['certified_epsilon']:.2f} at δ = 1e-5"
        )
        top.set_xlabel("step")
        top.set_ylabel("held-out accuracy, %")
        gone = top.twinx()
        exhausted = 100 * np.array(row["individual"]["exhausted"])
        gone.fill_between(np.arange(1, len(exhausted) + 1), exhausted, color="0.85", zorder=-1)
        gone.set_ylim(0, 100)
        gone.set_ylabel("examples that have spent everything, %", color="0.45")
        top.set_zorder(gone.get_zorder() + 1)
        top.patch.set_visible(False)
        top.legend(loc="lower right", frameon=False)
        middle = (BINS[1:] + BINS[:-1]) / 2
        for key, colour, label in (
            ("histogram_at_the_common_end", "#7fb2e5", f"after {end} steps (the common budget's last)"),
            ("histogram_at_the_end", own, f"after {row['individual']['steps']} steps"),
        ):
            share = 100 * np.array(row["individual"][key]) / row["examples"]
            low.step(100 * middle, share, where="mid", color=colour, label=label)
            low.fill_between(100 * middle, share, step="mid", color=colour, alpha=0.25)
        low.axvline(100, color=common, linestyle="--", label=f"everybody, common budget, after {end} steps")
        low.set_xlabel("budget that an example has spent, %")
        low.set_ylabel("examples, %")
        low.set_yscale("log")
        low.legend(frameon=False, fontsize=8, loc="upper center")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--adult", type=pathlib.Path)
    parser.add_argument("--mnist", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--times", type=int, default=4, help="steps of the individual run over those of the common one")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results")
    options = parser.parse_args()
    menu = filters.gaussian_menu((SIGMA, SPAN * SIGMA), RATE, sigmas=40)
    found = {
        name: measure(name, folder, menu, options.seeds, options.times)
        for name, folder in (("adult", options.adult), ("mnist", options.mnist))
        if folder is not None
    }
    draw(found, options.results / "individual_budgets.png")
    setting = {
        "sigma": SIGMA,
        "rate": RATE,
        "clip_norm": CLIP,
        "momentum": MOMENTUM,
        "menu_reaches_to": SPAN * SIGMA,
        "target_epsilon": EPSILON,
    }
    text = json.dumps({"about": about("optax"), "setting": setting, **found}) + "\n"
    (options.results / "individual_budgets.json").write_text(text)
    for name, row in found.items():
        print(name, *((side, row[side]["steps"], row[side]["last_accuracy"]) for side in ("common", "individual")))


if __name__ == "__main__":
    main()
