"""The true cost of filters with one budget: brute force over all analysts, closed forms, and the issue's figures."""

import math
from fractions import Fraction as F

import numpy as np
import pytest

from jaxacct import Composed, Gaussian, PoissonSampled, RandomizedResponse, delta, epsilon, filters
from jaxacct.adversary import true_cost
from tests import finite

ORDERS = np.log([1.0, 1.3, 2.0, 3.0, 5.0])
SHOWCASE = [PoissonSampled(Gaussian(s), 0.1) for s in (1.0, 1.5, 2.5)]


def price(filter, query):
    """What a query costs a filter, in the unit of its budget."""
    return float(filter.spent(filter.update(query, filter.init())[1]))


@pytest.mark.parametrize(
    ("ratios", "make", "cost"),
    [
        ((2, 4), lambda: filters.pure_dp(3 * math.log(2)), lambda r: F(round(math.log2(r)), 3)),
        ((2, 3), lambda: filters.zcdp(0.9), lambda r: F(math.log(r) * (r - 1) / (r + 1)) / F(0.9)),
        ((2, 5), lambda: filters.renyi(6.0, 1e-3, order=3), None),
    ],
)
def test_no_analyst_of_coins_exceeds_it_and_one_attains_it(ratios, make, cost):
    filter = make()
    queries = [RandomizedResponse(math.log(r)) for r in ratios]
    shares = [F(float(filter.fraction(filter.update(query, filter.init())[1]))) for query in queries]
    costs = shares if cost is None else [cost(r) for r in ratios]
    found = true_cost(filter, queries, delta=1e-3).hockey_stick(ORDERS)
    gammas = [F(math.exp(x)).limit_denominator(10**9) for x in ORDERS]
    pairs = [finite.randomized_response(r) for r in ratios]
    affordable = lambda left, _: [(i, left - c) for i, c in enumerate(costs) if c <= left]  # noqa: E731
    truth = np.array([float(finite.worst(pairs, affordable, F(1), gamma)) for gamma in gammas])
    assert (found.upper >= truth - 1e-9).all()
    assert (found.lower <= truth + 1e-9).all()
    np.testing.assert_allclose(found.upper, truth, atol=4e-3)
    np.testing.assert_allclose(found.lower, truth, atol=8e-3)


@pytest.mark.slow
def test_gaussians_cost_what_the_gdp_filter_says():
    filter = filters.gdp(1.0)
    found = true_cost(filter, [Gaussian(s) for s in (4.0, 6.0, 10.0)])
    at = np.array([0.5, 1.0, 2.0, 4.0])
    claimed = np.asarray(filter.guarantee.delta(at))
    bounds = found.hockey_stick(at)
    assert (bounds.lower <= claimed).all()
    np.testing.assert_allclose(bounds.lower, claimed, rtol=0.03)
    np.testing.assert_allclose(bounds.upper, claimed, rtol=0.03)


def test_the_limit_of_algorithm_2_is_exceeded_by_an_analyst_and_by_how_much():
    filter = filters.approximate_gdp(0.1)
    found = true_cost(filter, SHOWCASE).hockey_stick(np.array([1.0, 2.0]))
    claimed = np.asarray(filter.guarantee.delta(np.array([1.0, 2.0])))
    assert (found.lower > claimed * np.array([3.0, 350.0])).all()
    # Found by the general recursion: [.00962, .01014] at epsilon 1.
    assert 0.00962 < found.lower[0] <= found.upper[0] < 0.01014
    np.testing.assert_allclose(found.upper, found.lower, rtol=0.01)
    constant = max(float(delta(q, 1.0, steps=int(0.1 / price(filter, q))).lower) for q in SHOWCASE)
    assert found.lower[0] > 1.15 * constant


@pytest.mark.slow
def test_clipped_steps_cost_more_than_none_and_less_than_one_whole_query():
    filter = filters.approximate_gdp(0.03)
    query = PoissonSampled(Gaussian(1.0), 0.1)
    runs = int(0.03 / price(filter, query))
    found = true_cost(filter, [query], clipped=True, delta=1e-4).epsilon(1e-4)
    assert epsilon(query, 1e-4, steps=runs).upper < found.lower
    assert found.upper < epsilon(query, 1e-4, steps=runs + 1).lower
    # Algorithm 2's last step: what is left, as noise.
    rest = 0.03 - runs * price(filter, query)
    last = PoissonSampled(Gaussian(float(np.log1p(2 * rest / 0.01) ** -0.5)), 0.1)
    whole = epsilon(Composed([query, last], [runs, 1]), 1e-4)
    assert found.lower <= whole.upper
    assert found.upper >= whole.lower
    np.testing.assert_allclose(found.upper, whole.upper, rtol=0.02)


@pytest.mark.parametrize(
    ("filter", "queries", "options", "message"),
    [
        (filters.approximate_gdp(0.1), [PoissonSampled(Gaussian(0.1), 0.1)], {}, "one that fits"),
        (filters.gdp(1.0), SHOWCASE, {}, "PoissonSampled|rate"),
        (filters.gdp(1.0), [Gaussian(3.0)], {"clipped": True}, "clipped must be False"),
        (filters.approximate_zcdp(1.0, 1e-6), [Gaussian(3.0)], {}, "one budget"),
        (filters.gdp(np.ones(2)), [Gaussian(3.0)], {}, "one budget"),
        (filters.gdp(1.0), [], {}, "sequence of mechanisms"),
        (filters.gdp(1.0), [Gaussian(np.array([3.0, 4.0]))], {}, "scalar"),
        (filters.approximate_gdp(0.1), [PoissonSampled(Gaussian(1.0), 0.0)], {}, "cost something"),
    ],
)
def test_what_it_cannot_answer_is_named(filter, queries, options, message):
    with pytest.raises(ValueError, match=message):
        true_cost(filter, queries, **options)
