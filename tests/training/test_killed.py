"""A training process is killed at random moments: what the disk says is spent is never less than what was."""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct.filters import SpentState
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.training import Journal
from tests.training import durable_process as process

HERE = pathlib.Path(__file__).parent
ROUNDING = 1e-12  # of a price, whose last bits differ from program to program


def spend(filter, query, steps):
    """The exact ledger after ``steps`` admitted steps, as one whole number of units."""
    state = filter.init()
    update = jax.jit(lambda state: filter.update(query, state))
    for _ in range(steps):
        admitted, state = update(state)
        assert bool(admitted)
    return _units(state)


def _units(state):
    high, middle, low = (int(word) for word in np.asarray(state.words))
    return (high << 64) | (middle << 32) | low


def _journal(folder):
    with contextlib.closing(Journal(folder / "journal")) as journal:
        return journal.records


def _released(log):
    """Whole lines only: the last one may be being written."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []


def _recorded(records):
    charges = [record for record in records if record["kind"] == "charge"]
    if not charges:
        return 0, 0
    words = np.frombuffer(bytes.fromhex(charges[-1]["filter_state"][0]), np.uint32)
    return len(charges), _units(SpentState(words))


def kill_and_check(tmp_path, kills, seed):
    filter, query = process.FILTER, PoissonSampled(Gaussian(process.SIGMA), np.float32(process.RATE))
    folder, log = tmp_path / "run", tmp_path / "released"
    environment = dict(os.environ, PYTHONPATH=str(HERE.parents[1]), JAX_PLATFORMS="cpu")
    environment["JAXACCT_TEST_CACHE"] = str(jax.config.values["jax_compilation_cache_dir"])
    command = [sys.executable, str(HERE / "durable_process.py"), str(folder), str(log)]
    draw = random.Random(seed)
    one = spend(filter, query, 1)
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
        if not (folder / "journal").exists():
            continue
        charges, recorded = _recorded(_journal(folder))
        released = len(_released(log))
        assert charges >= released
        assert recorded >= released * one * (1 - ROUNDING)
    # The rest in this process, until the filter refuses.
    outcome = process.train(folder, log)
    records, released = _journal(folder), _released(log)
    assert any(record["from_step"] > 0 for record in records if record["kind"] == "attempt")
    charges, recorded = _recorded(records)
    assert outcome.stopped == "budget spent"
    assert charges == len(outcome.records) >= len(released)
    assert charges - len(released) <= kills
    assert sum(not record.lost for record in outcome.records) == int(outcome.state.step)
    assert outcome.attempts == sum(record["kind"] == "attempt" for record in records)
    assert recorded == pytest.approx(spend(filter, query, charges), rel=ROUNDING)
    # No two releases, of whatever attempts, share their noise.
    assert len({tuple(line["still"]) for line in released}) == len(released)
    # What was truly released, taken as fixed in advance, costs no more than what the filter promised.
    truth = jaxacct.epsilon(query, process.DELTA, steps=len(released))
    assert float(truth.upper) <= float(filter.guarantee.epsilon(process.DELTA))
    return len(released), charges


@pytest.mark.slow
def test_a_run_that_is_killed_fifty_times_never_spent_more_than_its_journal_says(tmp_path):
    print(kill_and_check(tmp_path, 50, seed=2))
