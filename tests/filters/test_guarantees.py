"""The guarantees of the scalar filters: closed forms, inverses, and what they refuse."""

from __future__ import annotations

import jax
import mpmath
import numpy as np
import pytest

from jaxacct import filters
from jaxacct.losses.renyi.zcdp import zcdp_delta, zcdp_epsilon


@pytest.mark.parametrize("pure", [1e-9, 0.3, 1.0, 8.0, 50.0])
def test_a_pure_guarantee_is_randomized_response(pure):
    guarantee = filters.pure_dp(pure).guarantee
    assert float(guarantee.epsilon(0.0)) == float(guarantee.pure)
    with mpmath.workdps(40):
        p = mpmath.mpf(float(guarantee.pure))
        for part in (0.0, 0.3, 0.99):
            truth = (mpmath.exp(p) - mpmath.exp(part * p)) / (1 + mpmath.exp(p))
            value = float(guarantee.delta(part * float(p)))
            assert truth * (1 - mpmath.mpf(2) ** -50) <= value <= truth * (1 + 1e-12) + 1e-14 * pure
            if value < 1:
                assert part * pure * (1 - 1e-6) - 1e-15 <= float(guarantee.epsilon(value)) <= pure * (1 + 1e-9)
                assert float(guarantee.delta(float(guarantee.epsilon(value)))) <= value * (1 + 1e-9)
    assert float(guarantee.delta(pure * (1 + 1e-9))) == 0.0


@pytest.mark.parametrize("made", [filters.pure_dp(0.5), filters.zcdp(0.5), filters.gdp(0.5)], ids=repr)
def test_a_traced_epsilon_or_delta_that_makes_no_sense_promises_no_more_than_the_worst(made):
    delta = np.asarray(jax.jit(lambda epsilon: made.guarantee.delta(epsilon))(np.array([-0.1, np.nan, 0.1])))
    assert np.all((delta == 1) == [True, True, False])
    epsilon = np.asarray(jax.jit(lambda delta: made.guarantee.epsilon(delta))(np.array([-1.0, np.nan])))
    assert np.all(epsilon >= float(made.guarantee.epsilon(1e-300)))
    for bad in (-0.1, np.nan):
        with pytest.raises(ValueError, match="epsilon must be"):
            made.guarantee.delta(bad)


def test_an_approximate_guarantee_promises_nothing_at_deltas_it_may_fail_with():
    guarantee = filters.approximate_zcdp(0.5, 1e-6).guarantee
    assert np.asarray(guarantee.epsilon(np.array([1e-7, 1e-6]))).tolist() == [np.inf, np.inf]
    assert float(guarantee.epsilon(2e-6)) == pytest.approx(float(zcdp_epsilon(0.5, 1e-6)), rel=1e-5)
    assert float(guarantee.delta(5.0)) == pytest.approx(1e-6 + float(zcdp_delta(0.5, 5.0)), rel=1e-5)
    assert guarantee.profile().hockey_stick(600.0) >= 1e-6


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_epsilon_delta_budget_is_kept_and_hardly_wasted(share):
    for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-5), (8.0, 1e-2)):
        ledger = filters.approximate_dp(epsilon, delta, share=share)
        found = float(ledger.guarantee.epsilon(delta))
        assert epsilon * (1 - 1e-4) <= found <= epsilon
        assert float(ledger.delta) == pytest.approx(share * delta)
        # The conversion rho + 2 sqrt(rho log(1 / delta')) would leave less.
        log = np.log(1 / ((1 - share) * delta))
        assert float(ledger.rho) > (np.sqrt(log + epsilon) - np.sqrt(log)) ** 2


def test_of_many_equal_queries_under_an_epsilon_delta_budget_both_sums_count():
    ledger = filters.approximate_dp(1.0, 1e-5)
    few = [ledger.update((0.001, 2e-6), ledger.init())]
    while few[-1][0]:
        few.append(ledger.update((0.001, 2e-6), few[-1][1]))
    assert len(few) - 1 == 2, "delta runs out"
    rho, delta = ledger.remaining(few[-1][1])
    assert float(delta) == pytest.approx(1e-6, rel=1e-5)
    assert ledger.update((float(rho) * 0.999, 1e-7), few[-1][1])[0]
    assert not ledger.update((float(rho) * 1.001, 1e-7), few[-1][1])[0]


def test_several_orders_pay_together_and_an_order_that_is_out_stays_out():
    ledger = filters.renyi_any(3.0, 1e-5, (6, 8, 16))
    assert float(ledger.guarantee.epsilon(1e-5)) <= 3.0
    assert float(ledger.guarantee.delta(3.0)) == pytest.approx(1e-5, rel=1e-9)
    for order, rho in zip((6, 8, 16), np.asarray(ledger.rho), strict=True):
        assert rho > float(filters.renyi(3.0, 1e-5, order=order).rho)
    state = ledger.init()
    for bad in ([np.nan, 0.1, 0.1], [0.1, -0.1, np.inf], [np.inf] * 3):
        admitted, after = ledger.update(np.array(bad), state)
        assert not admitted
        assert np.array_equal(after.words, state.words)
    admitted, state = ledger.update(np.array([0.1, np.inf, 0.1]), state)
    assert admitted
    assert np.isinf(np.asarray(ledger.spent(state))).tolist() == [False, True, False]
    admitted, state = ledger.update(np.array([np.inf, 0.0, 0.1]), state)
    assert admitted
    # The last order alone, at a third of delta.
    alone = float(filters.renyi(3.0, 1e-5 / 3, order=16).rho)
    for query, fits in (([0.0, 0.0, alone - 0.1999], False), ([0.0, 0.0, alone - 0.2001], True)):
        assert bool(ledger.update(np.array(query), state)[0]) == fits
    left = np.asarray(ledger.remaining(state))
    assert left[2] == pytest.approx(alone - 0.2, rel=1e-6)
    assert float(ledger.fraction(state)) == pytest.approx(1 - left[2] / float(ledger.rho[2]), rel=1e-6)


def test_several_orders_hold_exactly_while_their_mixture_is_above_every_hockey_stick():
    orders, epsilon, delta = (2.5, 6.0, 16.0, 64.0), 6.0, 1e-3
    ledger = filters.renyi_any(epsilon, delta, orders)
    a, rng = np.array(orders), np.random.default_rng(5)
    x = np.geomspace(1e-6, 8.0, 20_000)[:, None]

    def margin(sums):
        """The least of the left side of the condition over the right one, by its definition, on a fine grid of x."""
        each = np.minimum((a - 1) * (epsilon + x - sums), 300.0)
        return float((np.exp(each).mean(-1) * delta / -np.expm1(-x[:, 0])).min())

    found = {True: [], False: []}
    for _ in range(300):
        costs = np.asarray(ledger.rho) * rng.uniform(0.8, 1.4, 4)
        admitted = bool(ledger.update(costs, ledger.init())[0])
        found[admitted].append(margin(costs))
        assert (margin(costs) >= 1) == admitted
    assert min(map(len, found.values())) > 50
    # Along a ray to the edge, both sides of it within a millionth.
    for _ in range(20):
        ray, low, high = np.asarray(ledger.rho) * rng.uniform(0.6, 1.0, 4), 0.0, 10.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if margin(middle * ray) >= 1 else (low, middle)
        assert ledger.update(ray * low * (1 - 1e-6), ledger.init())[0]
        assert not ledger.update(ray * low * (1 + 1e-6), ledger.init())[0]
