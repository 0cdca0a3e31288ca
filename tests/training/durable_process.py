"""A training process to be killed: ``python durable_process.py FOLDER LOG``.

What reaches the optimiser is written to LOG by a callback inside the jitted step, at the moment of its release: one
line with the noise multiplier, the rate and the noisy gradient, in one write to a file opened for appending. The log
and the journal know nothing of one another.
"""

import json
import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxacct import filters
from jaxacct.training import durable_run, fit, init_state, make_step, seeded_keys
from jaxacct.training.schedules import constant

DELTA = 1e-5
FILTER, SIGMA, RATE = filters.renyi(4.0, DELTA, order=8.0), 4.0, 0.1
# "still" is in no example's loss: its noisy gradient is the noise alone.
PARAMS = {"moves": jnp.zeros(4), "still": jnp.zeros(3)}
DATA = jnp.asarray(np.random.default_rng(0).normal(size=(64, 4)), jnp.float32)


def loss(params, row):
    return jnp.sum((params["moves"] - row) ** 2)


def logged(log):
    """Plain gradient descent that tells of every release."""

    def tell(gradient):
        line = {name: np.asarray(leaf).tolist() for name, leaf in gradient.items()}
        os.write(log, (json.dumps(line) + "\n").encode())

    def update(updates, state, params=None):
        jax.debug.callback(tell, updates)
        return jax.tree.map(lambda leaf: -0.01 * leaf, updates), state

    return optax.GradientTransformation(lambda params: (), update)


def train(folder, log, every=3):
    schedule = constant(SIGMA, RATE, 10_000)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    optimizer = logged(handle)
    step = make_step(loss, optimizer, FILTER, schedule, clip_norm=1.0, physical_batch=16)
    state = init_state(PARAMS, optimizer, FILTER, schedule, seeded_keys(0))
    with durable_run(folder, step, state, FILTER, resume=True, every=every) as run:
        outcome = fit(run.step, run.state, DATA, steps=10_000, evaluate=lambda params: 0.5, before=run)
        jax.effects_barrier()
        run.save(outcome.state)
    os.close(handle)
    return outcome


if __name__ == "__main__":
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAXACCT_TEST_CACHE"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    train(sys.argv[1], sys.argv[2])
