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

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of .* are wide:RuntimeWarning")


def test_laplace_brackets_the_reference_rows_and_is_tight_from_above(reference):
    rows = [row for row in reference("closed_forms.json") if row["mechanism"] == "laplace"]
    column = lambda name: np.array([row[name] for row in rows])  # noqa: E731
    delta = column("delta")
    bounds = jaxacct.delta(Laplace(column("scale"), column("sensitivity")), column("epsilon"), steps=column("steps"))
    assert np.all(bounds.lower <= delta * (1 + 2e-9))
    assert np.all(delta * (1 - 2e-9) <= bounds.upper)
    assert np.all(bounds.upper <= delta * (1 + 1e-3))


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Laplace(None), "scale must be .*, got None"),
        (lambda: PoissonSampled(Gaussian(1.0), None), "rate must be .*, got None"),
        (lambda: Laplace(0.0), "scale must be a finite number above 0, got 0"),
        (lambda: Exponential(-1.0), "epsilon must be a finite number above 0, got -1"),
        (lambda: PermuteAndFlip(np.inf), "epsilon must be a finite number above 0, got inf"),
        (
            lambda: RandomSensitivityGaussian(1.0, (1.0,), (0.5, 0.5)),
            "weights must hold one number for each sensitivity",
        ),
        (lambda: RandomSensitivityGaussian(1.0, (1.0, 2.0), (0.5, 0.6)), "weights must sum up to 1, got 1.1"),
        (lambda: RandomSensitivityGaussian(1.0, (0.0,), (1.0,)), "sensitivities must hold a number above 0"),
        (lambda: RandomSensitivityGaussian(1.0, (-1.0,), (1.0,)), "sensitivities must be .* at least 0, got -1"),
        (lambda: SampledWithoutReplacement(Gaussian(1.0), 5, 4), "sample_size must be at most dataset_size"),
        (lambda: SampledWithoutReplacement(Gaussian(1.0), 0.5, 4), "sample_size must be a whole number"),
        (
            lambda: jaxacct.delta(SampledWithoutReplacement(Gaussian(1.0), 1, 4), 1.0, relation="zero_out"),
            "SampledWithoutReplacement; 'replace' is an upper bound",
        ),
        (
            lambda: jaxacct.delta(
                SampledWithoutReplacement(PoissonSampled(Gaussian(1.0), 0.1), 1, 4), 1.0, relation="replace"
            ),
            "no analysis for PoissonSampled, whose pair is not symmetric",
        ),
        (
            lambda: jaxacct.delta(PoissonSampled(DiscreteGaussian(2.0), 0.1), 1.0, relation="replace"),
            "'replace' has no analysis for PoissonSampled of DiscreteGaussian; .*group privacy",
        ),
        (
            lambda: jaxacct.delta(PoissonSampled(Composed([Laplace(1.0), Gaussian(1.0)]), 0.1), 1.0),
            "PoissonSampled needs a mechanism of which one run is one pair, got Composed",
        ),
        (
            lambda: jaxacct.delta(SampledWithoutReplacement(Shuffled(Gaussian(1.0), 4), 1, 4), 1.0),
            "no analysis for Shuffled, whose pair is not symmetric",
        ),
        (
            lambda: jaxacct.delta(Shuffled(RandomAllocation(Gaussian(1.0), 4, 4), 4), 1.0),
            "Shuffled needs a mechanism of which one run is one pair, got RandomAllocation",
        ),
        (lambda: jaxacct.delta(PoissonSampled("laplace", 0.1), 1.0), "mechanism must be one of those"),
    ],
)
def test_what_has_no_analysis_says_what_would_work(call, message):
    with pytest.raises(ValueError, match=message):
        call()


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
