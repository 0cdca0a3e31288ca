"""What ways to draw batches cost a training: time of an epoch, and accuracy at equal epsilon.

    python bench/sampled_training.py [FOLDER WITH MNIST]      # writes bench/results/sampled_training.json

Noise is the least with which `training.plan_budget` fits the planned epochs; accuracies are means over seeds,
with their standard errors. Times are process CPU seconds of an epoch, the median of several, after compilation: what
counts are their ratios. Without a folder, or where it does not exist, only the digits.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxacct import training
from jaxacct.training.samplings import SAMPLINGS

RESULTS = pathlib.Path(__file__).parent / "results" / "sampled_training.json"
EPSILON, DELTA, RATE = 3.0, 1e-5, 0.1
PLANS = {"digits": ("mlp", 20, 5, 0.15), "mnist": ("linear", 20, 3, 0.1)}
"""Network, epochs, seeds and learning rate."""


def trained(network, dataset, plan, seed: int, rate: float, data) -> tuple[float, float]:
    """Held-out accuracy, and CPU seconds of the median epoch."""
    steps = plan.schedule.steps
    optimizer = optax.sgd(optax.cosine_decay_schedule(rate, steps, alpha=0.05), momentum=0.9)
    step = training.make_step(network.loss, optimizer, plan.filter, plan.schedule, clip_norm=1.0, sampler=plan.sampler)
    state = training.init_state(network.params, optimizer, plan.filter, plan.schedule, training.seeded_keys(seed))
    epoch, spans = round(1.0 / RATE), []
    state, _ = step(state, data)
    begin = time.process_time()
    for number in range(1, steps):
        state, report = step(state, data)
        if number % epoch == 0:
            jax.block_until_ready(state)
            spans.append(time.process_time() - begin)
            begin = time.process_time()
    if not bool(report.admitted):
        raise SystemExit("the filter refused a planned step")
    return training.accuracy(network.logits, dataset.test_x, dataset.test_y)(state.params), statistics.median(spans)


def main() -> None:
    """Prints a row for each, and writes them."""
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    rows = []
    for name, (model, epochs, seeds, rate) in PLANS.items():
        if name == "mnist" and (folder is None or not folder.exists()):
            print("mnist: no folder with its files, skipped")
            continue
        dataset = training.demo.load_data(name, folder if name == "mnist" else None)
        size = len(dataset.train_y)
        network = training.demo.build_network(model, dataset.train_x.shape[1:], dataset.classes, 0)
        data = (jnp.asarray(dataset.train_x), jnp.asarray(dataset.train_y))
        for sampling in SAMPLINGS:
            plan = training.plan_budget(
                "menu",
                "constant",
                sampling=sampling,
                size=size,
                epsilon=EPSILON,
                delta=DELTA,
                steps=round(epochs / RATE),
                rate=RATE,
            )
            found = [trained(network, dataset, plan, seed, rate, data) for seed in range(seeds)]
            scores = np.array([score for score, _ in found])
            row = {
                "data": name,
                "sampling": sampling,
                "noise_in_clip_norms": round(plan.sampler.noise_multiplier, 4),
                "accuracy": round(float(scores.mean()), 4),
                "standard_error": round(float(scores.std(ddof=1) / len(scores) ** 0.5), 4),
                "epoch_seconds": round(statistics.median(spent for _, spent in found), 4),
                "examples": size,
                "epochs": epochs,
            }
            rows.append(row)
            print(row, flush=True)
    RESULTS.write_text(json.dumps({"epsilon": EPSILON, "delta": DELTA, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
