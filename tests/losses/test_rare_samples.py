"""Few runs on rare samples, whose losses are tiny: sound and narrow down to a rate of 1e-9."""

import jax
import numpy as np
import pytest
import scipy.special
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


@pytest.mark.filterwarnings("ignore:.*bounds of epsilon are wide")
@pytest.mark.parametrize("delta", [1e-298, 1e-302, 1e-307])
@pytest.mark.parametrize("sigma", [0.7, 2.0, 30.0])
def test_discrete_gaussians_have_finite_epsilons_where_probabilities_underflow(sigma, delta):
    """Truth in logarithms: the hockey stick of one run is above delta before the lower bound, and below it after."""
    lower, upper = jaxacct.epsilon(jaxacct.DiscreteGaussian(sigma), delta)
    x = np.arange(-60.0 * sigma - 60.0, 60.0 * sigma + 61.0).round()
    log_q = -0.5 * (x / sigma) ** 2 - scipy.special.logsumexp(-0.5 * (x / sigma) ** 2)
    loss, log_p = (x - 0.5) / sigma**2, log_q + (x - 0.5) / sigma**2

    def log_delta(epsilon):
        return scipy.special.logsumexp(log_p[loss > epsilon] + np.log(-np.expm1(epsilon - loss[loss > epsilon])))

    assert log_delta(upper) <= np.log(delta) <= log_delta(lower * (1.0 - 1e-9))
    assert upper <= 1.2 * lower


@pytest.mark.filterwarnings("ignore:.*bounds of epsilon are wide")
@pytest.mark.parametrize(
    ("mechanism", "steps", "delta"),
    [
        (jaxacct.DiscreteGaussian(2.0, 3), 3, 1e-305),
        (jaxacct.PoissonSampled(jaxacct.DiscreteGaussian(2.0), 0.01), 20, 1e-307),
        (jaxacct.Skellam(4.0), 1, 1e-302),
        (jaxacct.ZeroConcentratedDP([0.5, 3.0]), 4, 1e-307),
        (jaxacct.RandomSensitivityGaussian(1.0, (0, 1, 2), (0.9, 0.09, 0.01)), 1, 1e-305),
        (jaxacct.Composed((jaxacct.DiscreteGaussian(2.0), jaxacct.Gaussian(3.0)), (2, 3)), 1, 1e-305),
        (jaxacct.RandomAllocation(jaxacct.Gaussian(0.8), 5), 1, 1e-20),  # the tables of its law end before
    ],
)
def test_deltas_that_no_engine_reaches_have_epsilons_by_moments(mechanism, steps, delta):
    lower, upper = jaxacct.epsilon(mechanism, delta, steps=steps)
    assert np.all((lower > 0) & (lower <= upper) & (upper < np.inf))


@pytest.mark.filterwarnings("ignore:.*bounds of epsilon are wide")
def test_a_delta_below_the_probability_of_failure_has_no_epsilon_however_small_it_is():
    assert jaxacct.epsilon(jaxacct.ApproximateDP(1.0, 1e-300), 1e-305) == (np.inf, np.inf)
    assert jaxacct.epsilon(jaxacct.DiscreteGaussian([1.0, 2.0]), 0.0).upper.tolist() == [np.inf, np.inf]
    lower, upper = jaxacct.epsilon(jaxacct.Exponential(1.0), 1e-300, steps=200)  # whose own divergence is smaller
    assert lower <= upper <= 200.0 * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"),
    [
        (1.7058842566533208, 0.02252678205751626, 18, 2.8692359739133093e-12),
        (1.0, 1e-3, 10, 1e-5),
        pytest.param(0.8, 1e-4, 100_000, 1e-5, marks=pytest.mark.slow),  # all digits of its transforms are lost
    ],
)
def test_epsilon_of_rare_runs_has_a_derivative(sigma, rate, steps, delta):
    def epsilon(sigma):
        return jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate), delta, steps=steps).upper

    with jax.enable_x64(True):
        slope = jax.grad(epsilon)(sigma)
    step = 0.02 * sigma
    assert float(slope) == pytest.approx((epsilon(sigma + step) - epsilon(sigma - step)) / (2.0 * step), rel=1e-2)
