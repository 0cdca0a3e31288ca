"""What it costs to have every charge on the disk before its release.

Run with ``python bench/durable_steps.py``; it writes ``bench/results/durable_steps.json``. Training steps on the
digits, in alternating blocks so that a busy machine slows all alike: as one program, as two with the journal's
``fsync`` between them, and with one ``fsync`` for ten steps. Checkpoints are timed by themselves.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp
import optax
from machine import about

from jaxacct import filters, training

BLOCKS, STEPS = 8, 20


def main() -> None:
    data = training.demo.load_data("digits")
    examples = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    network = training.demo.build_network("mlp", data.train_x.shape[1:], data.classes, 0)
    filter, optimizer = filters.renyi(8.0, 1e-5, order=8.0), optax.sgd(0.1)
    schedule = training.schedules.constant(8.0, 0.1, 9999)
    options: dict[str, Any] = {"clip_norm": 1.0, "physical_batch": 256}
    whole = training.make_step(network.loss, optimizer, filter, schedule, **options)
    state = training.init_state(network.params, optimizer, filter, schedule, training.seeded_keys(0))
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        runs = [training.durable_run(place / str(n), whole, state, filter, every=10**9, ahead=n) for n in (1, 10)]
        with runs[0] as one, runs[1] as ten:
            steps = {"plain": whole, "durable": one.step, "durable, ten at once": ten.step}
            states = dict.fromkeys(steps, state)
            times: dict[str, list[float]] = {name: [] for name in steps}
            for block in range(BLOCKS + 1):
                for name, step in steps.items():
                    start = time.perf_counter()
                    for _ in range(STEPS):
                        states[name], report = step(states[name], examples)
                        assert bool(report.admitted)
                    jax.block_until_ready(states[name].params)
                    if block:  # the first one compiles
                        times[name].append((time.perf_counter() - start) / STEPS)
            saves = []
            for _ in range(5):
                states["durable"], _ = one.step(states["durable"], examples)
                start = time.perf_counter()
                one.save(states["durable"])
                saves.append(time.perf_counter() - start)
        log = place / "disk"
        with log.open("ab") as file:
            waits = []
            for _ in range(50):
                file.write(b"x" * 400)
                file.flush()
                start = time.perf_counter()
                os.fsync(file.fileno())
                waits.append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in times.items()}
    report = {
        "machine": about("optax"),
        "seconds_a_step": median,
        "over_plain": {name: value / median["plain"] for name, value in median.items()},
        "seconds_an_fsync": statistics.median(waits),
        "seconds_a_checkpoint": statistics.median(saves),
    }
    print(json.dumps(report, indent=1))
    path = pathlib.Path(__file__).resolve().parent / "results" / "durable_steps.json"
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
