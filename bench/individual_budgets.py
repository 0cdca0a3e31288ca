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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from machine import about

from jaxacct import Gaussian, PoissonSampled, filters, training

EPSILON, DELTA, RATE, SIGMA, SPAN = 1.0, 1e-5, 0.05, 3.0, 6.0
SPENT = 1 - 1 / 200  # of the budget: less is left than a step at the clip norm takes
BINS = np.linspace(0, 1, 41)


class Recipe(NamedTuple):
    """Chosen for the common budget's run, by its accuracy on the held-out data, and used for both."""

    clip_norm: float
    learning_rate: float
    momentum: float = 0.9


RECIPES = {"adult": Recipe(0.5, 1.0), "mnist": Recipe(0.5, 1.0)}


def features(x: np.ndarray) -> jnp.ndarray:
    """Rows of length 1 with a constant beside them."""
    x = x.reshape(len(x), -1)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)
    return jnp.asarray(np.concatenate([x, np.ones((len(x), 1), np.float32)], 1))


def loss(weights: jax.Array, example: Any) -> jax.Array:
    x, y = example
    return optax.softmax_cross_entropy_with_integer_labels(x @ weights, y)


def norms(weights: jax.Array, data: Any) -> jax.Array:
    """||p - y|| ||x||: the gradient of a linear layer is an outer product."""
    x, y = data
    error = jax.nn.softmax(x @ weights) - jax.nn.one_hot(y, weights.shape[1])
    return jnp.linalg.norm(error, axis=1) * jnp.linalg.norm(x, axis=1)


class Everybody(NamedTuple):
    """The common budget behind the individual filter's methods: all pay for the clip norm, all stop at once."""

    ledger: Any

    def init(self) -> Any:
        return self.ledger.init()

    def update(self, query: Any, norms: jax.Array, state: Any) -> Any:
        return self.ledger.update(query, jnp.ones_like(norms), state)

    def bounds(self, query: Any, norms: jax.Array, state: Any) -> jax.Array:
        allowed = self.ledger.bounds(query, jnp.ones_like(norms), state)
        return jnp.where(jnp.isfinite(norms), jnp.minimum(allowed, norms), 0.0)


def player(data: Any, held_out: Any, ledger: Any, filter: Any, recipe: Recipe, steps: int) -> Any:
    """A run for a seed: accuracy on the held-out data after every step, and how much everybody had spent then."""
    weights = jnp.zeros((data[0].shape[1], int(data[1].max()) + 1))
    optimizer = optax.sgd(recipe.learning_rate, momentum=recipe.momentum)
    step = training.make_individual_step(
        loss, optimizer, filter, clip_norm=recipe.clip_norm, physical_batch=256, norms=norms
    )

    @jax.jit
    def run(state: Any, data: Any, held_out: Any) -> Any:
        def body(state: Any, _: None) -> Any:
            state, _ = step(state, data, SIGMA, RATE)
            right = (held_out[0] @ state.params).argmax(1) == held_out[1]
            share = ledger.fraction(state.ledgers)
            return state, (right.mean(), (share > SPENT).mean(), jnp.histogram(share, BINS)[0])

        return jax.lax.scan(body, state, None, length=steps)[1]

    def play(seed: int) -> dict[str, np.ndarray]:
        start = training.init_individual(weights, optimizer, filter, training.seeded_keys(seed))
        found = run(start, data, held_out)
        return dict(zip(("accuracy", "spent", "histogram"), map(np.asarray, found), strict=True))

    return play


def measure(name: str, folder: pathlib.Path, menu: list[Any], seeds: int, times: int) -> dict[str, Any]:
    dataset = training.load(name, folder)
    data = features(dataset.train_x), jnp.asarray(dataset.train_y)
    held_out = features(dataset.test_x), jnp.asarray(dataset.test_y)
    ledger = filters.individual_priced_menu(menu, examples=len(dataset.train_y), epsilon=EPSILON, delta=DELTA)
    price = int(ledger.common.price(PoissonSampled(Gaussian(SIGMA), np.float32(RATE))))
    steps = int(ledger.common.budget) // price
    recipe, rows = RECIPES[name], {}
    for side, filter, length in (("common", Everybody(ledger), steps), ("individual", ledger, times * steps)):
        start = time.perf_counter()
        play = player(data, held_out, ledger, filter, recipe, length)
        runs = [play(seed) for seed in range(seeds)]
        accuracy = np.stack([run["accuracy"] for run in runs])
        rows[side] = {
            "steps": length,
            "accuracy": np.round(accuracy.mean(0), 4).tolist(),
            "last_accuracy": round(float(accuracy[:, -1].mean()), 4),
            "deviation": round(float(accuracy[:, -1].std(ddof=1)), 4) if seeds > 1 else None,
            "last_accuracy_each": np.round(accuracy[:, -1], 4).tolist(),
            "exhausted": np.round(runs[0]["spent"], 4).tolist(),
            "histogram_at_the_common_end": runs[0]["histogram"][steps - 1].tolist(),
            "histogram_at_the_end": runs[0]["histogram"][-1].tolist(),
            "seconds": round(time.perf_counter() - start, 1),
        }
    epsilon = float(ledger.guarantee.epsilon(DELTA))
    return {
        "examples": len(dataset.train_y),
        "held_out": len(dataset.test_y),
        "recipe": recipe._asdict(),
        "certified_epsilon": epsilon,
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
    setting = {"sigma": SIGMA, "rate": RATE, "menu_reaches_to": SPAN * SIGMA, "target_epsilon": EPSILON}
    text = json.dumps({"about": about("optax"), "setting": setting, **found}) + "\n"
    (options.results / "individual_budgets.json").write_text(text)
    for name, row in found.items():
        print(name, *((side, row[side]["steps"], row[side]["last_accuracy"]) for side in ("common", "individual")))


if __name__ == "__main__":
    main()
