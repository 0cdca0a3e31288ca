"""delta and epsilon against truth that was computed another way: sound in one test, tight in another."""

import jax
import mpmath
import numpy as np
import pytest
import scipy.stats

import jaxacct
from tests.truth import contour_delta


def _columns(rows, *names):
    return [np.array([row[name] for row in rows]) for name in names]


def _sampled(sigma, rate):
    return jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)


def bracketed(bounds, truth, slack=1e-8):
    assert np.all(bounds.lower <= truth * (1 + slack))
    assert np.all(truth * (1 - slack) <= bounds.upper)


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_delta_brackets_every_row_of_the_reference_table(direction, reference):
    """Tightly, and so does epsilon of some of them."""
    rows = [row for row in reference("subsampled_gaussian.json") if row["direction"] == direction]
    names = "noise_multiplier", "sampling_rate", "steps", "epsilon", "delta"
    sigma, rate, steps, epsilon, delta = columns = _columns(rows, *names)
    found = jaxacct.delta(_sampled(sigma, rate), epsilon, steps=steps, relation=direction)
    bracketed(found, delta)
    width = found.upper / found.lower - 1
    assert np.all(width[delta >= 1e-12] <= 1e-3)
    assert np.all(width < 0.02)
    sigma, rate, steps, epsilon, delta = (column[::4] for column in columns)
    found = jaxacct.epsilon(_sampled(sigma, rate), delta, steps=steps, relation=direction)
    bracketed(found, epsilon)
    assert np.all(found.upper / found.lower - 1 < 1e-3)


# The mechanisms of a row, and how far above its delta their upper bounds may be.
CLOSED = {
    "gaussian": (lambda row: [jaxacct.Gaussian(1 / row["mu"]), jaxacct.GDP(row["mu"])], 1e-9),
    "laplace": (lambda row: [jaxacct.Laplace(row["scale"], row["sensitivity"])], 1e-3),
    "approx_dp": (lambda row: [jaxacct.ApproximateDP(row["epsilon0"], row["delta0"])], 0.02),
    "randomized_response": (
        lambda row: (
            [f(row["epsilon0"]) for f in (jaxacct.RandomizedResponse, jaxacct.PureDP)]
            + [jaxacct.ApproximateDP(row["epsilon0"], 0.0)]
        ),
        0.02,
    ),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_are_bracketed_and_tight_from_above(name, reference):
    make, width = CLOSED[name]
    rows = [row for row in reference("closed_forms.json") if row["mechanism"] == name]
    assert rows
    for row in rows:
        for mechanism in make(row):
            found = jaxacct.delta(mechanism, row["epsilon"], steps=row.get("steps", 1))
            bracketed(found, row["delta"], 2e-9 if name == "laplace" else 0.0)  # of the table
            assert found.upper <= row["delta"] * (1 + width)


def test_showcase_schedule_is_bracketed_and_its_epsilon_tight_from_above(reference):
    steps = np.arange(1, 3651)
    sigma = 1.5 + np.sin(np.pi / 3650 * 150 * np.ceil(steps / 150))
    levels, counts = np.unique(sigma, return_counts=True)
    schedule = jaxacct.Composed([_sampled(s, 0.01) for s in levels], [int(c) for c in counts])
    for direction in ("remove", "add"):
        rows = [row for row in reference("showcase.json")["cases"] if row["direction"] == direction]
        epsilon, delta = _columns(rows, "epsilon", "delta")
        bracketed(jaxacct.delta(schedule, epsilon, relation=direction), delta)
    bounds = jaxacct.epsilon(schedule, 1e-5)
    assert 1.2156 < bounds.upper < 1.2157 * 1.001


@pytest.mark.parametrize("relation", ["remove", "add"])
@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "epsilon"),
    [(1.0, 0.01, 1000, 2.0), (2.0, 0.05, 300, 1.5), (4.0, 0.3, 50, 1.0), (1.5, 0.9, 7, 6.0)],
)
def test_delta_brackets_the_contour_integral(sigma, rate, steps, epsilon, relation):
    truth = contour_delta(sigma, rate, steps, epsilon, reverse=relation == "add")
    bounds = jaxacct.delta(_sampled(sigma, rate), epsilon, steps=steps, relation=relation)
    bracketed(bounds, truth)
    assert bounds.upper / bounds.lower - 1 < 2e-3


SQUARED = jaxacct.PoissonSampled(_sampled(1.0, 1e-8), 1e-8)
NEGATIVE = -2.487315704250525
# A query of delta, runs, and the truth: from the identity or from 50 digits.
HARD = [
    (jaxacct.Gaussian(10.7), NEGATIVE, 1, -np.expm1(NEGATIVE)),
    # exp(600) Q(L > 600) is half of P(L > 600) here, and Q(L > 600) is no float64.
    (jaxacct.Gaussian(0.05), 600.0, 1, 1.374248085e-89),
    # (1 + 1e-12)^(10^15) is infinite, and the mass it multiplies 0: the truth is P(all losses are the largest).
    (jaxacct.RandomizedResponse(36.0), 35999999999999964.0, 10**15, 0.793),
    # Samples of samples are rare by the product of their rates.
    (SQUARED, 0.0, 1, 1e-16 * (2 * scipy.stats.norm.cdf(0.5) - 1)),
]


