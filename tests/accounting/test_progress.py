"""Progress of sweeps over many settings."""

import jax
import numpy as np
import pytest

import jaxacct

SAMPLED = jaxacct.PoissonSampled(jaxacct.Gaussian(np.linspace(0.8, 4.0, 21)), 0.01)


@pytest.mark.parametrize(
    ("query", "mechanism", "at", "total"),
    [
        (jaxacct.epsilon, SAMPLED, 1e-5, 21),
        (jaxacct.epsilon, jaxacct.Laplace(np.linspace(5.0, 20.0, 6)), 1e-5, 6),
        (jaxacct.delta, jaxacct.RandomizedResponse(np.linspace(0.1, 1.0, 150)), 0.5, 150),
    ],
)
def test_progress_ends_at_the_total(query, mechanism, at, total):
    seen = []
    query(mechanism, at, steps=50, relation="remove", progress=lambda *numbers: seen.append(numbers))
    done, totals = np.array(seen).T
    assert np.all(np.diff(done) > 0)
    assert done[-1] == total
    assert np.all(totals == total)
    assert len(done) > 2 or total < 150


def test_progress_is_for_calls_outside_a_trace():
    with pytest.raises(ValueError, match="outside jit"):
        jax.jit(lambda d: jaxacct.epsilon(SAMPLED, d, steps=10, progress=print).upper)(1e-5)
