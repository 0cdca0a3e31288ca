"""Sweeps over devices, processes and precisions: the same enclosures."""

import ast
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

import jaxacct

SIGMAS = np.linspace(0.8, 4.0, 21)
DEVICES = """
import numpy as np, jax, jaxacct
sigmas = np.linspace(0.8, 4.0, 21)
step = jaxacct.PoissonSampled(jaxacct.Gaussian(sigmas), 0.01)
"""
EIGHT = """
assert jax.device_count() == 8
one = jaxacct.epsilon(step, 1e-5, steps=1000)
all_ = jaxacct.epsilon(step, 1e-5, steps=1000, devices=jax.devices())
np.testing.assert_allclose(all_.upper, one.upper, rtol=1e-9)
np.testing.assert_allclose(all_.lower, one.lower, rtol=1e-9)
print("same")
"""
PROCESS = """
import sys
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
assert jax.device_count() == 2 and jax.local_device_count() == 1
bounds = jaxacct.epsilon(step, 1e-5, steps=1000, devices=jax.devices())
print("upper", repr(bounds.upper.tolist()))
"""


def _environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    return kept | {"JAX_PLATFORMS": "cpu"} | more


def _step():
    return jaxacct.PoissonSampled(jaxacct.Gaussian(SIGMAS), 0.01)


@pytest.mark.slow
def test_eight_devices_give_the_same_answers():
    environment = _environment(XLA_FLAGS="--xla_force_host_platform_device_count=8")
    command = [sys.executable, "-c", DEVICES + EIGHT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.stdout.strip() == "same", done.stderr[-2000:]


@pytest.mark.slow
def test_two_processes_give_the_same_answers():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    commands = [[sys.executable, "-c", DEVICES + PROCESS, address, str(i)] for i in range(2)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=_environment(), **pipes) for command in commands]
    found = [process.communicate(timeout=400) for process in running]
    here = jaxacct.epsilon(_step(), 1e-5, steps=1000).upper
    for out, err in found:
        assert "upper" in out, err[-2000:]
        np.testing.assert_allclose(np.array(ast.literal_eval(out.split("upper", 1)[1].strip())), here, rtol=1e-9)


@pytest.mark.slow
def test_float32_transforms_enclose_and_stay_tight():
    exact = jaxacct.epsilon(_step(), 1e-5, steps=1000)
    single = jaxacct.epsilon(_step(), 1e-5, steps=1000, precision="float32")
    assert np.all(single.lower <= exact.upper)
    assert np.all(exact.lower <= single.upper)
    assert np.all(single.upper / single.lower - 1 < 1e-3)
    # It is not float64 under another name.
    assert np.all(single.upper - single.lower > exact.upper - exact.lower)


def test_progress_ends_at_the_total():
    seen = []
    jaxacct.epsilon(_step(), 1e-5, steps=1000, relation="remove", progress=lambda *numbers: seen.append(numbers))
    done, total = np.array(seen).T
    assert np.all(np.diff(done) > 0)
    assert done[-1] == SIGMAS.size
    assert np.all(total == SIGMAS.size)


def test_options_are_for_calls_outside_a_trace():
    import jax

    with pytest.raises(ValueError, match="outside jit"):
        jax.jit(lambda d: jaxacct.epsilon(_step(), d, steps=10, precision="float32").upper)(1e-5)
