"""What filters refuse, and how they name it; what plans and Gaussians cost."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest

from jaxacct import GDP, PLD, Composed, DiscreteGaussian, Gaussian, LossGrid, PoissonSampled, adversary, filters
from jaxacct.filters.additive import costs as _costs
from jaxacct.filters.residues import on_grid as _composed_law

# The package's name for this is the function's.
plan = importlib.import_module("jaxacct.filters.additive.plan_order")


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
        adversary.natural_approximate_dp(1.0, 1e-5, rounds=4, grid=LossGrid(0.25, 0, 9))
    with pytest.raises(ValueError, match="grid must hold losses on either side of 0 where no family"):
        filters.natural(Gaussian(1.0), rounds=3)
    with pytest.raises(ValueError, match="rounds must be given with a family"):
        filters.natural(Gaussian(1.0), (Gaussian(2.0),))
    with pytest.raises(ValueError, match="rounds must give at most"):
        filters.natural(Gaussian(1.0), [Gaussian(2.0)] * 9, 99)
    with pytest.raises(ValueError, match="delta must be 0 or between 1e-18 and 1, got 1e-19"):
        filters.gdp_residue(1.0, 1e-19)
    with pytest.raises(ValueError, match="query must match the state: its cost has shape \\(3,\\)"):
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


def test_a_plan_is_read_row_by_row_and_equal_rows_cost_the_same(monkeypatch):
    one = PoissonSampled(Gaussian(np.array([2.0, 4.0]), 1.5), 0.1)
    rows = plan._schedule(Composed([one, Gaussian(3.0)], [5, 2]), 1)
    assert rows.tolist() == [[0.75, 0.1, 5.0], [0.375, 0.1, 5.0], [1 / 3, 1.0, 2.0]]
    assert plan._schedule(Gaussian(2.0), [3, 4]).tolist() == [[0.5, 1.0, 3.0], [0.5, 1.0, 4.0]]
    asked = []

    def renyi(query, order):
        asked.append(np.asarray(query.rate).size)
        return order * np.asarray(query.rate) / np.asarray(query.mechanism.sigma) ** 2

    monkeypatch.setattr(plan._curve, "renyi", renyi)
    costs = plan._costs(np.concatenate([rows, rows[:2]]), (2.0, 7.0))
    assert asked == [3, 3]
    wanted = np.array([0.05625, 0.0140625, 1 / 9, 0.05625, 0.0140625])
    np.testing.assert_allclose(costs, [2 * wanted, 7 * wanted], rtol=1e-12)


def test_the_whole_orders_come_first_and_then_the_fractions_next_to_the_best():
    assert plan.ORDERS[:3] == (1.1, 1.2, 1.3)
    assert len(plan.ORDERS) == 155
    assert plan.ORDERS[-5:] == (62.0, 63.0, 128.0, 256.0, 512.0)
    assert np.all(np.diff(plan.ORDERS) > 0.09)
    first = plan._candidates(None, None)
    assert first[:3] == [2.0, 3.0, 4.0]
    assert all(order == int(order) for order in first)
    assert plan._candidates(None, 4.0) == pytest.approx([3.0 + k / 10 for k in range(21)])
    assert plan._candidates((9, 3), 4.0) == [9.0, 3.0]
    for best, orders in ((3.7, None), (1.3, None), (60.2, None), (8.0, (2.0, 8.0, 30.0))):
        asked = []

        def score(some, best=best, asked=asked):
            asked.append(list(some))
            return [(-abs(order - best), order) for order in some]

        value, order = plan._best(score, orders)
        wanted = {3.7: 3.7, 1.3: 1.3, 60.2: 60.0, 8.0: 8.0}[best]
        assert order == wanted
        assert value == -abs(wanted - best)
        assert len(asked) == (2 if orders is None else 1)


def test_a_plans_epsilon_is_the_least_that_admits_it_and_its_order_the_one_that_admits_most(monkeypatch):
    monkeypatch.setattr(plan, "_costs", lambda rows, orders: np.outer(orders, rows[:, 0]))
    monkeypatch.setattr(plan._curve, "epsilon_from_renyi", lambda rho, orders, delta: rho + 12.0 / (orders - 1))
    monkeypatch.setattr(plan._curve, "renyi_from_epsilon", lambda e, delta, orders: e - 12.0 / (orders - 1))
    # Epsilon a 0.03 + 12 / (a - 1), least at a = 21, and 0.03 21 + 0.6 there.
    query = Gaussian(1 / 0.01)
    assert plan.plan_order(query, 1e-5, steps=3) == 21.0
    found = plan.plan_epsilon(query, 1e-5, steps=3)
    assert 1.23 * (1 + 4e-12) <= found <= 1.23 * (1 + 1e-11)
    assert plan.plan_epsilon(query, 1e-5, order=5.0, steps=3) == pytest.approx(3.15, rel=1e-10)
    # Of 1.5 the order a leaves (1.5 - 12 / (a - 1)) / (0.03 a) plans: most at 17.
    assert plan.plan_order(query, 1e-5, 1.5, steps=3) == 17.0
    assert plan.plan_order(query, 1e-5, 1.5, steps=3, orders=(5.0, 40.0)) == 40.0
    with pytest.raises(ValueError, match=r"epsilon must be larger for delta 1e-05: no order leaves any .* got 0\.02"):
        plan.plan_order(query, 1e-5, 0.02)
