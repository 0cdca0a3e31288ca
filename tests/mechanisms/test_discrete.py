"""Mechanisms with finitely many losses, and discrete noise, against sums over their outputs."""

import fractions
import itertools
import math

import mpmath as mp
import numpy as np
import pytest

import jaxacct
from jaxacct import (
    GDP,
    ApproximateDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    FromTables,
    Gaussian,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of:RuntimeWarning")
P, Q = [0.5, 0.3, 0.1, 0.1, 0.0], [0.2, 0.3, 0.05, 0.4, 0.05]


def hockey_stick(p, q, epsilons):
    """sum_o (p_o - e^eps q_o)_+ in 400 digits."""
    with mp.workdps(400):
        p, q = ([mp.mpf(x) for x in table] for table in (p, q))
        gammas = [mp.exp(mp.mpf(float(e))) for e in np.ravel(epsilons)]
        return np.array([float(sum(max(a - g * b, mp.mpf(0)) for a, b in zip(p, q, strict=True))) for g in gammas])


def product(p, q, steps):
    """The tables of ``steps`` runs, with outputs that have the same counts taken together."""
    exact = lambda table: [fractions.Fraction(str(x)) for x in table]  # noqa: E731
    p, q = exact(p), exact(q)
    both = []
    for counts in itertools.product(range(steps + 1), repeat=len(p)):
        if sum(counts) == steps:
            ways = math.factorial(steps) // math.prod(math.factorial(c) for c in counts)
            both.append(tuple(ways * math.prod(x**c for x, c in zip(t, counts, strict=True)) for t in (p, q)))
    one = lambda side: [mp.mpf(pair[side].numerator) / pair[side].denominator for pair in both]  # noqa: E731
    return one(0), one(1)


def response_tables(epsilon, categories):
    with mp.workdps(400):
        big = mp.exp(mp.mpf(epsilon))
        total = big + categories - 1
        return [big / total, 1 / total] + [1 / total] * (categories - 2), [1 / total, big / total] + [1 / total] * (
            categories - 2
        )


def noise_tables(log_weight, shift, reach):
    with mp.workdps(400):
        weights = [mp.exp(log_weight(mp.mpf(x))) for x in range(-reach - shift, reach + 1)]
        total = mp.fsum(weights)
        weights = [w / total for w in weights]
        return [mp.mpf(0)] * shift + weights, weights + [mp.mpf(0)] * shift


def enclosed(bounds, truth, tight):
    """Sound to a unit (the truth is a float too), and tight: relative, and next to nothing where there is nothing."""
    assert np.all(bounds.lower <= truth * (1 + 1e-15))
    assert np.all(truth * (1 - 1e-15) <= bounds.upper)
    np.testing.assert_allclose(bounds.upper, truth, rtol=tight, atol=1e-280)
    np.testing.assert_allclose(bounds.lower, truth, rtol=tight, atol=1e-280)


def test_reference_rows_are_bracketed_and_tight_from_above(reference):
    for row in reference("closed_forms.json"):
        epsilon, delta, steps = row["epsilon"], row["delta"], row.get("steps", 1)
        if row["mechanism"] == "randomized_response":
            some = [RandomizedResponse(row["epsilon0"]), PureDP(row["epsilon0"]), ApproximateDP(row["epsilon0"], 0.0)]
        elif row["mechanism"] == "approx_dp":
            some = [ApproximateDP(row["epsilon0"], row["delta0"])]
        elif row["mechanism"] == "gaussian":
            some = [GDP(row["mu"])]
        else:
            continue
        for mechanism in some:
            lower, upper = jaxacct.delta(mechanism, epsilon, steps=steps)
            assert lower <= delta <= upper <= delta * 1.02


@pytest.mark.parametrize("categories", [2, 3, 10])
def test_one_response_is_exact_at_every_epsilon(categories):
    epsilons = np.array([-2.0, -1.0, -0.3, 0.0, 0.3, 0.999, 1.0, 1.5])
    truth = hockey_stick(*response_tables(1.0, categories), epsilons)
    for relation in ("add_or_remove", "replace"):
        enclosed(jaxacct.delta(RandomizedResponse(1.0, categories), epsilons, relation=relation), truth, 1e-10)


@pytest.mark.parametrize("relation", ["remove", "add", "add_or_remove"])
@pytest.mark.slow
def test_tables_enclose_the_sum_over_outputs_in_each_direction(relation):
    epsilons = np.array([-1.0, -0.2, 0.0, 0.3, 0.9, 1.3, 3.0])
    straight, backwards = hockey_stick(P, Q, epsilons), hockey_stick(Q, P, epsilons)
    truth = {"remove": straight, "add": backwards, "add_or_remove": np.maximum(straight, backwards)}[relation]
    enclosed(jaxacct.delta(FromTables(P, Q), epsilons, relation=relation), truth, 1e-11)
    three = [hockey_stick(*product(*tables, 3), epsilons) for tables in ((P, Q), (Q, P))]
    truth = {"remove": three[0], "add": three[1], "add_or_remove": np.maximum(*three)}[relation]
    bounds = jaxacct.delta(FromTables(P, Q), epsilons, steps=3, relation=relation)
    assert np.all((bounds.lower <= truth) & (truth <= bounds.upper))
    assert np.all(bounds.upper <= truth * 1.02)
    assert np.all(bounds.lower >= truth - 0.16)  # an infinite loss may be missing from it: 1 - 0.95^3


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_samples_of_tables_and_responses_are_tables_of_mixtures(rate):
    epsilons = np.array([0.001, 0.05, 0.2])
    for mechanism, (p, q) in (
        (FromTables(P, Q), (P, Q)),
        (RandomizedResponse(1.0, 3), response_tables(1.0, 3)),
    ):
        p, q = [mp.mpf(x) for x in p], [mp.mpf(x) for x in q]
        mixed = [rate * a + (1 - rate) * b for a, b in zip(p, q, strict=True)]
        backwards = [rate * b + (1 - rate) * a for a, b in zip(p, q, strict=True)]
        sampled = PoissonSampled(mechanism, rate)
        enclosed(jaxacct.delta(sampled, epsilons, relation="remove"), hockey_stick(mixed, q, epsilons), 1e-9)
        # `add` of the pair (q, p): the dataset without the record on top.
        mixed_add = mixed if isinstance(mechanism, FromTables) else backwards
        top = q if isinstance(mechanism, FromTables) else p
        enclosed(jaxacct.delta(sampled, epsilons, relation="add"), hockey_stick(top, mixed_add, epsilons), 1e-9)


@pytest.mark.parametrize(("scale", "sensitivity"), [(0.4, 1), (2.0, 1), (3.0, 5), (40.0, 3)])
def test_discrete_laplace_is_the_sum_over_integers(scale, sensitivity):
    epsilons = sensitivity / scale * np.array([-0.7, 0.0, 0.1, 0.5, 0.95, 1.0])
    tables = noise_tables(lambda x: -abs(x) / mp.mpf(scale), sensitivity, int(60 * scale) + 10)
    truth = hockey_stick(*tables, epsilons)
    bounds = jaxacct.delta(DiscreteLaplace(scale, sensitivity), epsilons)
    # The tables end after 60 scales, and the largest epsilon is a rounded one.
    assert np.all((bounds.lower - 1e-17 <= truth) & (truth - 1e-17 <= bounds.upper))
    np.testing.assert_allclose(bounds.upper, truth, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(bounds.lower, truth, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize(("sigma", "sensitivity"), [(0.3, 1), (1.0, 1), (9.9, 4), (10.1, 4), (50.0, 7)])
def test_discrete_gaussian_is_the_sum_over_integers_into_the_deep_tail(sigma, sensitivity):
    epsilons = sensitivity / sigma * np.array([-1.0, 0.0, 0.3, 1.0, 4.0, 12.0, 30.0])
    tables = noise_tables(lambda x: -(x**2) / (2 * mp.mpf(sigma) ** 2), sensitivity, int(45 * sigma) + 5)
    enclosed(jaxacct.delta(DiscreteGaussian(sigma, sensitivity), epsilons), hockey_stick(*tables, epsilons), 1e-8)


def test_a_wide_discrete_gaussian_is_a_gaussian():
    epsilons = np.array([0.1, 1.0, 3.0])
    discrete = jaxacct.delta(DiscreteGaussian(1e4, 10_000), epsilons)
    smooth = jaxacct.delta(Gaussian(1e4, 1e4), epsilons)
    np.testing.assert_allclose(discrete.upper, smooth.upper, rtol=1e-7)


@pytest.mark.slow  # lattices of their own
def test_runs_of_discrete_noise_stay_close_to_brute_force():
    sigma, epsilons = 1.5, np.array([0.2, 1.0, 2.5])
    p, q = noise_tables(lambda x: -(x**2) / (2 * mp.mpf(sigma) ** 2), 1, 20)
    double = lambda table: np.convolve(np.array(table, float), np.array(table, float))  # noqa: E731
    # For one sensitivity the loss depends on the sum of two outputs only.
    truth = hockey_stick([mp.mpf(x) for x in double(p)], [mp.mpf(x) for x in double(q)], epsilons)
    bounds = jaxacct.delta(DiscreteGaussian(sigma), epsilons, steps=2)
    assert np.all((bounds.lower <= truth) & (truth <= bounds.upper))
    assert np.all(bounds.upper <= truth * 1.02)


@pytest.mark.parametrize("steps", [5_000, 1_000_000])
@pytest.mark.filterwarnings("ignore:.*bounds of epsilon are wide")
def test_next_to_no_noise_every_run_has_the_likeliest_loss(steps):
    """Another loss than 1 / (2 sigma^2) has probability 1e-33 a run: delta is 1 - e^(epsilon - the sum of them)."""
    lower, upper = jaxacct.epsilon(jaxacct.DiscreteGaussian(0.08), 1e-5, steps=steps)
    truth = steps / (2 * 0.08**2) + np.log1p(-1e-5)
    assert truth * (1 - 1e-11) <= lower <= truth * (1 + 1e-15) <= upper


def test_an_infinite_loss_stays_infinite():
    lower, upper = jaxacct.delta(ApproximateDP(0.1, 0.01), np.array([0.25, 5.0]), steps=3)
    truth = hockey_stick(*product([0.01, 0.99, 0.0], [0.0, 0.99, 0.01], 3), [5.0])
    assert np.all(lower <= [upper[0], truth[0]])
    assert np.all(upper >= truth)
    assert jaxacct.epsilon(ApproximateDP(0.1, 0.01), 1e-3).upper == np.inf
    # 0.99 e^0.1 / (1 + e^0.1) (1 - e^(eps - 0.1)) = 0.001
    epsilon = 0.1 + np.log1p(-0.001 * (1 + np.exp(-0.1)) / 0.99)
    np.testing.assert_allclose(jaxacct.epsilon(ApproximateDP(0.1, 0.01), 0.011).upper, epsilon, rtol=1e-9)


@pytest.mark.slow
def test_parameters_broadcast_and_tables_carry_settings_in_leading_axes():
    tables = FromTables(np.array([P, Q]), np.array([Q, P]))
    bounds = jaxacct.delta(tables, np.array([[0.1], [0.4]]), relation="remove")
    assert bounds.upper.shape == (2, 2)
    np.testing.assert_allclose(bounds.upper[:, 0], hockey_stick(P, Q, [0.1, 0.4]), rtol=1e-11)
    np.testing.assert_allclose(bounds.upper[:, 1], hockey_stick(Q, P, [0.1, 0.4]), rtol=1e-11)
    mixed = Composed([FromTables(P, Q), FromTables([0.5, 0.5], [0.4, 0.6]), RandomizedResponse(0.5)], [1, 2, 1])
    both = jaxacct.delta(mixed, 0.5)
    assert both.upper > jaxacct.delta(FromTables(P, Q), 0.5).upper
    assert both.lower > jaxacct.delta(FromTables([0.5, 0.5], [0.4, 0.6]), 0.5, steps=2).upper


def test_one_run_agrees_with_dp_accounting():
    """Single runs only: errata of that library concern its compositions."""
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    epsilons = np.array([0.1, 0.5, 1.0, 2.0])
    for ours, theirs in (
        (DiscreteLaplace(1 / 0.7, 3), losses.DiscreteLaplacePrivacyLoss(0.7, sensitivity=3)),
        (DiscreteGaussian(2.5, 3), losses.DiscreteGaussianPrivacyLoss(2.5, sensitivity=3)),
    ):
        expected = [theirs.get_delta_for_epsilon(float(epsilon)) for epsilon in epsilons]
        np.testing.assert_allclose(jaxacct.delta(ours, epsilons).upper, expected, rtol=1e-6, atol=1e-12)
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    theirs = pld.from_randomized_response(0.2, 4, value_discretization_interval=1e-4)
    ours = RandomizedResponse(math.log((1 - 0.2 + 0.2 / 4) / (0.2 / 4)), 4)
    expected = [theirs.get_delta_for_epsilon(float(epsilon)) for epsilon in epsilons]
    np.testing.assert_allclose(jaxacct.delta(ours, epsilons).upper, expected, rtol=1e-3)
