"""The menu: its certificate checked by hand, its worst case by other means, its ledger, its cache."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import (
    Composed,
    Gaussian,
    Laplace,
    LossGrid,
    PoissonSampled,
    PrivacyProfile,
    RandomAllocation,
    RandomizedResponse,
    adversary,
    filters,
)

EPSILON, DELTA, POINTS = 1.5, 1e-3, 512
MENU = filters.gaussian_menu((1.2, 2.4), 0.1, sigmas=4)


@pytest.fixture(scope="module")
def ledger():
    return filters.menu(MENU, epsilon=EPSILON, delta=DELTA, points=POINTS)


@pytest.mark.slow  # a recursion of its own
def test_no_adaptive_strategy_of_the_general_recursion_exceeds_it():
    few = [PoissonSampled(Gaussian(s), 0.2) for s in (0.8, 1.1, 1.5)]
    ledger = filters.menu(few, epsilon=2.0, delta=3e-3, points=1024, unit=24)
    rule = adversary.Rule.additive(few, [int(c) for c in ledger.prices], int(ledger.budget))
    rounds = int(ledger.budget) // int(ledger.prices.min())
    grid = LossGrid(0.02, -400, 801)
    worst = adversary.worst_case(rule, rounds, grid=grid)
    at = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    bounds, claimed = worst.hockey_stick(at), ledger.guarantee.delta(at)
    assert (claimed >= bounds.lower).all()
    # The table lets budgets be shared out in fractions of a run, of which there are some ten.
    assert (claimed <= bounds.upper * 1.35).all()


def test_the_guarantee_meets_its_target_in_both_directions_and_inverts_itself(ledger):
    guarantee = ledger.guarantee
    assert isinstance(guarantee, filters.Guarantee)
    assert guarantee.is_bound
    assert "Lemma 1" in guarantee.statement
    assert 0.98 * DELTA <= float(guarantee.delta(EPSILON)) <= DELTA
    at = np.array([1e-6, DELTA, 1e-2])
    found = guarantee.epsilon(at)
    assert found.shape == (3,)
    assert (np.asarray(guarantee.delta(found)) <= at).all()
    assert (np.asarray(guarantee.delta(np.maximum(found - 1e-6, 0))) > at).all()
    assert float(guarantee.epsilon(1e-300)) == math.inf
    profile: PrivacyProfile = guarantee.curve
    one, other = (np.asarray(x.on(profile.grid).excess) for x in (profile, profile.reflect()))
    assert np.allclose(one, other, rtol=1e-9, atol=1e-15)


def test_queries_snap_to_the_cheapest_entry_that_dominates_them(ledger):
    prices = np.asarray(ledger.prices)
    assert (np.diff(prices) < 0).all()
    assert prices.min() == 288
    sigma = [float(one.mechanism.sigma) for one in MENU]
    nowhere = 2**31 - 1
    cases = [(s, 0.1, i) for i, s in enumerate(sigma)]
    cases += [(s * 1.01, 0.05, i) for i, s in enumerate(sigma)]
    for noise, rate, entry in cases:
        for scale in (1.0, 3.0):
            assert int(ledger.price(PoissonSampled(Gaussian(noise * scale, scale), rate))) == prices[entry]
    assert int(ledger.price(PoissonSampled(Gaussian(sigma[2] * (1 - 2.0**-21)), 0.1))) == prices[1]
    assert int(ledger.price(PoissonSampled(Gaussian(sigma[0] * 0.99), 0.1))) == nowhere
    assert int(ledger.price(PoissonSampled(Gaussian(5.0), 0.1001))) == nowhere
    assert int(ledger.price(Gaussian(5.0))) == nowhere
    assert int(ledger.price(PoissonSampled(PoissonSampled(Gaussian(sigma[1]), 0.4), 0.25))) == prices[1]
    assert int(ledger.price(Composed([PoissonSampled(Gaussian(sigma[1]), 0.1)], 3))) == 3 * prices[1]
    assert [int(ledger.price(i)) for i in (0, 3, 4, -1, 2**40)] == [prices[0], prices[3], nowhere, nowhere, nowhere]
    bad = jax.jit(lambda s, q: ledger.price(PoissonSampled(Gaussian(s), q)))
    for s, q in ((math.nan, 0.1), (-2.0, 0.1), (math.inf, 0.1), (2.0, math.nan), (2.0, -0.1)):
        assert int(bad(s, q)) == nowhere
    assert int(bad(2.4, 0.0)) == prices[3]
    twice = jax.jit(lambda s, q: ledger.price(PoissonSampled(PoissonSampled(Gaussian(s, s / 2.4), q), q)))
    assert int(twice(1.0, 0.1)) == prices[3]
    assert int(twice(-1.0, 0.1)) == int(twice(1.0, -0.1)) == nowhere
    for wrong in ("gaussian", 0.5, Laplace(1.0), True):
        with pytest.raises(ValueError, match="query must be"):
            ledger.update(wrong, ledger.init())
    with pytest.raises(ValueError, match="query must match the state"):
        ledger.update(np.array([0, 1]), ledger.init())


def test_a_float32_program_snaps_to_the_safe_side_and_keeps_the_same_ledger(ledger):
    sigma = np.geomspace(1.1, 3.0, 301).astype(np.float32)
    sigma = np.concatenate([sigma, [np.float32(one.mechanism.sigma) for one in MENU]])
    sigma = np.concatenate([sigma, np.nextafter(sigma, np.float32(0))])
    prices = [int(ledger.price(PoissonSampled(Gaussian(float(s)), 0.1))) for s in sigma]
    traced = jax.jit(jax.vmap(lambda f, s, q: f.price(PoissonSampled(Gaussian(s), q)), (None, 0, None)))
    assert traced(ledger, sigma, np.float32(0.1)).tolist() == prices

    @jax.jit
    def run(f, sigma):
        def body(state, s):
            admitted, state = f.update(PoissonSampled(Gaussian(s), 0.1), state)
            return state, (admitted, f.fraction(state), f.remaining(state))

        return jax.lax.scan(body, f.init(), sigma)

    state, (admitted, fraction, left) = run(ledger, sigma)
    assert state.spent.dtype == left.dtype == jnp.int32
    assert fraction.dtype == jnp.float32
    spent = 0
    for price, ran in zip(prices, admitted.tolist(), strict=True):
        assert ran == (spent + price <= int(ledger.budget))
        spent += price * ran
    assert int(state.spent) == spent == int(ledger.budget) - int(left[-1])
    with jax.enable_x64(True):
        wide, (again, *_) = run(ledger, sigma)
    assert int(wide.spent) == spent
    assert again.tolist() == admitted.tolist()


@pytest.mark.slow
def test_rates_and_evaluations_are_entries_like_others():
    menu = filters.gaussian_menu((1.2, 2.0), (0.05, 0.1), sigmas=2, rates=2)
    menu.append(Gaussian(20.0))
    menu.append(Laplace(20.0))
    ledger = filters.menu(menu, epsilon=EPSILON, delta=DELTA, points=POINTS)
    prices = np.asarray(ledger.prices)
    assert prices.shape == (6,)
    assert int(ledger.price(Gaussian(25.0))) == prices[4]
    assert int(ledger.price(5)) == prices[5]
    assert int(ledger.price(PoissonSampled(Gaussian(3.0), 0.04))) == prices.min()
    # The whole budget in evaluations is one Gaussian, exactly.
    runs = int(ledger.budget) // int(prices[4])
    exact = float(filters.gdp(np.sqrt(runs) / 20.0).guarantee.epsilon(DELTA))
    assert 0.75 * EPSILON < exact <= float(ledger.guarantee.epsilon(DELTA)) <= EPSILON


SAMPLED = PoissonSampled(Gaussian(2.0), 0.1)
RESPONSE = RandomizedResponse(0.994)


@pytest.mark.parametrize(
    ("mechanisms", "epsilon", "delta", "least"),
    [
        ([RESPONSE], 1.47, 1e-5, [1]),
        ([RandomizedResponse(1.0)], 1.0, 1e-5, [1]),  # exactly
        ([RandomizedResponse(1.0)], 2.0, 1e-5, [2]),
        ([RandomizedResponse(1.0)], 2.9, 1e-5, [2]),
        ([Laplace(1.0)], 1.0, 1e-5, [1]),
        ([SAMPLED, RESPONSE], 1.47, 1e-5, [30, 1]),
        # Entries that meet the target alone.
        ([jaxacct.PureDP(0.25), jaxacct.ApproximateDP(0.1, 0.004), RandomizedResponse(0.6)], 0.8, 0.03, [1] * 3),
        ([jaxacct.FromTables([0.5, 0.5, 0.0], [0.45, 0.54, 0.01]), RandomizedResponse(0.2)], 0.8, 0.03, [1, 1]),
        # Several runs each, of which one more does not fit or hardly does.
        ([Composed((Gaussian(8.0), Laplace(20.0)), (2, 1))], 3.0, 1e-5, None),
        ([Composed((SAMPLED,), (10,))], 3.0, 1e-5, None),
        ([RandomAllocation(Gaussian(3.0), 9, 2)], 3.0, 1e-5, None),
    ],
)
def test_an_entry_is_admitted_as_often_as_it_may_be(mechanisms, epsilon, delta, least):
    menu = filters.menu(mechanisms, epsilon=epsilon, delta=delta)
    for place, entry in enumerate(mechanisms):
        state, count = menu.init(), 0
        while count < 100 and menu.update(place, state)[0]:
            state, count = menu.update(place, state)[1], count + 1
        spent = [jaxacct.epsilon(entry, delta, steps=steps) for steps in (count, count + 1)]
        assert spent[0].lower <= epsilon
        assert count >= least[place] if least else spent[0].upper <= epsilon < spent[1].upper * 1.01
    assert float(menu.guarantee.epsilon(delta)) <= epsilon


@pytest.mark.parametrize(
    ("entry", "epsilon", "why"),
    [
        (jaxacct.SampledWithoutReplacement(Gaussian(1.0), 60, 600), 90.0, "certified cost does up to rounding, which"),
        (Gaussian(0.2), 40.0, "at position 0 that does not up to rounding, which"),
        (jaxacct.DiscreteGaussian(0.05), 30.0, "at position 0 that does not up to rounding, which"),
        (Gaussian(0.2), 10.0, "at position 0 that does not$"),
    ],
)
def test_a_refusal_says_where_rounding_and_not_the_entry_is_the_reason(entry, epsilon, why):
    with pytest.raises(ValueError, match=why):
        filters.menu([entry], epsilon=epsilon, delta=1e-5)


def test_a_staircase_is_above_everything_that_its_prices_admit():
    entries = [SAMPLED, RandomizedResponse(0.5)]
    menu = filters.menu(entries, epsilon=1.4, delta=1e-5)
    many, few = (int(price) for price in menu.prices)
    assert int(menu.budget) // few >= 2
    for runs in range(int(menu.budget) // few + 1):
        rest = (int(menu.budget) - runs * few) // many
        parts = [(entry, n) for entry, n in zip(entries, (rest, runs), strict=True) if n]
        both = jaxacct.Composed([entry for entry, _ in parts], [n for _, n in parts])
        for at in (0.0, 0.7, 1.4):
            assert float(jaxacct.delta(both, at).lower) <= float(menu.guarantee.delta(at)) * (1 + 1e-9)


def test_a_menus_entries_are_evenly_spaced_in_logarithm_and_float32_on_the_safe_side():
    made = filters.gaussian_menu((0.7, 5.6), (0.03, 0.7), sigmas=4, rates=3)
    noise = sorted({one.mechanism.sigma for one in made})
    rates = sorted({one.rate for one in made})
    assert len(made) == 12
    assert [(one.rate, one.mechanism.sigma) for one in made] == [(q, s) for q in rates for s in noise]
    for found, exact, up in ((noise, 0.7 * 2.0 ** np.arange(4), False), (rates, np.geomspace(0.03, 0.7, 3), True)):
        found = np.array(found)
        assert np.array_equal(found, found.astype(np.float32))
        np.testing.assert_allclose(found, exact, rtol=2.0**-23)
        assert np.all(found >= exact * (1 - 1e-15)) if up else np.all(found <= exact * (1 + 1e-15))
    single = filters.gaussian_menu((0.7, 5.6), (0.03, 0.7), sigmas=1)
    assert [(one.rate, one.mechanism.sigma) for one in single] == [(rates[-1], noise[0])]
    (whole,) = filters.gaussian_menu((1.0, 1.0), 1.0, sigmas=5)
    assert (whole.rate, whole.mechanism.sigma) == (1.0, 1.0)
    for sigma, rate in (((2.0, 1.0), 0.1), ((1.0, 2.0), (0.2, 0.1))):
        with pytest.raises(ValueError, match="must"):
            filters.gaussian_menu(sigma, rate)
    for sigma, rate in (((1.0,), 0.1), ((1.0, 2.0), (0.1, 0.2, 0.3))):
        with pytest.raises(ValueError, match="sigma and rate must be one or two numbers, got"):
            filters.gaussian_menu(sigma, rate)
