"""delta and epsilon of the mechanisms: reference rows, brute force, and what has no analysis."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct import (
    Composed,
    DiscreteGaussian,
    Exponential,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    PoissonSampled,
    RandomAllocation,
    RandomizedResponse,
    RandomSensitivityGaussian,
    SampledWithoutReplacement,
    Shuffled,
    epsilon,
)
from tests.refusals import all_refused

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of .* are wide:RuntimeWarning")


def test_two_runs_of_the_exponential_mechanism_are_an_integral_over_the_first_one_s_loss():
    """With H(x) = (1 - e^((x - c) / 2))^2 / (1 - e^-c) below c, losses have the density H'' - H' under P."""
    c, at = 1.0, np.array([0.1, 0.8, 1.7])
    curve = lambda x: np.where(x < c, np.where(x <= -c, -np.expm1(x), np.expm1((x - c) / 2) ** 2 / -np.expm1(-c)), 0.0)  # noqa: E731
    loss, weights = np.polynomial.legendre.leggauss(400)
    density = np.exp((c * loss - c) / 2) / 2 / -np.expm1(-c)
    truth = [(c * weights * density * curve(x - c * loss)).sum() for x in at]
    bounds = jaxacct.delta(Exponential(c), at, steps=2, relation="remove")
    assert np.all((bounds.lower <= truth) & (truth <= bounds.upper))
    np.testing.assert_allclose(bounds.upper, truth, rtol=1e-3)


def test_traced_weights_and_rates_that_make_no_sense_fail_closed():
    @jax.jit
    def worst(value):
        made = [RandomSensitivityGaussian(1.0, (0.0, 1.0), (0.5, value)), PoissonSampled(Laplace(1.0), value)]
        return [jaxacct.delta(one, 1.0).upper for one in made]

    assert np.all(np.asarray(worst(-1.0)) == 1.0)
    assert np.all(np.asarray(worst(np.nan)) == 1.0)


def test_what_has_no_analysis_says_what_would_work():
    gaussian, sampled = Gaussian(1.0), PoissonSampled(Gaussian(1.0), 0.1)
    ask = lambda mechanism, relation="add_or_remove": lambda: jaxacct.delta(mechanism, 1.0, relation=relation)  # noqa: E731
    mixture = lambda *given: lambda: RandomSensitivityGaussian(1.0, *given)  # noqa: E731
    all_refused(
        ("scale must be .*, got None", lambda: Laplace(None)),
        ("rate must be .*, got None", lambda: PoissonSampled(gaussian, None)),
        ("scale must be a finite number above 0, got 0", lambda: Laplace(0.0)),
        ("epsilon must be a finite number above 0, got -1", lambda: Exponential(-1.0)),
        ("epsilon must be a finite number above 0, got inf", lambda: PermuteAndFlip(np.inf)),
        ("weights must hold one number for each sensitivity", mixture((1.0,), (0.5, 0.5))),
        ("weights must sum up to 1, got 1.1", mixture((1.0, 2.0), (0.5, 0.6))),
        ("sensitivities must hold a number above 0", mixture((0.0,), (1.0,))),
        ("sensitivities must be .* at least 0, got -1", mixture((-1.0,), (1.0,))),
        ("sample_size must be at most dataset_size", lambda: SampledWithoutReplacement(gaussian, 5, 4)),
        ("sample_size must be a whole number", lambda: SampledWithoutReplacement(gaussian, 0.5, 4)),
        ("'replace' is an upper bound", ask(SampledWithoutReplacement(gaussian, 1, 4), "zero_out")),
        ("PoissonSampled, whose pair is not symm", ask(SampledWithoutReplacement(sampled, 1, 4), "replace")),
        ("of DiscreteGaussian; .*group privacy", ask(PoissonSampled(DiscreteGaussian(2.0), 0.1), "replace")),
        ("one run is one pair, got Composed", ask(PoissonSampled(Composed([Laplace(1.0), gaussian]), 0.1))),
        ("Shuffled, whose pair is not symmetric", ask(SampledWithoutReplacement(Shuffled(gaussian, 4), 1, 4))),
        ("one run is one pair, got RandomAllocation", ask(Shuffled(RandomAllocation(gaussian, 4, 4), 4))),
        ("mechanism must be one of those", lambda: PoissonSampled("laplace", 0.1)),
    )


@pytest.mark.parametrize(
    ("several", "relation"),
    [
        (RandomAllocation(Gaussian(1.0), 4, 2), "add_or_remove"),
        (Shuffled(Composed([Laplace(1.0)], steps=5), 4), "add_or_remove"),
        (Composed([RandomizedResponse(1.0)], steps=5), "replace"),
        (Composed([Laplace(1.0)], steps=5), "add_or_remove"),
    ],
)
def test_a_sample_of_several_runs_is_refused_and_not_charged_as_one_of_them(several, relation):
    with pytest.raises(ValueError, match="of which one run is one pair"):
        epsilon(PoissonSampled(several, 1.0), delta=1e-5, relation=relation)


def test_traced_numbers_of_runs_on_a_sample_fail_closed():
    several = lambda steps: PoissonSampled(Composed([RandomizedResponse(1.0)], steps=steps), 1.0)  # noqa: E731
    found = jax.jit(lambda steps: epsilon(several(steps), delta=1e-5, relation="replace").upper)
    assert np.isinf(found(5))
    assert np.isfinite(found(1))
