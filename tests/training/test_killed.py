"""A training process is killed at random moments: what the disk says is spent is never less than what was.

What reaches the optimiser is written to a log by a callback inside the jitted step, at the moment of its release: one
line with the noisy gradient, in one write to a file opened for appending. The log and the journal know nothing of one
another.
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
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


ADMITTED = 25  # steps of noise 10 under 0.5-GDP
PROGRAM = """
import os, sys
address, index, folder, log, pause = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5])
import jax, jax.numpy as jnp, numpy as np, optax, time
jax.distributed.initialize(address, 2, index, initialization_timeout=180, heartbeat_timeout_seconds=10)
from jaxacct import filters
from jaxacct.training import durable_run, fresh_keys, init_state, make_step, replicate, shard_examples
from jaxacct.training.schedules import constant

filter, schedule, optimizer = filters.gdp(0.5), constant(10.0, 1.0, 10_000), optax.sgd(0.01)
loss = lambda params, row: jnp.sum((params["w"] - row) ** 2)
step = make_step(loss, optimizer, filter, schedule, clip_norm=1.0)
examples = shard_examples(np.random.default_rng(index).normal(size=(20 + index, 4)).astype(np.float32), own=True)
state = init_state({"w": jnp.zeros(4)}, optimizer, filter, schedule, fresh_keys())
state = replicate(state, examples)
log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with durable_run(folder, step, state, filter, resume=True, every=3) as run:
    state, halted = run.state, False
    while not halted:
        state, report = run.step(state, examples)
        halted = not bool(report.admitted)
        if not halted:
            bits = np.asarray(state.params["w"]).tobytes().hex()
            os.write(log, f"{run.attempt} {int(state.step)} {bits}\\n".encode())
        time.sleep(pause)
    run.save(state)
print("end", int(run.state.step), int(state.step), run.attempt, len(run.records))
"""


@contextlib.contextmanager
def started(folder, pause):
    """Both processes; whatever is left of them is killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    more = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "JAXACCT_CACHE_DIR": str(folder)}
    commands = [
        [sys.executable, "-c", PROGRAM, address, str(index), str(folder / "run"), str(folder / f"log{index}"), pause]
        for index in range(2)
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(subprocess.Popen(command, env=kept | more, **pipes)) for command in commands]
        try:
            yield both
        finally:
            for process in both:
                process.kill()


def lines(folder, index):
    log = folder / f"log{index}"
    return [tuple(line.split()) for line in log.read_text().splitlines()] if log.exists() else []


def charges(folder):
    text = (folder / "run" / "journal").read_bytes().splitlines()[2:]
    records = [json.loads(line)["record"] for line in text if line.startswith(b'{"seal"')]
    return [(str(one["attempt"]), str(one["step"])) for one in records if one["kind"] == "charge"]


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_of_several_is_killed_and_every_release_was_charged_once(tmp_path, killed):
    with started(tmp_path, "0.3") as both:
        deadline = time.monotonic() + 200
        while len(lines(tmp_path, 0)) < 7:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in both), both[0].communicate()[1][-2000:]
            time.sleep(0.02)
        both[killed].send_signal(signal.SIGKILL)
        time.sleep(1.0)  # the other one cannot take a step alone
    before = charges(tmp_path)
    assert 7 <= len(before) < ADMITTED
    with started(tmp_path, "0") as both:
        ends = [process.communicate(timeout=200) for process in both]
    said = {end[0].splitlines()[-1] if end[0] else end[1][-2000:] for end in ends}
    after = charges(tmp_path)
    assert after[: len(before)] == before
    assert len(after) == ADMITTED
    assert max(collections.Counter(after).values()) == 1
    released = lines(tmp_path, 0) + lines(tmp_path, 1)
    assert {one[:2] for one in released} <= set(after)
    assert len({one for one in released}) == len({one[:2] for one in released})  # the same bits in both processes
    assert len(said) == 1
    began, reached, attempt, known = map(int, next(iter(said)).split()[1:])
    assert (attempt, known) == (1, len(before))
    assert began in range(3, len(before) + 1, 3)  # the last checkpoint
    assert reached == began + ADMITTED - len(before)  # what was lost stays charged
