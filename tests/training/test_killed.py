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
from jaxacct import Gaussian, PoissonSampled, reports
from jaxacct.training import Journal
from tests.training import durable_process as process

KILLS = 50
HERE = pathlib.Path(__file__).parent


def journal(folder):
    with contextlib.closing(Journal(folder / "journal")) as opened:
        return opened.records


def charges(records):
    return sum(record["kind"] == "charge" for record in records)


def released(log):
    """Whole lines only: the last one may be being written."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]] if log.exists() else []


@pytest.mark.slow
def test_a_run_that_is_killed_fifty_times_never_spent_more_than_its_journal_says(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "released"
    environment = dict(os.environ, PYTHONPATH=str(HERE.parents[1]), JAX_PLATFORMS="cpu")
    environment["JAXACCT_TEST_CACHE"] = str(jax.config.values["jax_compilation_cache_dir"])
    command = [sys.executable, str(HERE / "durable_process.py"), str(folder), str(log)]
    draw = random.Random(2)
    for number in range(KILLS):
        # So many more releases, whatever the machine's speed: checkpoints come every third step.
        enough = len(released(log)) + draw.randint(4, 12)
        running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Some are killed while they start, resume or compile; most after a few releases, anywhere in a step, a write or
        # a checkpoint.
        deadline = time.monotonic() + (draw.uniform(0.0, 2.0) if number % 5 == 4 else 120.0)
        while time.monotonic() < deadline and running.poll() is None:
            if len(released(log)) >= enough:
                time.sleep(draw.uniform(0.0, 0.02))
                break
            time.sleep(0.002)
        running.kill()
        assert running.wait() in (-9, 0)
        if (folder / "journal").exists():
            assert charges(journal(folder)) >= len(released(log))
    # The rest in this process, until the filter refuses.
    outcome = process.train(folder, log)
    records, lines = journal(folder), released(log)
    assert any(record["from_step"] > 0 for record in records if record["kind"] == "attempt")
    assert outcome.stopped == "budget spent"
    assert charges(records) == len(outcome.records) >= len(lines)
    assert charges(records) - len(lines) <= KILLS
    assert sum(not record.lost for record in outcome.records) == int(outcome.state.step)
    assert outcome.attempts == sum(record["kind"] == "attempt" for record in records)
    assert reports.verify(folder).holds  # each charge is in the state that follows it
    # No two releases, of whatever attempts, share their noise.
    assert len({tuple(line["still"]) for line in lines}) == len(lines)
    # What was truly released, taken as fixed in advance, costs no more than what the filter promised.
    query = PoissonSampled(Gaussian(process.SIGMA), np.float32(process.RATE))
    truth = jaxacct.epsilon(query, process.DELTA, steps=len(lines))
    assert float(truth.upper) <= float(process.FILTER.guarantee.epsilon(process.DELTA))