@pytest.mark.filterwarnings("ignore:.*are wide:RuntimeWarning")
@pytest.mark.parametrize(("mechanism", "epsilon", "steps", "truth"), HARD, ids=lambda x: type(x).__name__)
def test_what_underflows_and_what_overflows_is_bracketed(mechanism, epsilon, steps, truth):
    bracketed(jaxacct.delta(mechanism, epsilon, steps=steps), truth, 2e-8)
    assert jaxacct.delta(SQUARED, 0.0).upper <= 1.0001e-16
    assert jaxacct.epsilon(SQUARED, 1e-15) == (0.0, 0.0)
    # Nor does a tilt that overflows at the end of a lattice do any harm.
    lower, upper = jaxacct.epsilon(_sampled(2.0, 0.01), 1e-5, steps=100, relation="remove")
    assert 0.1897 < lower < upper < 0.18982


def test_gaussians_compose_exactly():
    schedule = jaxacct.Composed([jaxacct.Gaussian(2.0), jaxacct.Gaussian(3.0, 2.0)], [3, 5])
    mu = np.sqrt(3 / 4 + 5 * 4 / 9)
    for relation in ("add", "remove", "replace", "add_or_remove"):
        truth = scipy.stats.norm.cdf(mu / 2 - 1 / mu) - np.exp(1) * scipy.stats.norm.cdf(-mu / 2 - 1 / mu)
        bracketed(jaxacct.delta(schedule, 1.0, relation=relation), truth, 1e-12)


def test_a_subnormal_delta_has_a_larger_epsilon():
    lower, upper = jaxacct.epsilon(jaxacct.Gaussian(2.0), np.array([1e-310, 1e-300]), steps=3)
    assert lower[1] > 30
    assert upper[0] >= upper[1]
    assert np.all(lower > 0.99 * upper)


@pytest.mark.parametrize(
    "delta", [1e-6, *(pytest.param(delta, marks=pytest.mark.slow) for delta in (1e-4, 1e-8, 1e-12))]
)
def test_a_delta_below_the_largest_loss_s_mass_is_answered_from_both_sides(delta):
    # Ten runs lose 5 in all with probability 2^-10: epsilon is 5 less about delta / 2^-10.
    lower, upper = jaxacct.epsilon(jaxacct.Laplace(2.0), delta, steps=10)
    assert 5.0 + np.log1p(-delta * 2**10) - 1e-9 <= upper
    assert lower >= (1 - 2e-4) * upper


@pytest.mark.parametrize("epsilon", [-1e-9, -0.1, -0.5, -3.0])
def test_negative_epsilon_is_rounded_outwards(epsilon):
    lower, upper = jaxacct.delta(_sampled(1.0, 1e-20), epsilon)
    with mpmath.workdps(40):
        truth = -mpmath.expm1(epsilon)
        assert lower <= truth <= upper
        assert upper - truth < 1e-14 * truth + 1e-19  # the rate


def test_a_tilt_by_far_beyond_exponentials_certifies_nothing_that_vanished():
    # Nine runs exceed 0.2328 by the largest loss of all, likelier than delta. Some 710 units of the tilt below it the
    # decay was flushed to 0 and the normaliser was no overflow yet: the product certified too small an epsilon.
    mechanism = jaxacct.PoissonSampled(jaxacct.RandomizedResponse(0.5492311535986156), 0.03623037366841141)
    largest = 9 * np.log1p(0.03623037366841141 * np.expm1(0.5492311535986156))
    certain = (np.exp(largest / 9) / (1 + np.exp(0.5492311535986156))) ** 9
    for delta in (1.1924735188428553e-09, *np.geomspace(3e-10, 1e-8, 7)):
        found = jaxacct.epsilon(mechanism, delta, steps=9, relation="remove")
        truth = largest + np.log1p(-delta / certain)
        bracketed(found, truth, 1e-12)
        assert found.upper <= truth + 1e-7


SAMPLED = jaxacct.PoissonSampled(jaxacct.Gaussian(np.linspace(0.8, 4.0, 21)), 0.01)


@pytest.mark.parametrize(
    ("query", "mechanism", "at", "total"),
    [
        (jaxacct.epsilon, SAMPLED, 1e-5, 21),
        (jaxacct.epsilon, jaxacct.Laplace(np.linspace(5.0, 20.0, 6)), 1e-5, 6),
        (jaxacct.delta, jaxacct.RandomizedResponse(np.linspace(0.1, 1.0, 150)), 0.5, 150),
    ],
)
def test_progress_ends_at_the_total(query, mechanism, at, total):
    seen = []
    query(mechanism, at, steps=50, relation="remove", progress=lambda *numbers: seen.append(numbers))
    done, totals = np.array(seen).T
    assert np.all(np.diff(done) > 0)
    assert done[-1] == total
    assert np.all(totals == total)
    assert len(done) > 2 or total < 150


def test_progress_is_for_calls_outside_a_trace():
    with pytest.raises(ValueError, match="outside jit"):
        jax.jit(lambda d: jaxacct.epsilon(SAMPLED, d, steps=10, progress=print).upper)(1e-5)
