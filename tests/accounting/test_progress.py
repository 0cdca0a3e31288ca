"""Progress of sweeps over many settings."""

import jax
import numpy as np
import pytest

import jaxacct

SIGMAS = np.linspace(0.8, 4.0, 21)


def _step():
    return jaxacct.PoissonSampled(jaxacct.Gaussian(SIGMAS), 0.01)


def test_progress_ends_at_the_total():
    seen = []
    jaxacct.epsilon(_step(), 1e-5, steps=1000, relation="remove", progress=lambda *numbers: seen.append(numbers))
    done, total = np.array(seen).T
    assert np.all(np.diff(done) > 0)
    assert done[-1] == SIGMAS.size
    assert np.all(total == SIGMAS.size)


def test_progress_is_for_calls_outside_a_trace():
    with pytest.raises(ValueError, match="outside jit"):
        jax.jit(lambda d: jaxacct.epsilon(_step(), d, steps=10, progress=print).upper)(1e-5)
