"""Filters made from an (epsilon, delta) target."""

import pytest

from jaxacct import filters
from jaxacct.filters.from_epsilon import FROM_EPSILON


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (8.0, 1e-5), (0.02, 1e-9)])
@pytest.mark.parametrize("name", FROM_EPSILON)
def test_the_guarantee_meets_the_target_and_a_larger_budget_does_not(name, epsilon, delta):
    made = filters.from_epsilon(name, epsilon, delta)
    certified = float(made.guarantee.epsilon(delta))
    assert certified <= epsilon
    assert certified >= epsilon * (1 - 1e-9)
