"""What filters refuse, and how they name it; what plans and Gaussians cost."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest

from jaxacct import GDP, PLD, Composed, DiscreteGaussian, Gaussian, LossGrid, filters
from jaxacct.filters import _composed_law, _costs

# The package's name for this is the function's.
plan = importlib.import_module("jaxacct.filters.plan")


@pytest.mark.parametrize(
    ("query", "rho"),
    [
        (GDP(0.7), 0.245),
        (Gaussian(4.0, sensitivity=2.0), 0.125),
        (DiscreteGaussian(4.0, 2), 0.125),
        (Composed([GDP(0.5), Gaussian(2.0)], [4, 3]), 0.875),
    ],
)
def test_gaussians_cost_half_their_squared_mu(query, rho):
    assert rho * (1 - 1e-15) <= float(_costs.concentrated_cost(query)) <= rho * (1 + 1e-13)


def test_a_traced_delta_of_one_is_no_budget_and_orders_say_how_much_epsilon_they_need():
    made = jax.jit(lambda delta: filters.approximate_zcdp(0.5, delta))(1.0)
    assert any(np.isnan(leaf).any() for leaf in jax.tree.leaves(made))
    with pytest.raises(ValueError, match="epsilon must be above") as raised:
        filters.renyi_any(0.5, 1e-5, (8, 16))
    needed = float(str(raised.value).split("above ")[1].split()[0])
    filters.renyi_any(needed * 1.0001, 1e-5, (8, 16))
    with pytest.raises(ValueError, match="epsilon must be above"):
        filters.renyi_any(needed * 0.9999, 1e-5, (8, 16))


def test_arguments_that_filters_refuse_are_named():
    with pytest.raises(ValueError, match="epsilon must be larger to leave any budget, got 1e-12"):
        filters.approximate_dp(1e-12, 1e-10)
    grid = LossGrid(0.25, -4, 9)
    with pytest.raises(ValueError, match="query must be a guarantee \\(bound 'upper'\\), got bound 'lower'"):
        _composed_law.on_grid(PLD(np.eye(9)[4], 0.0, grid, "lower"), grid, "remove", symmetric=False)
    with pytest.raises(ValueError, match="order must be a concrete number"):
        jax.jit(lambda order: filters.renyi(1.0, 1e-5, order=order))(8.0)
    for order in (None, np.array([2.0, 3.0])):
        with pytest.raises(ValueError, match=r"order must be (a|one) number"):
            filters.renyi(1.0, 1e-5, order=order)
    with pytest.raises(ValueError, match="grid must hold losses on either side of 0, got"):
        filters.natural_approximate_dp(1.0, 1e-5, rounds=4, grid=LossGrid(0.25, 0, 9))
    with pytest.raises(ValueError, match="grid must hold losses on either side of 0 where no family"):
        filters.natural(Gaussian(1.0), rounds=3)
    with pytest.raises(ValueError, match="rounds must be given with a family"):
        filters.natural(Gaussian(1.0), (Gaussian(2.0),))
    with pytest.raises(ValueError, match="rounds must give at most"):
        filters.natural(Gaussian(1.0), [Gaussian(2.0)] * 9, 99)
    with pytest.raises(ValueError, match="delta must be 0 or between 1e-18 and 1, got 1e-19"):
        filters.gdp_residue(1.0, 1e-19)
    with pytest.raises(ValueError, match="query must match the ledger: it has shape \\(3,\\)"):
        filters.gdp_residue(np.ones(2)).update(np.ones(3), filters.gdp_residue(np.ones(2)).init())


def test_a_plans_steps_are_counted_with_the_last_as_a_fraction():
    costs, steps = np.array([0.5, 0.25]), np.array([2.0, 4.0])  # 2 in all, over 6 steps
    assert plan._admitted(costs, steps, 5.0) == 2 * 6 + 2
    assert plan._admitted(costs, steps, 1.5) == 2 + 2
    assert plan._admitted(costs, steps, 1.125) == 2.5
    assert plan._admitted(0 * costs, steps, 1.0) == np.inf
    for budget, more in ((0.0, costs), (-1.0, costs), (1.0, np.array([np.inf, 0.0])), (1.0, np.array([np.nan, 0.0]))):
        assert plan._admitted(more, steps, budget) == 0.0
    with pytest.raises(ValueError, match="orders must be a sequence of at least one order"):
        plan._checked(Gaussian(1.0), 1e-5, 3, ())
    for bad in (1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match=r"orders must be .* above 1, got"):
            plan._checked(Gaussian(1.0), 1e-5, 3, (2.0, bad))
