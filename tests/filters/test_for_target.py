"""Filters made from an (epsilon, delta) target."""

import numpy as np
import pytest
from scipy.stats import norm

from jaxacct import Gaussian, Laplace, PoissonSampled, PureDP, filters


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (8.0, 1e-5), (0.02, 1e-9)])
@pytest.mark.parametrize(
    "name",
    [
        "approximate_dp",
        "approximate_gdp",
        "approximate_zcdp",
        "gdp",
        "gdp_residue",
        "pure_dp",
        "renyi",
        "renyi_any",
        "zcdp",
    ],
)
def test_the_guarantee_meets_the_target_and_a_larger_budget_does_not(name, epsilon, delta):
    made = filters.for_target(name, epsilon, delta)
    certified = float(made.guarantee.epsilon(delta))
    assert certified <= epsilon
    assert certified >= epsilon * (1 - 1e-9)


def test_tables_of_prices_are_made_from_a_target_under_either_spelling():
    query = PoissonSampled(Gaussian(4.0), 0.02)
    box = filters.for_target("sampled-gaussian", 0.5, 1e-3, sigma=4.0, rate=0.02)
    menu = filters.for_target("menu", 0.5, 1e-3, mechanisms=[query], unit=16, points=256)
    for made in (box, menu):
        assert bool(made.update(query, made.init())[0])
        assert float(made.guarantee.epsilon(1e-3)) <= 0.5
    assert repr(filters.for_target("pure-dp", 1.0, 1e-6)) == repr(filters.for_target("pure_dp", 1.0, 1e-6))


def test_one_number_s_closed_form_is_met():
    """Gaussian of mu has delta(0) = 2 Phi(mu / 2) - 1: a target with epsilon near 0 inverts that."""
    made = filters.for_target("gdp", 1e-9, 0.1)
    assert float(np.asarray(made.mu)) == pytest.approx(2 * norm.ppf(0.55), rel=1e-6)


def test_a_residue_filter_takes_a_laplace_of_which_a_share_of_the_budget_is_left():
    """TV(G_m * RR(0.1)) = TV(G_0.25) leaves m = 0.2285 whatever the 0.1-DP query."""
    for slack in (0.0, 1e-7):
        budget = filters.gdp_residue(0.25, slack)
        admitted, state = budget.update(Laplace(10.0), budget.init())
        worst, other = budget.update(PureDP(0.1), budget.init())
        assert admitted
        assert worst
        assert float(budget.remaining(state)) >= float(budget.remaining(other))
