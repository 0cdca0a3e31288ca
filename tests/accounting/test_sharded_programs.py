"""Public functions under `jax.shard_map`, with all of its checks, and over sharded arrays: on four virtual devices."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.accounting.sharded_programs import CASES

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "sweeps-over-devices.md"


@pytest.mark.slow
def test_four_devices_find_what_one_finds_and_the_page_on_them_runs():
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-m", "tests.accounting.sharded_programs", str(PAGE)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    for name in [*CASES, "what is the same is declared the same", "arrays that are sharded", "the page"]:
        assert f"agrees: {name}" in lines
    assert "refused: what differs is declared the same" in lines
