"""Processes that are killed while they race for one budget; at full size: python -m verification.races."""

import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from jaxacct import Ledger, filters

ROOT = pathlib.Path(__file__).resolve().parents[2]


def raced(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "verification.races", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def in_four_threads(ask):
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check_threads_race_for_the_last_of_a_budget(place):
    """Four threads ask for forty parts of a budget of twenty, each through an object of its own."""
    Ledger(place, filters.pure_dp(20.0)).close()
    answers, faults = [], []

    def ask():
        try:
            with Ledger(place) as ledger:
                answers.extend(ledger.request(1.0) for _ in range(10))
        except BaseException as problem:
            faults.append(problem)

    in_four_threads(ask)
    assert not faults
    assert (sum(answers), len(answers)) == (20, 40)
    assert Ledger(place).verify().admitted == 20


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


def test_two_objects_race_for_the_last_of_a_budget(tmp_path):
    check_threads_race_for_the_last_of_a_budget(tmp_path / "budget.db")
