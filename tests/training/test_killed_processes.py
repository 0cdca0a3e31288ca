"""A run of several processes: one keeps the journal, all obey it, and any of them may be killed."""

import collections
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def start(folder, pause):
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
    return [subprocess.Popen(command, env=kept | more, **pipes) for command in commands]


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
    both = start(tmp_path, "0.3")
    try:
        deadline = time.monotonic() + 200
        while len(lines(tmp_path, 0)) < 7:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in both), both[0].communicate()[1][-2000:]
            time.sleep(0.02)
        both[killed].send_signal(signal.SIGKILL)
        time.sleep(1.0)  # the other one cannot take a step alone
    finally:
        for process in both:
            process.kill()
            process.communicate()
    before = charges(tmp_path)
    assert 7 <= len(before) < ADMITTED
    both = start(tmp_path, "0")
    try:
        ends = [process.communicate(timeout=200) for process in both]
    finally:
        for process in both:
            process.kill()
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
