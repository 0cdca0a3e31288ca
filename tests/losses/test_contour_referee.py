"""What a hostile reading of the contour found: rounding of log1p, derivatives at a rate of 1 and of a few runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

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


def _two_runs(sigma, rate, epsilon):
    """delta of two runs, `remove`: the mean over one output of the other's hockey stick in closed form."""
    mu = 1 / sigma
    t, step = np.linspace(-9.5, 9.5 + mu, 4001, retstep=True)
    ratio = 1 - rate + rate * np.exp(mu * t - mu * mu / 2)
    left = epsilon - np.log(ratio)
    inside = np.expm1(left) / rate
    cut = (np.log1p(np.maximum(inside, -1 + 1e-16)) + mu * mu / 2) / mu
    stick = (1 - rate) * ndtr(-cut) + rate * ndtr(mu - cut) - np.exp(left) * ndtr(-cut)
    stick = np.where(inside > -1, stick, -np.expm1(left))
    return np.sum(ratio * np.exp(-t * t / 2) * stick) * step / np.sqrt(2 * np.pi)


@pytest.mark.slow
def test_derivatives_of_a_few_runs_are_right():
    sigma, rate, epsilon = (
        np.array(x) for x in ([5.0, 1.0, 2.0, 0.6, 0.8], [0.5, 0.3, 0.01, 0.02, 1e-4], [0.2, 1.0, 0.1, 0.05, 2.0])
    )

    def delta(s, q, e):
        return jaxacct.delta(jaxacct.PoissonSampled(jaxacct.Gaussian(s), q), e, steps=2, relation="remove").upper.sum()

    with jax.enable_x64(True):
        slopes = np.array(jax.jit(jax.grad(delta, (0, 1, 2)))(sigma, rate, epsilon))
    numbers = np.stack([sigma, rate, epsilon])
    for place in range(3):
        for i in range(numbers.shape[1]):
            h = 1e-4 * numbers[place, i] * np.eye(3)[place]
            at = [_two_runs(*(numbers[:, i] + k * h)) for k in (-2, -1, 1, 2)]
            truth = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h[place])
            # Transforms that hardly decay leave it to laws, whose derivatives have fewer digits.
            assert np.isnan(slopes[place, i]) or slopes[place, i] == pytest.approx(truth, rel=1e-6 if i == 0 else 1e-2)
    assert np.isfinite(slopes[:, 0]).all()  # a transform that decays
