"""Which way an answer is found depends on the question alone."""

import numpy as np
import pytest

import jaxacct
from jaxacct import (
    Composed,
    Gaussian,
    Laplace,
    PoissonSampled,
    SampledWithoutReplacement,
    UserLevel,
    ZeroConcentratedDP,
)


def test_a_fixed_sample_and_a_curve_are_answered_from_both_sides():
    fixed = SampledWithoutReplacement(Gaussian(2.0), 10, 1000)
    lower, upper = jaxacct.epsilon(fixed, 1e-5, steps=1000, relation="replace")
    low, high = jaxacct.epsilon(SampledWithoutReplacement(Laplace(5.0), 10, 1000), 1e-5, steps=100)
    _, above = jaxacct.epsilon(ZeroConcentratedDP(0.001), 1e-5, steps=10)
    assert 0.62 < lower < 0.623 < 0.718 < upper < 0.719  # an attack, and a proof
    assert low <= high <= low * (1 + 1e-3)
    assert 0.49 < above < 0.55


def test_an_answer_does_not_depend_on_earlier_questions():
    first = jaxacct.epsilon(PoissonSampled(Gaussian(1.3), 0.02), 1e-6, steps=700)
    jaxacct.epsilon(PoissonSampled(Gaussian(np.linspace(0.8, 3.0, 150)), 0.02), 1e-6, steps=700)
    assert jaxacct.epsilon(PoissonSampled(Gaussian(1.3), 0.02), 1e-6, steps=700) == first


@pytest.mark.parametrize("family", [Gaussian, Laplace])
def test_settings_of_a_batch_are_answered_as_they_are_alone(family):
    scales, steps = np.array([0.9, 2.0, 7.0]), np.array([1, 40, 5000])
    batch = jaxacct.epsilon(PoissonSampled(family(scales), 0.01), 1e-6, steps=steps)
    for i in range(3):
        alone = jaxacct.epsilon(PoissonSampled(family(scales[i]), 0.01), 1e-6, steps=steps[i])
        assert alone.lower <= batch.upper[i] * (1 + 1e-12)
        assert batch.lower[i] <= alone.upper * (1 + 1e-12)
        np.testing.assert_allclose(batch.upper[i], alone.upper, rtol=1e-6)


@pytest.mark.parametrize(
    ("mechanism", "steps", "last"),
    [
        (PoissonSampled(Gaussian(9.4), 0.328), 2000, 12.0),
        (UserLevel(Gaussian(2.0), 0.02, 20), 300, 20.0),
        (PoissonSampled(Laplace(3.0), 0.2), 400, 25.0),
        (Composed([PoissonSampled(Gaussian(1.0), 0.01), Laplace(30.0)], [500, 100]), 1, 6.0),
    ],
)
def test_a_curve_is_narrow_and_agrees_with_its_points(mechanism, steps, last):
    epsilons = np.concatenate([np.linspace(-1.0, last, 40), [last / 3]])
    for relation in ("add_or_remove", "add"):
        curve = jaxacct.delta(mechanism, epsilons, steps=steps, relation=relation)
        assert np.all(curve.upper - curve.lower <= 1e-3 * curve.upper)
        for i in (0, 3, 20, 38, 40):
            alone = jaxacct.delta(mechanism, epsilons[i], steps=steps, relation=relation)
            assert alone.lower <= curve.upper[i] * (1 + 1e-12)
            assert curve.lower[i] <= alone.upper * (1 + 1e-12)
