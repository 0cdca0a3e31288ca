"""One training run in two processes, each of which holds its own rows only (``jax.distributed``).

Run with ``python notebooks/examples/two_processes.py`` in an environment with ``jaxacct[train]``: it starts itself
twice on this machine, on the loopback interface, and stops by itself. On two machines, run ``main`` on both with the
address of the first. Every process runs the same program; only the rows that it reads are its own.
"""

import json
import socket
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxacct import Gaussian, PoissonSampled, filters, training

CLIP, DELTA = 1.0, 1e-5


def main(address: str, count: int, index: int, most: int, epsilon=3.0, sigma=3.0, rate=0.1, devices=2) -> dict:
    """Process ``index`` of ``count``: trains on scikit-learn's digits for ``most`` steps; what came of it."""
    jax.config.update("jax_num_cpu_devices", devices)
    # A process that waits for a lost one gives up after the heartbeat's time.
    jax.distributed.initialize(address, count, index, initialization_timeout=60, heartbeat_timeout_seconds=30)
    data = training.demo.load_data("digits")
    # Its own part of the records, as a file of its own would hold it; the parts need not be of one size.
    x, y = np.reshape(data.train_x, (-1, 64)), np.asarray(data.train_y)
    edges = [len(x) * at // count for at in range(count + 1)]
    x, y = x[edges[index] : edges[index + 1]], y[edges[index] : edges[index + 1]]

    rngs = nnx.Rngs(0)
    network = training.from_flax(nnx.Sequential(nnx.Linear(64, 48, rngs=rngs), jnp.tanh, nnx.Linear(48, 10, rngs=rngs)))
    schedule, optimizer = training.schedules.constant(sigma, rate, most), optax.adam(5e-3)
    budget = filters.menu([PoissonSampled(Gaussian(sigma), rate)], epsilon=epsilon, delta=DELTA)
    step = training.make_step(network.loss, optimizer, budget, schedule, clip_norm=CLIP)
    state = training.init_state(network.params, optimizer, budget, schedule, training.seeded_keys(0))

    examples = training.shard_examples((x, y), own=True)
    state, times = training.replicate(state, examples), []  # the state of process 0, keys included
    for _ in range(most):
        start = time.perf_counter()
        state, report = jax.block_until_ready(step(state, examples))
        times.append(time.perf_counter() - start)
    params = jax.tree.map(np.asarray, state.params)  # the same in every process
    return {
        "rows": len(x),
        "of": examples.size,
        "steps": int(state.step),
        "seconds_a_step": float(np.median(times)),
        "admitted": bool(report.admitted),
        "accuracy": training.accuracy(network.logits, jnp.reshape(data.test_x, (-1, 64)), data.test_y)(params),
        "bits": "".join(leaf.tobytes().hex()[:8] for leaf in jax.tree.leaves(params)),
        "epsilon": float(budget.guarantee.epsilon(DELTA)),
    }


def start(count: int = 2, most: int = 50, timeout: float = 240) -> list[dict]:
    """Runs ``count`` processes on this machine; what came of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    commands = [[sys.executable, __file__, address, str(count), str(index), str(most)] for index in range(count)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        return [json.loads(process.communicate(timeout=timeout)[0].splitlines()[-1]) for process in started]
    finally:
        for process in started:
            process.kill()


if __name__ == "__main__":
    if len(sys.argv) == 5:
        print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:]))))
    else:
        print(*start(), sep="\n")
