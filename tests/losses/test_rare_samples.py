"""Few runs on rare samples, whose losses are tiny: sound and narrow down to a rate of 1e-9."""

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
