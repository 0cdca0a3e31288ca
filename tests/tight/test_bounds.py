"""Compositions of every family with a transform: the truth lies within bounds that are a millionth wide."""

import mpmath
import numpy as np
import pytest
import scipy.stats

from jaxacct import (
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FromTables,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    RandomSensitivityGaussian,
    SampledWithReplacement,
    Skellam,
    delta,
    epsilon,
)
from tests.compositions import (
    gaussian_mass,
    inverted,
    laplace_delta,
    mixture,
    of_outcomes,
    sampled_laplace,
    skellam_mass,
    whole_numbers,
)

SAMPLED = PoissonSampled(Laplace(2.0), 0.01)
MIXTURE = RandomSensitivityGaussian(1.0, (0, 1, 2), (0.9, 0.09, 0.01))
ROWS = ((0.0, 0.9), (1.0, 0.09), (2.0, 0.01))
SHIFT = ((0.0, 0.99), (1.0, 0.01))  # a sampled Gaussian
# Name: the mechanism, runs, and its delta in the direction `remove` as a function of epsilon.
TRUTHS = {
    "Laplace, 40": (Laplace(6.25), 40, lambda at: laplace_delta(6.25, 40, at)),
    "Laplace, 10": (Laplace(6.25), 10, lambda at: laplace_delta(6.25, 10, at)),
    "Laplace, 3": (Laplace(0.5), 3, lambda at: laplace_delta(0.5, 3, at)),
    "sampled Laplace": (SAMPLED, 1000, inverted(lambda z: sampled_laplace(2.0, 0.01)(z) ** 1000, 40, 3, 300)),
    "mixture": (MIXTURE, 1000, inverted(lambda z: mixture(ROWS)(z) ** 1000, 0.4, 0.04, 75)),
    "composed": (
        Composed((PoissonSampled(Gaussian(1.0), 0.01), Laplace(20.0)), (500, 20)),
        1,
        inverted(lambda z: mixture(SHIFT)(z) ** 500 * sampled_laplace(20.0, 1.0)(z) ** 20, 5, 0.3, 200),
    ),
    "sampled discrete Gaussian": (
        PoissonSampled(DiscreteGaussian(2.0), 0.1),
        2,
        lambda at: of_outcomes(*whole_numbers(gaussian_mass(2.0), 0.1), at),
    ),
    "Skellam": (Skellam(4.0), 2, lambda at: of_outcomes(*whole_numbers(skellam_mass(4.0), 1), at)),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_bounds_enclose_the_truth(name):
    mechanism, runs, truth = TRUTHS[name]
    found = epsilon(mechanism, 1e-5, steps=runs, relation="remove")
    if found.lower > 0:
        assert truth(float(found.lower)) >= mpmath.mpf("1e-5")
    assert truth(float(found.upper)) <= mpmath.mpf("1e-5")
    for at in (0.3 * float(found.upper), float(found.upper)):
        lower, upper = delta(mechanism, at, steps=runs, relation="remove")
        assert lower <= truth(at) <= upper


NARROW = {
    **{name: (mechanism, runs) for name, (mechanism, runs, _) in TRUTHS.items() if runs > 3},
    "Laplace, 100": (Laplace(10.0), 100),
    "discrete Gaussian": (DiscreteGaussian(5.0), 100),
    "sampled discrete Gaussian, 500": (PoissonSampled(DiscreteGaussian(4.0), 0.02), 500),
    "Skellam, 100": (Skellam(50.0), 100),
    "randomized response": (RandomizedResponse(0.01, 4), 10_000),
    "Laplace, 100,000": (Laplace(632.0), 100_000),
    "Gaussian": (Gaussian(5.0), 100),
    "sampled Gaussian": (PoissonSampled(Gaussian(1.0), 0.01), 1000),
    "rare": (PoissonSampled(Gaussian(1.0), 1e-4), 3),
    "exponential": (Exponential(0.1), 200),
    "discrete Laplace": (DiscreteLaplace(8.0, sensitivity=3), 300),
    "tables": (FromTables([0.5, 0.3, 0.2], [0.45, 0.3, 0.25]), 500),
    "responses and noise": (Composed([PoissonSampled(Gaussian(1.0), 0.01), RandomizedResponse(0.05)], [500, 9]), 1),
}
WIDER = {  # of epsilon, and of delta
    "Laplace, 10": (1e-6, 1e-5),  # 97 % of delta are one atom's, whose transform does not decay
    "rare": (2e-4, 2e-4),
    "exponential": (1e-4, 1e-3),
}


@pytest.mark.parametrize("name", NARROW)
def test_bounds_are_a_millionth_wide(name):
    mechanism, runs = NARROW[name]
    lower, upper = epsilon(mechanism, np.array([1e-5, 1e-9, 1e-12]), steps=runs)
    width, other = WIDER.get(name, (1e-6, 1e-6))
    assert (upper <= lower * (1 + width)).all(), upper / lower - 1
    lower, upper = delta(mechanism, np.array([0.7, 1.0]) * upper[0], steps=runs)
    assert (upper <= lower * (1 + np.array([2e-3, other]))).all()


def test_known_answers():
    # From prototypes of other methods.
    drawn = epsilon(SampledWithReplacement(Gaussian(1.0), 100, 10_000), 1e-5, steps=1000)
    assert drawn.lower >= drawn.upper * (1 - 1e-6)
    assert float(drawn.upper) == pytest.approx(1.88910564, rel=1e-6)
    assert float(epsilon(Laplace(10.0), 1e-5, steps=100).upper) == pytest.approx(4.2203472361, rel=1e-6)
    assert float(epsilon(SAMPLED, 1e-5, steps=1000, relation="remove").upper) == pytest.approx(0.5304450592, rel=1e-9)


@pytest.mark.parametrize("runs", [2, 3, 5, 10])
@pytest.mark.parametrize("rate", [1e-2, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_epsilons_of_few_rare_runs_are_narrow(noise, rate, runs):
    low, high = epsilon(PoissonSampled(Gaussian(noise), rate), np.array([rate / 10, rate / 1000]), steps=runs)
    assert np.all(high - low <= 5e-4 * high)


def test_epsilons_of_few_rare_runs_of_laplace_noise_are_a_thousandth_wide():
    for rate in (1e-3, 1e-6, 1e-9):
        for steps in (2, 5, 10):
            low, high = epsilon(PoissonSampled(Laplace(1.0), rate), rate / 10, steps=steps)
            assert 0 < high - low <= 1e-3 * np.asarray(high)


def test_parts_of_very_different_length_compose_tightly():
    schedule = Composed([Gaussian(0.5), PoissonSampled(Gaussian(1.0), 1e-3)], [1, 100_000])
    bounds = delta(schedule, np.array([0.5, 5.0]))
    assert np.all(bounds.lower > 0)
    assert np.all(bounds.upper / bounds.lower < 1.01)


def test_deltas_near_one_are_as_narrow_as_others_and_mirror_each_other():
    """The hockey stick of (P, Q) at epsilon is 1 - e^epsilon + e^epsilon times that of (Q, P) at -epsilon."""
    noise, rate, steps = np.array([[0.6, 0.6, 1.0], [0.02, 0.02, 0.04], [5000.0, 500.0, 9000.0]])[..., None]
    at = np.array([0.25, 1.0, 3.0])

    def both(relation, x):
        sampled = PoissonSampled(Gaussian(noise), rate)
        return np.array(delta(sampled, x, steps=steps, relation=relation))

    lower, upper = both("remove", at)
    mirrored_lower, mirrored_upper = 1 - np.exp(at) + np.exp(at) * both("add", -at)
    assert (upper <= lower * (1 + 1e-6)).all()
    assert upper.max() > 0.8
    assert (lower <= mirrored_upper + 1e-13).all()
    assert (mirrored_lower <= upper + 1e-13).all()


@pytest.mark.filterwarnings("ignore:.*bounds of delta are wide")
def test_tiny_deltas_of_rare_samples_are_never_far_above():
    sampled = PoissonSampled(Gaussian(2.25), 6e-4)
    assert delta(sampled, [0.4, 0.5], steps=2405).upper.max() < 1e-15


def test_far_tails_and_deltas_next_to_1_are_narrow():
    lower, upper = delta(PoissonSampled(Gaussian(1.0), 0.01), np.array([2.0, 6.0, 10.0]), steps=1000)
    assert np.all(upper / lower - 1 < 1e-2)
    assert 1e-34 < upper[2] < 1e-31
    lower, upper = delta(PoissonSampled(Gaussian(0.9), 0.0766), 2.73, steps=36_429)
    assert 0.9999 < lower <= upper <= 1.0


@pytest.mark.parametrize(("scale", "steps"), [(42.54, 338_552), (8.0, 2_000_000), (5.0, 30_000)])
@pytest.mark.parametrize("deviations", [-3.0, -1.0, 0.0])
def test_many_runs_of_weak_privacy_have_narrow_deltas_near_1(scale, steps, deviations):
    # Losses are 1 / scale or its negative, so their sum is a binomial count.
    up = 1.0 / (1.0 + np.exp(-1.0 / scale))
    at = (steps * (2.0 * up - 1.0) + deviations * 2.0 * np.sqrt(steps * up * (1.0 - up))) / scale
    count = np.arange(np.floor((at * scale + steps) / 2.0) + 1.0, steps + 1.0)
    mass = scipy.stats.binom.pmf(count, steps, up)
    truth = -(mass * np.expm1(np.minimum(at - (2.0 * count - steps) / scale, 0.0))).sum()
    lower, upper = delta(DiscreteLaplace(scale), at, steps=steps)
    assert lower <= truth * (1.0 + 1e-8)
    assert truth * (1.0 - 1e-8) <= upper
    assert upper <= lower * (1.0 + 1e-4)
