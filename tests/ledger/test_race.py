"""Processes that are killed while they race for one budget; at full size: python -m verification.races."""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def raced(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "verification.races", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_race_with_kills_neither_overspends_nor_loses(tmp_path):
    run, _ = raced("--processes", "3", "--requests", "30", "--kills", "4")
    assert run["spent"] == run["budget"] == 90
    assert run["kills"] >= 1
    assert run["requests"] >= run["answers"] == 90


def test_threads_that_copy_the_folder_take_no_lock_away(tmp_path):
    """POSIX locks end when the process closes any descriptor of the file; at full size: ``--copying --runs 20``."""
    *runs, _ = raced("--processes", "3", "--requests", "20", "--kills", "1", "--copying", "--runs", "2")
    for run in runs:
        assert run["spent"] == run["budget"] == 60
        assert run["requests"] >= run["answers"] == 60
