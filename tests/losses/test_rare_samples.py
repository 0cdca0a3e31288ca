"""Few runs on rare samples, whose losses are tiny: sound and narrow down to a rate of 1e-9."""

import jax
import numpy as np
import pytest
import scipy.stats

import jaxacct


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta", "low", "high"),
    [
        # From laws of 2,048 points, which enclose the truth.
        (1.0, 1e-4, 10_000, 1e-8, 0.062301, 0.062308),
        (0.7, 1e-5, 100_000, 1e-8, 0.057854, 0.057861),
        (0.77, 2e-6, 157_360, 1e-10, 0.010688, 0.010691),
    ],
)
def test_many_rare_runs_are_narrow(sigma, rate, steps, delta, low, high):
    query = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    lower, upper = jaxacct.epsilon(query, delta, steps=steps)
    assert lower <= high
    assert low <= upper
    assert upper - lower <= 5e-4 * upper


@pytest.mark.parametrize(
    "mechanism",
    [
        jaxacct.DiscreteGaussian(0.9),
        jaxacct.RandomSensitivityGaussian(0.9, (1.0, 0.5), (0.4, 0.6)),
        jaxacct.Laplace(0.9),
    ],
    ids=["discrete Gaussian", "mixture", "Laplace"],
)
def test_many_rare_runs_of_other_noise_are_narrow(mechanism):
    lower, upper = jaxacct.epsilon(jaxacct.PoissonSampled(mechanism, 5e-5), 1e-8, steps=30_000)
    assert 0 < upper - lower <= 2e-3 * lower


@pytest.mark.parametrize(("response", "rate", "steps"), [(1.0, 1e-7, 10**6), (1.0, 1e-7, 10**8), (4.0, 1e-6, 10**5)])
def test_rare_responses_are_narrow_around_the_binomial_truth(response, rate, steps):
    truthful = 1.0 / (1.0 + np.exp(-response))
    up, down = (np.log1p(rate * np.expm1(loss)) for loss in (response, -response))
    mass = rate * truthful + (1.0 - rate) * (1.0 - truthful)
    mean, deviation = steps * mass, np.sqrt(steps * mass * (1.0 - mass))
    count = np.arange(np.floor(mean - 12.0 * deviation), np.ceil(mean + 12.0 * deviation))
    at = 5.0 * deviation * (up - down)
    excess = -np.expm1(np.minimum(at - count * up - (steps - count) * down, 0.0))
    truth = (scipy.stats.binom.pmf(count, steps, mass) * excess).sum()
    query = jaxacct.PoissonSampled(jaxacct.RandomizedResponse(response), rate)
    lower, upper = jaxacct.delta(query, at, steps=steps, relation="remove")
    assert lower <= truth * (1.0 + 1e-6)
    assert truth * (1.0 - 1e-6) <= upper
    assert upper <= lower * (1.0 + 2e-4)


@pytest.mark.parametrize("relation", ["remove", "add"])
def test_losses_of_rare_samples_are_rounded_by_their_size(relation):
    """Of a millionth the losses are a millionth, and so is what a million of them are off by."""
    for mechanism in (jaxacct.Laplace(1.0), jaxacct.RandomizedResponse(1.0), jaxacct.DiscreteLaplace(1.0)):
        query = jaxacct.PoissonSampled(mechanism, 1e-6)
        lower, upper = jaxacct.epsilon(query, [1e-6, 1e-10], steps=10**6, relation=relation)
        assert np.all((lower > 0) & (upper <= lower * (1.0 + 2e-6)))


@pytest.mark.parametrize("delta", [1e-290, 1e-300, 1e-303])
def test_the_smallest_deltas_have_narrow_bounds(delta):
    for mechanism, steps in ((jaxacct.PoissonSampled(jaxacct.Gaussian(100.0), 0.01), 1000), (jaxacct.Laplace(5.0), 30)):
        lower, upper = jaxacct.epsilon(mechanism, delta, steps=steps)
        assert 0 < lower <= upper <= 1.001 * lower


@pytest.mark.filterwarnings("ignore:.*bounds of epsilon are wide")
@pytest.mark.parametrize("delta", [1e-304, 1e-305, 1e-307])
@pytest.mark.parametrize(("sigma", "rate"), [(100.0, 0.01), (1.0, 0.01), (1.0, 1e-3)])
def test_deltas_next_to_underflow_have_epsilons_within_a_fifth(sigma, rate, delta):
    lower, upper = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate), delta, steps=1000)
    assert 0 < lower <= upper <= 1.2 * lower


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [(1.7058842566533208, 0.02252678205751626, 18, 2.8692359739133093e-12), (1.0, 1e-3, 10, 1e-5)],
)
def test_epsilon_of_rare_runs_has_a_derivative(sigma, rate, steps, delta):
    def epsilon(sigma):
        return jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate), delta, steps=steps).upper

    with jax.enable_x64(True):
        slope = jax.grad(epsilon)(sigma)
    step = 0.02 * sigma
    assert float(slope) == pytest.approx((epsilon(sigma + step) - epsilon(sigma - step)) / (2.0 * step), rel=1e-2)
