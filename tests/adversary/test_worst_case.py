"""Tables of Lemma 1 against brute force over all adaptive analysts in rational arithmetic."""

import math
from fractions import Fraction as F

import numpy as np
import pytest

import jaxacct
from jaxacct import ApproximateDP, LossGrid, RandomizedResponse
from jaxacct.adversary import Rule, worst_case
from tests import finite

LOG2 = math.log(2)
GRID = LossGrid(LOG2 / 64, -640, 1281)
ORDERS = np.log([0.3, 0.5, 1.0, 1.3, 1.5, 2.0, 3.0, 4.0, 6.5])
TWO, FOUR, FAILING = RandomizedResponse(LOG2), RandomizedResponse(2 * LOG2), ApproximateDP(0.0, 0.125)
PAIRS = [finite.randomized_response(2), finite.randomized_response(4), finite.failing(F(1, 8))]


def enclosed(bounds, truth, width):
    truth = np.array([float(t) for t in truth])
    assert np.all(bounds.lower <= truth + 1e-15)
    assert np.all(bounds.upper >= truth - 1e-15)
    np.testing.assert_allclose(bounds.upper - bounds.lower, 0.0, atol=width)


def truths(start, allowed, rounds, orders=ORDERS):
    gammas = [F(math.exp(x)).limit_denominator(10**9) for x in orders]
    return [finite.worst(PAIRS, allowed, start, gamma, rounds) for gamma in gammas]


def test_on_the_lattice_bounds_meet_at_the_brute_force_value():
    rule = Rule.of_counts([TWO, FOUR, FAILING], lambda n: n[0] <= 2 and n[1] + n[2] <= 1)

    def allowed(n, left):
        grown = [tuple(m + (i == q) for i, m in enumerate(n)) for q in range(3)]
        return [(q, g) for q, g in enumerate(grown) if g[0] <= 2 and g[1] + g[2] <= 1]

    found = worst_case(rule, 3, grid=GRID)
    on = np.log([0.25, 0.5, 1.0, 2.0, 4.0, 8.0])
    enclosed(found.hockey_stick(on), truths((0, 0, 0), allowed, 3, on), 1e-9)
    between = found.hockey_stick(ORDERS)
    enclosed(between, truths((0, 0, 0), allowed, 3), 3e-3)


def test_a_rule_of_units_is_enclosed():
    by_units = Rule.additive([TWO, FOUR], [1, 2], 3)
    step = lambda left, _: [(q, left - c) for q, c in enumerate((1, 2)) if c <= left]  # noqa: E731
    on = np.log([0.5, 1.0, 2.0, 4.0])
    enclosed(worst_case(by_units, 3, grid=GRID).hockey_stick(on), truths(3, step, 3, on), 1e-9)


def test_continuous_queries_are_enclosed_by_their_composition():
    grid = LossGrid(1 / 32, -400, 801)
    rule = Rule.unrestricted([jaxacct.Gaussian(2.0), jaxacct.Laplace(3.0)])
    found = worst_case(rule, 2, grid=grid)
    # Gaussians dominate here, so that the worst analyst plays two of them.
    orders = np.array([-0.5, 0.0, 0.3, 1.0, 2.0])
    truth = jaxacct.delta(jaxacct.Gaussian(2.0), orders, steps=2)
    bounds = found.hockey_stick(orders)
    assert np.all(bounds.upper >= truth.lower)
    assert np.all(bounds.lower <= truth.upper)
    np.testing.assert_allclose(bounds.upper, truth.upper, rtol=0.02)
    np.testing.assert_allclose(bounds.lower, truth.lower, rtol=0.02)


def test_losses_off_the_lattice_and_beyond_it_stay_enclosed():
    queries = [RandomizedResponse(math.log(3)), RandomizedResponse(0.36), ApproximateDP(0.7, 0.01)]
    grid = LossGrid(0.1, -12, 25)
    rule = Rule.unrestricted(queries)
    exact = jaxacct.adversary.natural_filter_cost(ApproximateDP(0.0, 1.0), queries, 3)
    fine = exact.hockey_stick(ORDERS)
    coarse = worst_case(rule, 3, grid=grid).hockey_stick(ORDERS)
    assert np.all(coarse.lower <= fine.upper)
    assert np.all(coarse.upper >= fine.lower)
    np.testing.assert_allclose(fine.upper, fine.lower, atol=1e-12)


def test_errors():
    with pytest.raises(ValueError, match="queries must have at least one member"):
        worst_case(Rule.unrestricted([]), 2)
    with pytest.raises(ValueError, match=r"rounds must be a whole number .* got 0"):
        worst_case(Rule.unrestricted([TWO]), 0)
    with pytest.raises(ValueError, match="costs must be as many"):
        Rule.additive([TWO], [1, 2], 3)


def test_losses_off_the_lattice_next_to_infinite_ones_stay_below_the_truth():
    """At the epsilons above all finite losses an analyst hopes for an infinite one, which either run may have."""
    once = 0.67777695
    queries = [RandomizedResponse(1.074079367651938), jaxacct.FromTables([once, 1.0 - once], [0.0, 1.0])]
    enclosed(worst_case(Rule.unrestricted(queries), 2).hockey_stick([2.2, 2.25]), [1.0 - (1.0 - once) ** 2] * 2, 1e-3)
