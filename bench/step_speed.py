"""Examples per second of a private gradient, against what else people take it with, on this machine.

Run with ``python bench/step_speed.py``; add ``--json FILE`` to keep the numbers, ``--networks`` and ``--batches`` to
choose; ``--compile`` measures how long the programs of deep networks of 8 and 200 parameter arrays take to compile,
against optax. An MLP (784-256-128-10), a small convolutional network and a transformer block (32 tokens of 64 numbers,
four heads), at batches of 256 and 4,096:

* ``jaxacct``: `training.noisy_gradient` of a Poisson sample: sampled, clipped, summed exactly, noised;
* ``jaxacct, secure keys``: the same with coins and noise of ChaCha20;
* ``floating point``: the same pieces and the same clipping, summed in float32: what exact sums cost;
* ``optax``: ``vmap(grad)`` and ``optax.contrib.differentially_private_aggregate``, of a batch that is there already;
* ``jax_privacy``: ``clipped_grad`` and ``gaussian_privatizer``, of a batch that is there already, at once and in
  microbatches of 64 (where jax_privacy is installed);
* ``opacus``: per-sample gradients by hooks, clipped, summed and noised by its ``DPOptimizer``, of a batch that is there
  already (where opacus is installed);
* ``vmap(grad)``: the per-example gradients alone, neither clipped nor summed.

What holds a whole batch's gradients runs where they take less than 1.5 GB: not the MLP at batch 4,096.

Each JAX contestant is one jitted program. All run in turns, on one thread each where that can be chosen, and the least
of the process's CPU times counts: other programs on the machine slow wall time, and that is not what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxacct import training
from jaxacct.training.gradients import clipping
from jaxacct.training.gradients.noise import gaussian_tree

RATE = 0.25
MOST_BYTES = 1.5e9  # of per-example gradients that are in memory at once
TOKENS, WIDTH, HEADS = 32, 64, 4


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

    return params, logits, (28, 28, 1)


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

    return params, logits, (28, 28, 1)


def transformer(key):
    shapes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "o": (WIDTH, WIDTH)}
    shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH), "head": (WIDTH, 10)}
    keys = jax.random.split(key, len(shapes))
    params = {name: jax.random.normal(k, s) * s[0] ** -0.5 for k, (name, s) in zip(keys, shapes.items(), strict=True)}
    params |= {"norm1": (jnp.ones(WIDTH), jnp.zeros(WIDTH)), "norm2": (jnp.ones(WIDTH), jnp.zeros(WIDTH))}

    def normed(pair, x):
        centred = x - x.mean(-1, keepdims=True)
        return pair[0] * centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) + pair[1]

    def logits(params, x):
        inner = normed(params["norm1"], x)
        q, k, v = ((inner @ params[name]).reshape(TOKENS, HEADS, -1) for name in ("q", "k", "v"))
        weights = jax.nn.softmax(jnp.einsum("ihd,jhd->hij", q, k) * (WIDTH / HEADS) ** -0.5)
        x = x + jnp.einsum("hij,jhd->ihd", weights, v).reshape(TOKENS, WIDTH) @ params["o"]
        x = x + jax.nn.gelu(normed(params["norm2"], x) @ params["up"]) @ params["down"]
        return x.mean(0) @ params["head"]

    return params, logits, (TOKENS, WIDTH)


def contestants(network, batch):
    params, logits, shape = network(jax.random.key(0))
    size = int(batch / RATE)
    x = jax.random.normal(jax.random.key(1), (size, *shape))
    y = jax.random.randint(jax.random.key(2), (size,), 0, 10)

    def loss(params, example):
        return optax.losses.softmax_cross_entropy_with_integer_labels(logits(params, example[0]), example[1])

    each = jax.vmap(jax.grad(loss), in_axes=(None, 0))
    aggregate = optax.contrib.differentially_private_aggregate(1.0, 1.0, 0)
    start = aggregate.init(params)
    keys = training.step_keys(training.seeded_keys(0), 0)
    secure = training.step_keys(training.secure_keys(), 0)

    @jax.jit
    def ours(params, x, y, keys):
        return training.noisy_gradient(
            loss, params, (x, y), keys, sigma=1.0, rate=RATE, clip_norm=1.0, physical_batch=batch
        )

    @jax.jit
    def floating(params, x, y):
        """Pieces of the same size, clipped the same way, in a loop over a sample that is there already."""
        pieces = jax.tree.map(lambda leaf: leaf.reshape(-1, 8, *leaf.shape[1:]), (x, y))

        def add(total, piece):
            gradients = training.per_example_gradients(loss, params, piece)
            factors = clipping._factors(gradients, jnp.float32(1.0), jnp.float32(1.0))
            return jax.tree.map(lambda sum, leaf: sum + jnp.tensordot(factors, leaf, 1), total, gradients), None

        total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), pieces)
        return jax.tree.map(jnp.add, total, gaussian_tree(keys.noise, params))

    @jax.jit
    def theirs(params, x, y):
        return aggregate.update(each(params, (x, y)), start)[0]

    @jax.jit
    def gradients(params, x, y):
        return each(params, (x, y))

    part = (x[:batch], y[:batch])
    runs = {
        "jaxacct": lambda: ours(params, x, y, keys),
        "jaxacct, secure keys": lambda: ours(params, x, y, secure),
        "floating point": lambda: floating(params, *part),
    }
    others = {"jax_privacy, microbatches": lambda: of_jax_privacy(loss, params, part, 64)}
    if 4 * batch * sum(leaf.size for leaf in jax.tree.leaves(params)) < MOST_BYTES:
        runs |= {"optax": lambda: theirs(params, *part), "vmap(grad)": lambda: gradients(params, *part)}
        others["jax_privacy"] = lambda: of_jax_privacy(loss, params, part, None)
        others["opacus"] = lambda: of_opacus(network, part)
    for name, other in others.items():
        run = other()
        if run is not None:
            runs[name] = run
    return runs


def of_jax_privacy(loss, params, part, microbatch):
    try:
        from jax_privacy import clipping, noise_addition
    except (ImportError, AttributeError):
        return None
    clipped = clipping.clipped_grad(loss, l2_clip_norm=1.0, keep_batch_dim=False, microbatch_size=microbatch)
    privatizer = noise_addition.gaussian_privatizer(stddev=1.0, prng_key=jax.random.key(0))
    state = privatizer.init(params)

    @jax.jit
    def step(params, x, y):
        return privatizer.update(clipped(params, (x, y)), state)[0]

    return lambda: step(params, *part)


def of_opacus(network, part):
    try:
        import opacus
        import torch
        from torch import nn
    except ImportError:
        return None
    torch.set_num_threads(1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, 10, bias=False)

        def forward(self, x):
            inner = self.norm1(x)
            q, k, v = (f(inner).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
            weights = torch.softmax(q @ k.transpose(-1, -2) * (WIDTH / HEADS) ** -0.5, -1)
            x = x + self.o((weights @ v).transpose(1, 2).reshape(x.shape))
            x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
            return self.head(x.mean(1))

    models = {
        "mlp": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        ),
        "cnn": lambda: nn.Sequential(
            *(nn.Conv2d(1, 16, 5, padding=2, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 5, padding=2, bias=False), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(7 * 7 * 32, 10, bias=False)),
        ),
        "transformer": Block,
    }
    model = opacus.GradSampleModule(models[network.__name__]())
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = opacus.optimizers.DPOptimizer(
        inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(part[0])
    )
    x = torch.tensor(np.array(part[0]))
    x = x.permute(0, 3, 1, 2) if x.ndim == 4 else x
    y = torch.tensor(np.array(part[1]), dtype=torch.long)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def seconds(runs, rounds):
    found = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            jax.block_until_ready(run())
            if i:  # the first compiles
                found[name].append(time.process_time() - start)
    return {name: min(times) for name, times in found.items()}


def compilations(leaves):
    """CPU seconds in which a private gradient is traced and compiled, of a network of so many arrays."""
    keys = jax.random.split(jax.random.key(0), leaves // 2)
    params = [(jax.random.normal(key, (16, 16)), jnp.zeros(16)) for key in keys]
    data = jnp.ones((64, 16)), jnp.zeros(64)
    aggregate = optax.contrib.differentially_private_aggregate(1.0, 1.0, 0)

    def loss(params, example):
        hidden = example[0]
        for weights, bias in params:
            hidden = jnp.tanh(hidden @ weights + bias)
        return (hidden.sum() - example[1]) ** 2

    def ours(params, data, keys):
        return training.noisy_gradient(loss, params, data, keys, sigma=1.0, rate=RATE, clip_norm=1.0)

    def theirs(params, data, state):
        return aggregate.update(jax.vmap(jax.grad(loss), (None, 0))(params, data), state)[0]

    found = {}
    keys = training.step_keys(training.seeded_keys(0), 0)
    for _ in range(2):
        for name, one, last in (("jaxacct", ours, keys), ("optax", theirs, aggregate.init(params))):
            jax.clear_caches()
            start = time.process_time()
            jax.jit(one).lower(params, data, last).compile()
            found[name] = min(time.process_time() - start, found.get(name, np.inf))
    return {name: round(spent, 2) for name, spent in found.items()}


def main() -> None:
    networks = {network.__name__: network for network in (mlp, cnn, transformer)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="Write the numbers to a file.")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--networks", nargs="*", default=list(networks), choices=list(networks))
    parser.add_argument("--batches", type=int, nargs="*", default=[256, 4096])
    parser.add_argument("--compile", action="store_true", help="Measure compilation instead.")
    options = parser.parse_args()
    if options.compile:
        for leaves in (8, 200):
            found = compilations(leaves)
            print({"leaves": leaves, **found, "ratio": round(found["jaxacct"] / found["optax"], 2)}, flush=True)
        return
    rows = []
    for name in options.networks:
        for batch in options.batches:
            times = seconds(contestants(networks[name], batch), options.rounds)
            ours = ("jaxacct", "jaxacct, secure keys", "floating point", "vmap(grad)")
            others = [spent for who, spent in times.items() if who not in ours]
            row = {"network": name, "batch": batch}
            row |= {who: round(batch / spent) for who, spent in times.items()}
            row["over_best_of_others"] = round(min(others) / times["jaxacct"], 2)
            row["price_of_exactness"] = round(times["jaxacct"] / times["floating point"], 2)
            row["price_of_secure_keys"] = round(times["jaxacct, secure keys"] / times["jaxacct"], 3)
            rows.append(row)
            print(row, flush=True)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump({"jax": jax.__version__, "examples_per_cpu_second": rows}, file, indent=1)


if __name__ == "__main__":
    main()
