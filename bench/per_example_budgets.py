"""What individual budgets buy on Adult and MNIST, at the same worst-case guarantee as a common budget.

Run with ``python bench/per_example_budgets.py --adult FOLDER --mnist FOLDER``; writes
``results/per_example_budgets.json`` and ``per_example_budgets.png``. A linear model learns by full gradients, clipped
and with Gaussian noise, in a number of steps fixed in advance, under a GDP filter (exact, a bound). Three ways to spend
the same budget:

- ``common``: everybody pays for the clip norm in every step.
- ``drop-out``: everybody pays for their own clipped norm, and takes no part when nothing is left. The noise is less
  than the common budget would bear by the factor sqrt(share), so that who is always at the clip norm lasts for that
  share of the steps.
- ``paced``: everybody pays for their own norm, clipped to what an equal share of the rest of their own budget over the
  remaining steps pays for. Nobody drops out, and who had short gradients may have longer ones later.

Each way is tuned by itself (clip norm, learning rate, share) for held-out accuracy, with seeds of its own; held-out
data are declared public. Fresh seeds, the same for all ways, are then reported. The histograms show what examples have
spent. That is published here because the data are public: in a private run it must never leave the program (see
``jaxacct.filters.per_example``). Sums are taken in floating point; ``jaxacct.training`` is exact there.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from machine import about

from jaxacct import Gaussian, filters, training
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_epsilon

DELTA, STEPS, MOMENTUM = 1e-5, 30, 0.9
EPSILON = {"adult": 0.05, "mnist": 1.0}
CLIPS, SHARES = (0.15, 0.35, 0.7), (0.8,)
RATES = {"adult": (3.0, 10.0, 30.0), "mnist": (10.0, 30.0, 100.0)}
WAYS = ("common", "drop-out", "paced")
BINS = np.linspace(0, 1, 41)


class Setting(NamedTuple):
    clip: float  # norm of a gradient of a row of length at most 1
    rate: float  # learning rate times clip norm
    share: float  # of the steps for which somebody at the clip norm lasts


def features(x: np.ndarray) -> jax.Array:
    """Rows of length at most 1, with a constant among them."""
    x = x.reshape(len(x), -1)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-6)
    return jnp.asarray(np.concatenate([x, np.ones((len(x), 1), np.float32)], 1) / np.float32(2**0.5))


def largest_mu(epsilon: float) -> float:
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if float(gdp_epsilon(middle, DELTA)) <= epsilon else (low, middle)
    return low * (1 - 1e-11)


class Lab:
    """A data set and a filter with one ledger for each example."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        data = training.demo.load_data(name, folder)
        self.x, self.y, self.classes = features(data.train_x), jnp.asarray(data.train_y), data.classes
        self.held_x, self.held_y = features(data.test_x), jnp.asarray(data.test_y)
        self.mu = largest_mu(EPSILON[name])
        self.filter = filters.per_example(filters.gdp(self.mu), examples=len(self.y))

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def run(self, way: str, setting: Setting, key: jax.Array) -> dict[str, jax.Array]:
        """Accuracy after every step, the share of examples without a full step left, and what each has spent."""
        clip, rate, share = setting
        # A hair more noise than that, so that roundings do not cost the last step.
        sigma = clip * jnp.sqrt(STEPS * share) / self.mu * (1 + 1e-5)
        lengths, classes = jnp.linalg.norm(self.x, axis=1), self.classes

        def step(carry: Any, now: Any) -> Any:
            weights, velocity, ledgers = carry
            number, key = now
            error = jax.nn.softmax(self.x @ weights) - jax.nn.one_hot(self.y, classes)
            norms = jnp.linalg.norm(error, axis=1) * lengths
            wanted = jnp.minimum(norms, clip)
            if way == "paced":
                left = self.filter.remaining(ledgers) * sigma
                wanted = jnp.minimum(norms, left / jnp.sqrt(STEPS - number) * (1 - 1e-6))
            charged = jnp.full_like(norms, clip) if way == "common" else wanted
            query = Gaussian(sigma, clip * STEPS**0.5)
            _, ledgers = self.filter.update(query, charged, ledgers)
            length = jnp.minimum(wanted, self.filter.bounds(query, charged, ledgers))
            total = self.x.T @ (error * (length / jnp.maximum(norms, 1e-9))[:, None])
            gradient = (total + sigma * jax.random.normal(key, total.shape)) / len(self.y)
            velocity = MOMENTUM * velocity + gradient
            weights = weights - rate / clip * velocity
            right = (self.held_x @ weights).argmax(1) == self.held_y
            return (weights, velocity, ledgers), (right.mean(), (length < 0.999 * wanted).mean())

        weights = jnp.zeros((self.x.shape[1], classes))
        start = (weights, weights, self.filter.init())
        (_, _, ledgers), (accuracy, out) = jax.lax.scan(
            step, start, (jnp.arange(STEPS, dtype=jnp.float32), jax.random.split(key, STEPS))
        )
        spent = (self.filter.spent(ledgers) / self.mu) ** 2  # mu^2 is what adds up
        return {"accuracy": accuracy, "out": out, "spent": spent}


