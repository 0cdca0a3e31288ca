"""The cost of adaptivity against brute force over all analysts in rational arithmetic, and for DP-SGD."""

import functools
import math
from fractions import Fraction as F

import numpy as np
import pytest

from jaxacct import ApproximateDP, FromTables, Gaussian, Laplace, PoissonSampled, RandomizedResponse
from jaxacct.adversary import cost_of_adaptivity
from tests import finite

LOG2 = math.log(2)
TWO, FAILING, SKEWED = finite.randomized_response(2), finite.failing(F(1, 32)), [(F(1, 2), F(1, 4)), (F(1, 2), F(3, 4))]
CASES = {
    "symmetric": ([TWO, FAILING], [RandomizedResponse(LOG2), ApproximateDP(0.0, 1 / 32)]),
    "three queries": (
        [TWO, FAILING, finite.randomized_response(4)],
        [RandomizedResponse(LOG2), ApproximateDP(0.0, 1 / 32), RandomizedResponse(2 * LOG2)],
    ),
    "off the lattice": ([SKEWED, FAILING], [FromTables([0.5, 0.5], [0.25, 0.75]), ApproximateDP(0.0, 1 / 32)]),
}


def reverse(pair):
    return [(q, p) for p, q in pair]


def brute_force(pairs, gamma, delta, orders):
    """sup over all analysts that keep to counts of cost at most (log gamma, delta), at ``orders``, both directions."""

    @functools.cache
    def affordable(counts):
        both = [[reverse(one) for one in pairs], pairs]
        every = [[one for one, n in zip(side, counts, strict=True) for _ in range(n)] for side in both]
        return all(finite.hockey_stick(finite.compose(*one), gamma) <= delta for one in every)

    def worst(side):
        @functools.cache
        def best(counts, left):
            found = max(1 - left, F(0))
            for i, pair in enumerate(side):
                after = tuple(n + (i == j) for j, n in enumerate(counts))
                if affordable(after):
                    found = max(found, sum(p * best(after, left * q / p) if q else p for p, q in pair if p))
            return found

        return best

    sides = [worst(pairs), worst([reverse(one) for one in pairs])]
    return [max(best((0,) * len(pairs), order) for best in sides) for order in orders]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("blocks", [64, 2])
def test_brute_force_over_all_analysts_lies_within(name, blocks):
    pairs, queries = CASES[name]
    orders = [F(1), F(2), F(4), F(8)]
    truth = np.array([float(x) for x in brute_force(pairs, F(4), F(21, 100), orders)])
    found = cost_of_adaptivity(queries, 2 * LOG2, 0.21, blocks=blocks)
    assert (max(found.block) > 1) == (blocks == 2)
    bounds = found.hockey_stick(np.log([float(x) for x in orders]))
    assert np.all(bounds.lower <= truth + 1e-14)
    assert np.all(bounds.upper >= truth - 1e-14)
    if blocks == 64 and name != "off the lattice":
        # One run at a time, on the lattice: nothing is lost, and the analyst gains.
        np.testing.assert_allclose(bounds.upper - bounds.lower, 0.0, atol=1e-10)
        assert bounds.lower[2] > 0.21


def test_schedules_of_dp_sgd_cost_an_adaptive_analyst_some_per_cent_more():
    queries = [PoissonSampled(Gaussian(sigma), 0.01) for sigma in (0.6, 0.9)]
    found = cost_of_adaptivity(queries, 5.6, 1e-5, blocks=12)
    assert 1.05 * 5.6 < found.epsilon.lower <= found.epsilon.upper < 1.2 * 5.6
    assert found.share.lower > 0.05
    at = found.hockey_stick(found.epsilon.lower)
    assert at.lower > 1e-5
    assert found.hockey_stick(found.epsilon.upper).upper <= 1e-5 * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "blocks"), [(32.0, 3), (1.0, 838)])
def test_targets_at_the_ends_of_a_lattice_are_enclosed(epsilon, blocks):
    queries = [RandomizedResponse(0.5), RandomizedResponse(1.0)]
    found = cost_of_adaptivity(queries, epsilon, 0.1, blocks=blocks, relation="remove")
    assert 0 <= found.epsilon.lower <= found.epsilon.upper
    assert found.epsilon.upper > 0.9 * epsilon


@pytest.mark.parametrize("epsilon", [1.96, 1.965, 1.97])
def test_no_loss_is_claimed_beyond_the_largest_one_wherever_it_lies_between_lattice_points(epsilon):
    """Two runs at most: H(e^x) <= P(both losses > x - 1) (1 - e^(x - 2)), and a loss is the largest one half the time.

    P(loss > 1 - g) = 1/2 + (1 - e^(-g / 2)) / 2 for Laplace noise of scale 1.
    """
    found = cost_of_adaptivity([Laplace(1.0), Laplace(1.0)], epsilon, 0.05, blocks=64)
    assert found.states == 6
    gap = np.linspace(0.0, 0.1, 500)
    truth = np.expm1(-gap) * -((0.5 - np.expm1(-gap / 2) / 2) ** 2)
    assert np.all(found.hockey_stick(2.0 - gap).lower <= truth + 1e-12)
    assert found.hockey_stick(1.8).lower > 0.03


def test_wrong_arguments_are_named():
    pair = [RandomizedResponse(0.5), RandomizedResponse(1.0)]
    with pytest.raises(ValueError, match="queries must be two or more mechanisms"):
        cost_of_adaptivity(pair[:1], 1.0, 1e-5)
    with pytest.raises(ValueError, match="queries must have one setting each"):
        cost_of_adaptivity([pair[0], Gaussian(np.array([1.0, 2.0]))], 1.0, 1e-5)
    with pytest.raises(ValueError, match="blocks must"):
        cost_of_adaptivity(pair, 1.0, 1e-5, blocks=0)
    with pytest.raises(ValueError, match="epsilon must"):
        cost_of_adaptivity(pair, 0.0, 1e-5)
