"""Compositions of every family with a transform: the truth lies within bounds that are a millionth wide."""

import mpmath
import numpy as np
import pytest

from jaxacct import (
    Composed,
    DiscreteGaussian,
    Gaussian,
    Laplace,
    MixtureOfGaussians,
    PoissonSampled,
    RandomizedResponse,
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
MIXTURE = MixtureOfGaussians(1.0, (0, 1, 2), (0.9, 0.09, 0.01))
ROWS = ((0.0, 0.9), (1.0, 0.09), (2.0, 0.01))
SHIFT = ((0.0, 0.99), (1.0, 0.01))  # a sampled Gaussian
# Name: the mechanism, runs, and its delta in the direction `remove` as a function of epsilon.
TRUTHS = {
    "Laplace, 40": (Laplace(6.25), 40, lambda at: laplace_delta(6.25, 40, at)),
    "Laplace, 10": (Laplace(6.25), 10, lambda at: laplace_delta(6.25, 10, at)),
    "Laplace, 3": (Laplace(0.5), 3, lambda at: laplace_delta(0.5, 3, at)),
    "sampled Laplace": (
        SAMPLED,
        1000,
        inverted(lambda z: sampled_laplace(2.0, 0.01)(z) ** 1000, 40, 3, 300),
    ),
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
}


@pytest.mark.parametrize("name", NARROW)
def test_bounds_are_a_millionth_wide(name):
    mechanism, runs = NARROW[name]
    lower, upper = epsilon(mechanism, np.array([1e-5, 1e-9, 1e-12]), steps=runs)
    assert (upper <= lower * (1 + 1e-6)).all(), upper / lower - 1
    lower, upper = delta(mechanism, upper[0], steps=runs)
    assert upper <= lower * (1 + 1e-6)


def test_known_answers():
    # From prototypes of other methods.
    drawn = epsilon(SampledWithReplacement(Gaussian(1.0), 100, 10_000), 1e-5, steps=1000)
    assert drawn.lower >= drawn.upper * (1 - 1e-7)
    assert float(drawn.upper) == pytest.approx(1.88910564, abs=5e-8)
    assert float(epsilon(Laplace(10.0), 1e-5, steps=100).upper) == pytest.approx(4.2203472361, rel=1e-6)
    assert float(epsilon(SAMPLED, 1e-5, steps=1000, relation="remove").upper) == pytest.approx(0.5304450592, rel=1e-9)