def settings(name: str, way: str) -> list[Setting]:
    shares = SHARES if way == "drop-out" else (1.0,)
    return [Setting(clip, rate, share) for clip in CLIPS for rate in RATES[name] for share in shares]


def measure(name: str, folder: pathlib.Path, seeds: int, tuning: int) -> dict[str, Any]:
    lab, rows = Lab(name, folder), {}
    for way in WAYS:
        start = time.perf_counter()
        scores = {}
        for setting in settings(name, way):
            tried = [lab.run(way, setting, jax.random.key(1000 + seed))["accuracy"][-1] for seed in range(tuning)]
            scores[setting] = float(np.mean(tried))
        best = max(scores, key=lambda one: scores[one])
        runs = [jax.tree.map(np.asarray, lab.run(way, best, jax.random.key(seed))) for seed in range(seeds)]
        accuracy, spent = np.stack([run["accuracy"] for run in runs]), runs[0]["spent"]
        assert spent.max() <= 1 + 1e-6
        rows[way] = {
            "setting": best._asdict(),
            "tuned_accuracy": round(scores[best], 4),
            "accuracy": np.round(accuracy.mean(0), 4).tolist(),
            "last_accuracy_each": np.round(accuracy[:, -1], 4).tolist(),
            "out": np.round(np.mean([run["out"] for run in runs], 0), 4).tolist(),
            "mean_spent": round(float(spent.mean()), 4),
            "histogram": np.histogram(np.minimum(spent, 1), BINS)[0].tolist(),
            "seconds": round(time.perf_counter() - start, 1),
        }
        print(name, way, best, rows[way]["last_accuracy_each"], rows[way]["seconds"], flush=True)
    common = np.array(rows["common"]["last_accuracy_each"])
    for way in WAYS:
        each = np.array(rows[way]["last_accuracy_each"])
        rows[way]["last_accuracy"] = round(float(each.mean()), 4)
        rows[way]["spread"] = round(float(each.std(ddof=1)), 4)
        gain = each - common
        rows[way]["gain"] = round(float(gain.mean()), 4)
        rows[way]["gain_standard_error"] = round(float(gain.std(ddof=1) / len(gain) ** 0.5), 4)
    return {
        "examples": len(lab.y),
        "held_out": len(lab.held_y),
        "seeds": seeds,
        "tuning_seeds": tuning,
        "certified_epsilon": float(lab.filter.guarantee.epsilon(DELTA)),
        **rows,
    }


def draw(found: dict[str, Any], path: pathlib.Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    looks = {"common": ("#D55E00", "--"), "drop-out": ("0.45", ":"), "paced": ("#0072B2", "-")}
    titles = {"adult": "Adult", "mnist": "MNIST (8,000 images)"}
    figure = Figure(figsize=(4.9 * len(found), 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(found), squeeze=False)
    steps = np.arange(1, STEPS + 1)
    for column, (name, row) in enumerate(found.items()):
        top, low = axes[:, column]
        for way, (color, line) in looks.items():
            one = row[way]
            label = f"{way}: {100 * one['last_accuracy']:.2f} ± {100 * one['spread']:.2f} %"
            top.plot(steps, 100 * np.array(one["accuracy"]), color=color, linestyle=line, linewidth=2, label=label)
            share = 100 * np.array(one["histogram"]) / row["examples"]
            if way == "common":
                low.axvline(100, color=color, linestyle=line, linewidth=2, label="common: everybody")
            else:
                low.stairs(share, 100 * BINS, color=color, linestyle=line, linewidth=2, label=way)
        last = [100 * row[way]["accuracy"][-1] for way in WAYS]
        top.set_ylim(min(last) - 6, max(last) + 1.5)
        top.set_title(f"{titles[name]}, linear, ε = {row['certified_epsilon']:.2f} at δ = 1e-5", fontsize=11)
        top.set(xlabel="step", ylabel="held-out accuracy, %")
        top.legend(frameon=False, loc="lower right", fontsize=9)
        low.set(xlabel="budget that an example has spent at the end, %", ylabel="examples, %", yscale="log")
        low.legend(frameon=False, fontsize=9, loc="upper center")
        for one in (top, low):
            one.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description="What individual budgets buy.")
    parser.add_argument("--adult", type=pathlib.Path)
    parser.add_argument("--mnist", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuning", type=int, default=2, help="seeds with which settings are chosen")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results")
    options = parser.parse_args()
    folders = {"adult": options.adult, "mnist": options.mnist}
    found = {name: measure(name, at, options.seeds, options.tuning) for name, at in folders.items() if at is not None}
    draw(found, options.results / "per_example_budgets.png")
    report = {"about": about(), "delta": DELTA, "steps": STEPS, "momentum": MOMENTUM, **found}
    (options.results / "per_example_budgets.json").write_text(json.dumps(report) + "\n")
    for name, row in found.items():
        for way in WAYS:
            print(name, way, *(row[way][key] for key in ("last_accuracy", "gain", "gain_standard_error")))


if __name__ == "__main__":
    main()
