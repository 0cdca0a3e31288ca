"""Few runs on rare samples, whose losses are tiny: sound and narrow down to a rate of 1e-9."""

import jax
import mpmath
import pytest

import jaxacct


def two_runs(sigma, rate, epsilon, relation):
    """delta of two runs of a sampled Gaussian, to 15 digits: the mean over one loss of the other's hockey stick."""
    mu, rate, epsilon = 1 / mpmath.mpf(sigma), mpmath.mpf(rate), mpmath.mpf(epsilon)
    above = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2  # noqa: E731
    density = lambda x: mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)  # noqa: E731
    loss = lambda t: mpmath.log1p(rate * mpmath.expm1(mu * t - mu * mu / 2))  # noqa: E731

    def outcome(loss):
        ratio = (mpmath.expm1(loss) + rate) / rate
        return (mpmath.log(ratio) + mu * mu / 2) / mu if ratio > 0 else None

    def remove(epsilon):
        t = outcome(epsilon)
        if t is None:
            return -mpmath.expm1(epsilon)
        return (1 - rate - mpmath.exp(epsilon)) * above(t) + rate * above(t - mu)

    def add(epsilon):
        t = outcome(-epsilon)
        if t is None:
            return mpmath.mpf(0)
        return above(-t) - mpmath.exp(epsilon) * ((1 - rate) * above(-t) + rate * above(mu - t))

    def integrand(t):
        if relation == "remove":
            return ((1 - rate) * density(t) + rate * density(t - mu)) * remove(epsilon - loss(t))
        return density(t) * add(epsilon + loss(t))

    # The integrand is not analytic where the other run's loss need only be the least one, or must be.
    end = outcome(epsilon - mpmath.log1p(-rate) if relation == "remove" else -epsilon - mpmath.log1p(-rate))
    if end is None:
        return mpmath.mpf(0)
    ends = sorted([mpmath.mpf(i) for i in range(-13, 19, 2)] + [end - mpmath.mpf(2) ** -k for k in range(40)] + [end])
    return mpmath.quad(integrand, [x for x in ends if relation == "remove" or x <= end])


@pytest.mark.parametrize(
    ("sigma", "rate", "epsilon"), [(1.0, 1e-9, 3e-9), (3.0, 1e-9, 1e-9), (1.0, 1e-7, 1e-6), (1.0, 1e-4, 1e-4)]
)
@pytest.mark.parametrize("relation", ["remove", "add"])
def test_two_rare_runs_are_enclosed_and_narrow(sigma, rate, epsilon, relation):
    with mpmath.workdps(30):
        truth = two_runs(sigma, rate, epsilon, relation)
    query = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    lower, upper = jaxacct.delta(query, epsilon, steps=2, relation=relation)
    assert lower <= truth <= upper
    assert upper - lower <= 1e-3 * upper
    if truth > 0:
        low, high = jaxacct.epsilon(query, float(truth), steps=2, relation=relation)
        assert low * (1 - 1e-12) <= epsilon <= high * (1 + 1e-12)
        assert high - low <= 1e-3 * high


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


@pytest.mark.parametrize("delta", [1e-290, 1e-300, 1e-303])
def test_the_smallest_deltas_have_narrow_bounds(delta):
    for mechanism, steps in ((jaxacct.PoissonSampled(jaxacct.Gaussian(100.0), 0.01), 1000), (jaxacct.Laplace(5.0), 30)):
        lower, upper = jaxacct.epsilon(mechanism, delta, steps=steps)
        assert 0 < lower <= upper <= 1.001 * lower


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
