"""Examples per second of a private gradient, against what else JAX users take it with, on this machine.

Run with ``python bench/step_speed.py``; add ``--json FILE`` to keep the numbers. An MLP (784-256-128-10) and a small
convolutional network, at expected batches of 256 and 4,096:

* ``jaxacct``: `training.noisy_gradient` of a Poisson sample: sampled, clipped, summed exactly, noised;
* ``optax``: ``vmap(grad)`` and ``optax.contrib.differentially_private_aggregate``, of a batch that is there already;
* ``vmap(grad)``: the per-example gradients alone, neither clipped nor summed.

All inside one jitted program each, timed in turns so that a busy machine slows all of them; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import json
import time

import jax
import jax.numpy as jnp
import optax

from jaxacct import training

RATE = 0.25


def mlp(key):
    sizes = (784, 256, 128, 10)
    keys = jax.random.split(key, 3)
    params = [
        (jax.random.normal(k, (a, b)) * a**-0.5, jnp.zeros(b))
        for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]

    def logits(params, x):
        hidden = x.reshape(-1)
        for i, (weights, bias) in enumerate(params):
            hidden = hidden @ weights + bias
            hidden = jax.nn.relu(hidden) if i < len(params) - 1 else hidden
        return hidden

    return params, logits


def cnn(key):
    keys = jax.random.split(key, 3)
    params = {
        "first": jax.random.normal(keys[0], (5, 5, 1, 16)) * 0.2,
        "second": jax.random.normal(keys[1], (5, 5, 16, 32)) * 0.05,
        "dense": jax.random.normal(keys[2], (7 * 7 * 32, 10)) * 0.02,
    }

    def logits(params, x):
        hidden = x[None]
        for name in ("first", "second"):
            numbers = ("NHWC", "HWIO", "NHWC")
            hidden = jax.lax.conv_general_dilated(hidden, params[name], (1, 1), "SAME", dimension_numbers=numbers)
            hidden = jax.lax.reduce_window(
                jax.nn.relu(hidden), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
            )
        return hidden.reshape(-1) @ params["dense"]

    return params, logits


def contestants(network, batch):
    params, logits = network(jax.random.key(0))
    size = int(batch / RATE)
    x = jax.random.normal(jax.random.key(1), (size, 28, 28, 1))
    y = jax.random.randint(jax.random.key(2), (size,), 0, 10)

    def loss(params, example):
        return optax.losses.softmax_cross_entropy_with_integer_labels(logits(params, example[0]), example[1])

    each = jax.vmap(jax.grad(loss), in_axes=(None, 0))
    aggregate = optax.contrib.differentially_private_aggregate(1.0, 1.0, 0)
    start = aggregate.init(params)
    keys = training.step_keys(training.seeded_keys(0), 0)

    @jax.jit
    def ours(params, x, y):
        return training.noisy_gradient(
            loss, params, (x, y), keys, sigma=1.0, rate=RATE, clip_norm=1.0, physical_batch=batch
        )

    @jax.jit
    def theirs(params, x, y):
        return aggregate.update(each(params, (x, y)), start)[0]

    @jax.jit
    def gradients(params, x, y):
        return each(params, (x, y))

    part = (x[:batch], y[:batch])
    return {
        "jaxacct": (ours, (params, x, y)),
        "optax": (theirs, (params, *part)),
        "vmap(grad)": (gradients, (params, *part)),
    }


def seconds(runs, rounds):
    found = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, (run, arguments) in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(run(*arguments))
            if i:  # the first compiles
                found[name].append(time.perf_counter() - start)
    return {name: min(times) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="Write the numbers to a file.")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batches", type=int, nargs="*", default=[256, 4096])
    options = parser.parse_args()
    rows = []
    for network in (mlp, cnn):
        for batch in options.batches:
            times = seconds(contestants(network, batch), options.rounds)
            row = {"network": network.__name__, "batch": batch}
            row |= {name: round(batch / time) for name, time in times.items()}
            row["over_optax"] = round(times["optax"] / times["jaxacct"], 2)
            rows.append(row)
            print(row, flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"jax": jax.__version__, "examples_per_second": rows}, file, indent=1)


if __name__ == "__main__":
    main()
