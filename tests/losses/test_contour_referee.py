"""The derivative in the rate at a rate of 1 is its limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct


@pytest.mark.slow
def test_derivative_in_the_rate_at_a_rate_of_1_is_its_limit():
    sigma, epsilon = 2.0, 3.0

    def delta(rate):
        return jaxacct.delta(jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate), epsilon, steps=10, relation="add")

    with jax.enable_x64(True):
        at, near = jax.vmap(jax.grad(lambda rate: delta(rate).upper))(jnp.array([1.0, 1.0 - 1e-9]))
    np.testing.assert_allclose(at, near, rtol=1e-6)
    assert float(at) > 0.1
