"""A training process is killed at random moments: what the disk says is spent is never less than what was.

What reaches the optimiser is written to a log by a callback inside the jitted step, at the moment of its release: one
line with the noisy gradient, in one write to a file opened for appending. The log and the journal know nothing of one
another.
"""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxacct
from jaxacct import filters, reports
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.training import Journal, durable_run, fit
from jaxacct.training.schedules import constant
from tests.training.small import begun

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def train(folder, log):
    schedule = constant(SIGMA, RATE, 10_000)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    optimizer = logged(handle)
    step, state = begun(FILTER, schedule, loss, PARAMS, optimizer, physical_batch=16)
    with durable_run(folder, step, state, FILTER, resume=True, every=3) as run:
        outcome = fit(run.step, run.state, DATA, steps=10_000, evaluate=lambda params: 0.5, before=run)
        jax.effects_barrier()
        run.save(outcome.state)
    os.close(handle)
    return outcome


def _journal(folder):
    with contextlib.closing(Journal(folder / "journal")) as journal:
        return journal.records


def _charges(records):
    return sum(record["kind"] == "charge" for record in records)


def _released(log):
    """Whole lines only: the last one may be being written."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []


@pytest.mark.slow
def test_a_run_that_is_killed_fifty_times_never_spent_more_than_its_journal_says(tmp_path):
    kills, query, draw = 50, PoissonSampled(Gaussian(SIGMA), np.float32(RATE)), random.Random(2)
    folder, log = tmp_path / "run", tmp_path / "released"
    environment = dict(os.environ, PYTHONPATH=str(ROOT), JAX_PLATFORMS="cpu")  # the compilations of all tests are there
    program = "import sys; from tests.training.test_killed import train; train(*sys.argv[1:])"
    command = [sys.executable, "-c", program, str(folder), str(log)]
    for number in range(kills):
        # So many more releases, whatever the machine's speed: checkpoints come every third step.
        enough = len(_released(log)) + draw.randint(4, 12)
        running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Some are killed while they start, resume or compile; most after a few releases, anywhere in a step, a write or
        # a checkpoint.
        deadline = time.monotonic() + (draw.uniform(0.0, 2.0) if number % 5 == 4 else 120.0)
        while time.monotonic() < deadline and running.poll() is None:
            if len(_released(log)) >= enough:
                time.sleep(draw.uniform(0.0, 0.02))
                break
            time.sleep(0.002)
        running.kill()
        assert running.wait() in (-9, 0)
        if (folder / "journal").exists():
            assert _charges(_journal(folder)) >= len(_released(log))
    # The rest in this process, until the filter refuses.
    outcome = train(folder, log)
    records, released = _journal(folder), _released(log)
    assert any(record["from_step"] > 0 for record in records if record["kind"] == "attempt")
    assert outcome.stopped == "budget spent"
    assert _charges(records) == len(outcome.records) >= len(released)
    assert _charges(records) - len(released) <= kills
    assert sum(not record.lost for record in outcome.records) == int(outcome.state.step)
    assert outcome.attempts == sum(record["kind"] == "attempt" for record in records)
    assert reports.verify(folder).holds  # each charge is in the state that follows it
    # No two releases, of whatever attempts, share their noise.
    assert len({tuple(line["still"]) for line in released}) == len(released)
    # What was truly released, taken as fixed in advance, costs no more than what the filter promised.
    truth = jaxacct.epsilon(query, DELTA, steps=len(released))
    assert float(truth.upper) <= float(FILTER.guarantee.epsilon(DELTA))
