"""Filters at the edges: prices beyond int32, rates of 1, laws and budgets in programs, roundings to float32, slacks."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct import PLD, Composed, Gaussian, Laplace, PoissonSampled, PureDP, filters
from tests.contract.filter_cases import GRID, STEP, law


def admitted(budget, query, most):
    state = budget.init()
    for count in range(most):
        fits, state = budget.update(query, state)
        if not bool(fits):
            return count
    return most


def test_prices_that_do_not_fit_int32_admit_no_more_than_the_target_allows():
    menu = [Gaussian(3.0), Gaussian(3.0 * 66000**0.5)]
    budget = filters.menu(menu, epsilon=1.0, delta=1e-3, unit=100_000, points=2048)
    assert (np.asarray(budget.prices) > 0).all()
    runs = admitted(budget, 0, 60)
    assert runs == 0 or jaxacct.delta(menu[0], 1.0, steps=runs).lower <= 1e-3
    assert admitted(budget, menu[1], 5) == 5
    sums = [Composed(menu[:1], 2), Composed(menu[:1], 2**20), Composed(menu), Composed(menu[1:], 2**40)]
    assert [int(budget.price(one)) for one in sums[:2]] == [2**31 - 1] * 2
    assert all(int(budget.price(one)) > int(budget.price(menu[1])) for one in sums)


def test_a_menu_of_prices_too_far_apart_for_memory_is_refused_by_name():
    with pytest.raises(ValueError, match="mechanisms must hold entries whose prices are closer"):
        filters.menu([Gaussian(3.0), Gaussian(3.0 * 2e6**0.5)], epsilon=1.0, delta=1e-3, unit=288, points=16384)


FILTERS = {
    "gdp": (filters.gdp(2.0), lambda s: Gaussian(s)),
    "zcdp": (filters.zcdp(2.0), lambda s: Gaussian(s)),
    "renyi": (filters.renyi(3.0, 1e-3, order=4.0), lambda s: PoissonSampled(Gaussian(s), 0.1)),
    "approximate_gdp": (filters.approximate_gdp(0.01), lambda s: PoissonSampled(Gaussian(s), 0.1)),
}


def used(budget, state):
    with jax.enable_x64(True):
        return np.asarray(budget.spent(state)).reshape(-1)[0]


@pytest.mark.parametrize("name", FILTERS)
def test_an_example_pays_at_least_what_the_scalar_filter_charges_for_the_same_floats(name):
    """Python floats whose nearest float32 is larger, and ones whose nearest is smaller."""
    scalar, query = FILTERS[name]
    each = filters.per_example(scalar, examples=1)
    for sigma in (1.1, 1.3, 0.7, 2.3, 1.9000001):
        asked = query(sigma)
        _, alone = scalar.update(asked, scalar.init())
        _, shared = each.update(asked, np.ones(1, np.float32), each.init())
        assert used(each, shared) >= used(scalar, alone) * (1 - 2.0**-48), sigma  # programs differ in last bits


def test_an_individual_last_step_is_never_longer_than_what_is_left():
    """A factor just below 1 must not be rounded to 1."""
    scalar = filters.approximate_gdp(2 * (0.01 * math.expm1(1.0) / 2) * (1 - 1e-9))
    each = filters.per_example(scalar, examples=1)
    query, norms = PoissonSampled(Gaussian(1.0), 0.1), np.ones(1, np.float32)
    _, state = each.update(query, norms, each.init())
    _, state = each.update(query, norms, state)
    assert float(each.bounds(query, norms, state)[0]) < 1.0


def test_an_online_menus_epsilon_is_finite_wherever_its_plain_menus_is_and_monotone():
    at = np.array([0.3, 1e-2, 1e-4, 1e-5, 1e-6])
    for epsilon in (6.0, 12.0):
        setting = dict(epsilon=epsilon, delta=1e-5, points=512, unit=32)
        menu = [PoissonSampled(Gaussian(1.0), 0.5)]
        online, plain = (filters.menu(menu, **setting, online=on).guarantee for on in (True, False))
        found, limit = np.asarray(online.epsilon(at)), np.asarray(plain.epsilon(at))
        assert (found[:4] <= epsilon).all()
        assert (found <= limit + 0.2).all()
        assert np.isfinite(found).all()
        curve = np.asarray(online.delta(np.linspace(0.0, 4 * epsilon, 400)))
        assert (np.diff(curve) <= 1e-15).all()


def test_a_residue_filters_slack_keeps_its_curve_decreasing_in_both_directions():
    budget = filters.natural(Gaussian(1.0), family=[Gaussian(2.0)], rounds=4)
    curve = budget.guarantee.profile().symmetrise()
    assert (np.diff(np.asarray(curve.hockey_stick(np.linspace(0.0, 20.0, 300)))) <= 1e-15).all()


def test_an_index_that_only_rounding_or_wrapping_makes_a_member_is_refused():
    budget = filters.natural(Gaussian(1.0), family=[Gaussian(2.0), Gaussian(3.0)], rounds=4)
    for index in (np.int64(2**32), np.int64(2**32 + 1), 1 + 1e-12, np.float64(1e-30), -(2**32), math.nan):
        fits, after = budget.update(index, budget.init())
        assert not bool(fits), index
        assert after.counts.tolist() == [0, 0]
    assert all(bool(budget.update(index, budget.init())[0]) for index in (0, 1, np.int64(1), 1.0, np.uint8(0)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: filters.closed_form(sigma=2.0, rate=0.1, epsilon=1.0, delta=1e-4),
        lambda: filters.sampled_gaussian(sigma=2.0, rate=0.1, epsilon=1.0, delta=1e-4),
        lambda: filters.menu([PoissonSampled(Gaussian(2.0), 0.1)], epsilon=1.0, delta=1e-4, points=512),
        lambda: filters.renyi(3.0, 1e-3, order=4.0),
    ],
)
def test_compiled_compositions_whose_numbers_of_runs_make_no_sense_are_refused(make):
    filter = make()
    query = PoissonSampled(Gaussian(2.0), 0.1)
    nested = jax.jit(lambda inner, outer: filter.update(Composed([Composed([query], [inner])], [outer]), filter.init()))
    for runs in ((0.5, 1.0), (0.0, 1.0), (0.5, 2.0), (-1.0, -1.0), (1.5, 2.0), (np.nan, 1.0)):
        admitted, state = nested(*map(np.float32, runs))
        assert not admitted, runs
        assert float(filter.fraction(state)) == 0.0
    assert nested(np.float32(2.0), np.float32(2.0))[0]


def test_a_sample_at_rate_one_is_none_and_a_traced_rate_is_not_known_to_be_one():
    ledger = filters.zcdp(1.0)
    assert ledger.update(PoissonSampled(Gaussian(2.0), 1.0), ledger.init())[0]
    with pytest.raises(ValueError, match="cannot account for a Poisson-sampled"):
        jax.jit(lambda rate: ledger.update(PoissonSampled(Gaussian(2.0), rate), ledger.init()))(1.0)
    pure = filters.pure_dp(5.0)
    ask = jax.jit(lambda rate: pure.update(PoissonSampled(PureDP(1.0), rate), pure.init())[0])
    assert ask(0.5)
    assert jax.jit(lambda rate: ledger.update(PoissonSampled(Laplace(2.0), rate), ledger.init())[0])(0.5)
    for rate in (-0.1, 1.1, np.nan):
        assert not ask(rate)


def test_a_traced_delta_of_one_is_no_budget_and_orders_say_how_much_epsilon_they_need():
    made = jax.jit(lambda delta: filters.approximate_zcdp(0.5, delta))(1.0)
    assert any(np.isnan(leaf).any() for leaf in jax.tree.leaves(made))
    with pytest.raises(ValueError, match="epsilon must be above") as raised:
        filters.renyi_any(0.5, 1e-5, (8, 16))
    needed = float(str(raised.value).split("above ")[1].split()[0])
    filters.renyi_any(needed * 1.0001, 1e-5, (8, 16))
    with pytest.raises(ValueError, match="epsilon must be above"):
        filters.renyi_any(needed * 0.9999, 1e-5, (8, 16))


def test_a_program_that_rounds_a_law_to_float32_is_told_so():
    query = law(4 * STEP)
    for budget, known in ((filters.pure_dp(1.0), False), (filters.approximate_zcdp(0.5, 1e-6), True)):
        assert jax.jit(lambda s, b=budget: b.update(query, s))(budget.init())[0]
        # As an argument it has lost what float32 flushes to 0, at any loss.
        passed = jax.jit(lambda q, s, b=budget: b.update(PLD(q, np.zeros((), np.float32), GRID), s))
        assert bool(passed(query.masses, budget.init())[0]) == known
