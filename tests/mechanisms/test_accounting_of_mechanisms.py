"""delta and epsilon of the mechanisms: reference rows, brute force, and what has no analysis."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from scipy import stats

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


def _atoms(mechanism, relation, cells):
    """A dominating pair with equally spaced losses, by the chords of the pair's curve."""
    with jax.enable_x64(True):
        ((pair, _),) = jaxacct.mechanisms.directions.directions(mechanism, relation)[0]
        pair = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, np.float64), pair)
        low = -6.0
        high = min(float(pair.max_loss()) * (1 + 1e-12), 6.0)
        losses = np.linspace(low, high, cells)
        p_above, p_below, q_above, _, _ = jax.tree.map(np.asarray, pair.tails(losses))
    p, q = -np.diff(p_above), -np.diff(q_above)
    up = np.clip((p - np.exp(losses[:-1]) * q) / -np.expm1(losses[:-1] - losses[1:]), 0, p)
    masses = np.append(p - up, 0) + np.append(0, up)
    masses[0] += p_below[0]
    return losses, masses, p_above[-1]


@pytest.mark.parametrize(
    ("mechanism", "relation"),
    [
        (Laplace(1.5), "remove"),
        (PoissonSampled(Laplace(0.7), 0.3), "remove"),
        (PoissonSampled(Laplace(0.7), 0.3), "add"),
        (RandomSensitivityGaussian(1.2, (0.0, 1.0, 2.0), (0.5, 0.3, 0.2)), "remove"),
        (RandomSensitivityGaussian(1.2, (0.0, 1.0, 2.0), (0.5, 0.3, 0.2)), "add"),
        (Exponential(1.0), "remove"),
        (SampledWithoutReplacement(Gaussian(1.0), 1, 5), "remove"),
    ],
    ids=["laplace", "sampled laplace", "sampled laplace added", "mixture", "mixture added", "exponential", "wor"],
)
@pytest.mark.slow
def test_three_runs_against_a_plain_convolution(mechanism, relation):
    epsilon = np.array([0.1, 0.8])
    bounds = jaxacct.delta(mechanism, epsilon, steps=3, relation=relation)
    found = []
    for cells in (1001, 2001):
        losses, masses, infinite = _atoms(mechanism, relation, cells)
        mass = np.convolve(np.convolve(masses, masses), masses)
        total = 3 * losses[0] + (losses[1] - losses[0]) * np.arange(mass.size)
        finite = [(mass * np.maximum(-np.expm1(e - total), 0)).sum() for e in epsilon]
        found.append(np.array(finite) + 1 - (1 - infinite) ** 3)
    coarse, fine = found
    # Chords err from above, by second order: extrapolation removes most of it.
    truth = fine - (coarse - fine) / 3
    assert np.all(bounds.lower <= fine)
    assert np.all(bounds.upper >= truth * (1 - 1e-5))
    np.testing.assert_allclose(bounds.upper, truth, rtol=2e-3)


@pytest.mark.slow
def test_permute_and_flip_composes_like_randomized_response():
    epsilon0, steps, epsilon = 0.5, 4, 0.6
    truth = 0.0
    for signs in itertools.product((-1, 1), repeat=steps):
        loss = epsilon0 * sum(signs)
        probability = np.prod([1 / (1 + np.exp(-sign * epsilon0)) for sign in signs])
        truth += probability * max(-np.expm1(epsilon - loss), 0.0)
    bounds = jaxacct.delta(PermuteAndFlip(epsilon0), epsilon, steps=steps)
    assert bounds.lower <= truth * (1 + 1e-12)
    assert truth * (1 - 1e-12) <= bounds.upper <= truth * 1.001


# Closed forms behind dp_accounting's own numeric cases (pld/privacy_loss_distribution_test.py), derived anew.


@pytest.mark.parametrize(("scale", "sensitivity"), [(1.0, 1.0), (2.0, 2.0), (0.5, 1.0), (0.5, 4.0)])
def test_laplace_hockey_sticks_are_closed(scale, sensitivity):
    eps0 = sensitivity / scale
    epsilon = np.array([-0.3, 0.0, 0.3, 0.9])
    inside = np.abs(epsilon) < eps0
    truth = np.where(inside, -np.expm1((epsilon - eps0) / 2), 0.0)
    bounds = jaxacct.delta(Laplace(scale, sensitivity), epsilon)
    assert np.all(bounds.lower <= truth + 1e-16)
    assert np.all(truth <= bounds.upper * (1 + 1e-15))
    np.testing.assert_allclose(bounds.upper, truth, atol=1e-13)


@pytest.mark.parametrize(("rate", "relation"), [(0.1, "remove"), (0.1, "add"), (0.7, "remove"), (0.7, "add")])
def test_sampled_laplace_hockey_sticks_are_closed(rate, relation):
    """H'(1 + q (gamma - 1)) = q H(gamma) for `remove`; for `add` by exchanging P and Q."""
    epsilon = np.array([0.05, 0.3])
    gamma = np.exp(epsilon)
    plain = lambda g: np.where(g < np.e, np.where(g < 1 / np.e, 1 - g, 1 - np.sqrt(g / np.e)), 0.0)  # noqa: E731
    if relation == "remove":
        truth = rate * plain(1 + (gamma - 1) / rate)
    else:
        other = np.maximum(1 + (1 / gamma - 1) / rate, 0.0)
        inside = 1 / gamma > 1 - rate
        truth = np.where(inside, gamma * rate * plain(other) + 1 - gamma, 0.0)
    bounds = jaxacct.delta(PoissonSampled(Laplace(1.0), rate), epsilon, relation=relation)
    np.testing.assert_allclose(bounds.lower, truth, atol=1e-12)
    np.testing.assert_allclose(bounds.upper, truth, atol=1e-12)


def test_a_mixture_of_one_component_is_the_gaussian():
    epsilon = np.array([0.2, 1.0, 2.0])
    mu = 2.0 / 1.5
    truth = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    bounds = jaxacct.delta(RandomSensitivityGaussian(1.5, [2.0], [1.0]), epsilon)
    np.testing.assert_allclose(bounds.lower, truth, rtol=1e-11)
    np.testing.assert_allclose(bounds.upper, truth, rtol=1e-11)


@pytest.mark.slow
def test_mechanisms_of_different_kinds_compose_and_order_does_not_matter():
    parts = [Laplace(2.0), PoissonSampled(Gaussian(1.0), 0.1), Exponential(0.3), PoissonSampled(Laplace(1.0), 0.2)]
    one = jaxacct.delta(Composed(parts, [1, 2, 1, 3]), 0.7)
    two = jaxacct.delta(Composed(parts[::-1], [3, 1, 2, 1]), 0.7)
    assert one.lower <= two.upper
    assert two.lower <= one.upper
    assert one.upper == pytest.approx(two.upper, rel=1e-3)
    alone = jaxacct.delta(parts[0], 0.7)
    assert alone.upper < one.upper


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
