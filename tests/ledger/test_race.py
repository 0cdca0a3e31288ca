"""Processes that are killed while they race for one budget; at full size: python -m verification.races."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

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


@pytest.mark.slow  # eight processes with a thousand requests each
def test_a_great_race_with_kills_neither_overspends_nor_loses(tmp_path):
    run, _ = raced("--seed", "100", "--kills", "60")
    assert run["spent"] == run["budget"] == 8000
    assert run["kills"] == 60
