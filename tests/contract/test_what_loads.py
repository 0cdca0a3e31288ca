"""What a process that asks one question has to load."""

import subprocess
import sys

import pytest

MECHANISMS = "PoissonSampled(Gaussian(1.0), 0.01)", "Laplace(3.0)", "UserLevel(Gaussian(2.0), 0.01, records=5)"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_first_answer_loads_neither_scipy_nor_what_an_extra_installs(mechanism):
    program = f"""
import sys
from jaxacct import Gaussian, Laplace, PoissonSampled, UserLevel, epsilon
epsilon({mechanism}, 1e-5, steps=10)
heavy = {{"scipy", "optax", "flax", "chex", "flint", "matplotlib", "dp_accounting", "sqlalchemy"}} & set(sys.modules)
assert not heavy, heavy
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
