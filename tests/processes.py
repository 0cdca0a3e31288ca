"""Programs in processes of their own: with other devices, other settings, or nothing imported yet."""

import os
import pathlib
import subprocess
import sys

import jax

ROOT = pathlib.Path(__file__).resolve().parents[1]


def printed(program, *arguments, devices=None, **variables):
    """What ``python -c PROGRAM ARGUMENTS`` prints, on so many devices of a CPU, with the compilations of all tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    environment = kept | {
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.values["jax_compilation_cache_dir"]),
        "PYTHONPATH": str(ROOT),
    }
    if devices is not None:
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
