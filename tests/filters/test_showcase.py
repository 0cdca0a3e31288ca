"""Section 4.5 of the f-DP filter paper: rate 0.01, 3650 steps, noise that warms up and decays."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters

RATE, STEPS, BUDGET, DELTA = 0.01, 3650, 0.049377, 1e-5
SIGMA = 1.5 + np.sin(np.pi / STEPS * 150 * np.ceil(np.arange(1, STEPS + 1) / 150))
LONGER = np.append(SIGMA, np.full(50, 2.0))


@jax.jit
def admissions(ledger, sigmas):
    def body(state, sigma):
        query = PoissonSampled(Gaussian(sigma), RATE)
        if hasattr(ledger, "update_clipped"):
            admitted, state, scale = ledger.update_clipped(query, state)
        else:
            (admitted, state), scale = ledger.update(query, state), jnp.ones(())
        return state, (admitted, scale)

    return jax.lax.scan(body, ledger.init(), sigmas)


@pytest.mark.parametrize("wide", [False, True])
def test_the_approximate_filter_admits_all_steps_and_no_more(wide):
    with jax.enable_x64(wide):
        ledger = filters.approximate_gdp(BUDGET)
        end, (admitted, scale) = admissions(ledger, jnp.asarray(LONGER, float))
        assert admitted[:STEPS].all()
        assert not admitted[STEPS:].any()
        # The sum over all steps is 0.0493771239, a little over the printed budget: the last is clipped.
        assert (scale[: STEPS - 1] == 1).all()
        exact = np.sqrt(np.log1p(2 * (0.00003244646302337415 - 0.0000001239290346688681) / RATE**2)) * SIGMA[-1]
        assert float(scale[STEPS - 1]) == pytest.approx(exact, rel=2e-4 if not wide else 1e-9)
        assert (scale[STEPS:] == 0).all()
        assert float(ledger.remaining(end)) == 0.0
        assert float(ledger.fraction(end)) == 1.0


def test_the_approximate_guarantee_is_the_papers_and_says_that_it_is_none():
    guarantee = filters.approximate_gdp(BUDGET).guarantee
    assert float(guarantee.mu) == pytest.approx(0.314252, abs=1e-6)
    assert float(guarantee.epsilon(DELTA)) == pytest.approx(1.1911, abs=1e-4)
    assert not guarantee.is_bound
    assert "Asymptotic, not a bound" in guarantee.statement


def test_the_renyi_filter_reports_1_331_for_the_same_steps():
    plan = PoissonSampled(Gaussian(SIGMA), RATE)
    order = filters.plan_order(plan, DELTA)
    epsilon = filters.plan_epsilon(plan, DELTA, order=order)
    assert epsilon == pytest.approx(1.331, rel=5e-3)
    ledger = filters.renyi(epsilon, DELTA, order=order)
    _, (admitted, _) = admissions(ledger, jnp.asarray(SIGMA, jnp.float32))
    # Noise rounded to float32 may cost a hair more than the plan, which the plan's own noise does not.
    assert int(admitted.sum()) >= STEPS - 1
    with jax.enable_x64(True):
        _, (admitted, _) = admissions(ledger, jnp.asarray(LONGER))
    assert admitted[:STEPS].all()
    assert not admitted[STEPS:].any()
    assert float(ledger.guarantee.epsilon(DELTA)) <= epsilon
    assert float(ledger.guarantee.epsilon(DELTA)) == pytest.approx(1.331, rel=5e-3)


@pytest.mark.parametrize("regime", ["small", "large"])
@jax.enable_x64(True)
def test_a_step_costs_its_mean_loss_rounded_up_and_the_factor_of_a_last_one_is_rounded_down(regime):
    rng, small, count = np.random.default_rng(21), regime == "small", 300
    sigma, clip = 10.0 ** rng.uniform(-0.5, 3, count), rng.uniform(0.5, 2.0, count)
    rate = rng.uniform(1e-3, 0.2, count) if small else rng.uniform(0.801, 1.0, count)
    with mpmath.workdps(40):
        q, ratio = ([mpmath.mpf(float(x)) for x in row] for row in (rate, clip))
        ratio = [c / mpmath.mpf(float(s)) for c, s in zip(ratio, sigma, strict=True)]
        costs = [a * a * (mpmath.expm1(m * m) if small else m * m) / 2 for a, m in zip(q, ratio, strict=True)]
        ledger = filters.approximate_gdp(3 * np.array(costs, float), regime=regime)
        _, state = ledger.update(PoissonSampled(Gaussian(sigma, clip), rate), ledger.init())
        for cost, m, spent in zip(costs, ratio, np.asarray(ledger.spent(state)), strict=True):
            assert cost <= spent <= cost * (1 + (8 + m * m) * 2.0**-48)
        words = np.asarray(state.words, object) @ [2**64, 2**32, 1]
        found = np.asarray(ledger.clip_scale(PoissonSampled(Gaussian(sigma / 20, clip), rate), state))
        for n, a, m, budget, scale in zip(words, q, ratio, np.asarray(ledger.budget), found, strict=True):
            rest = mpmath.mpf(2**88 - n) / 2**88 * mpmath.mpf(float(budget))
            exact = mpmath.sqrt(mpmath.log1p(2 * rest / a**2) if small else 2 * rest) / (20 * m) / (1 if small else a)
            assert exact * (1 - 2.0**-48) <= scale <= exact < 1


@pytest.mark.parametrize(("regime", "rate"), [("small", 0.05), ("large", 0.9)])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_loop_that_does_not_clip_never_overdraws(regime, rate, jitted):
    ledger = filters.approximate_gdp(0.04, regime=regime)
    query = PoissonSampled(Gaussian(2.0 if regime == "small" else 30.0), rate)
    cost = rate**2 * (np.expm1(0.25) if regime == "small" else 30.0**-2) / 2
    ask = jax.jit(ledger.update) if jitted else ledger.update
    state, whole = ledger.init(), 0
    while True:
        admitted, after = ask(query, state)
        if not admitted:
            break
        state, whole = after, whole + 1
    assert whole == int(0.04 / cost)
    assert np.asarray(after.words).tolist() == np.asarray(state.words).tolist()
    assert float(ledger.spent(state)) <= 0.04
    # One that clips gets the rest, once, and only if it asks for it.
    admitted, after, scale = ledger.update_clipped(query, state)
    assert admitted
    assert 0 < float(scale) == float(ledger.clip_scale(query, state)) < 1
    assert float(ledger.remaining(after)) == 0.0
    assert not ledger.update_clipped(query, after)[0]
    assert float(ledger.clip_scale(query, after)) == 0.0


def test_dust_is_forfeited():
    ledger = filters.approximate_gdp(0.5, regime="large")
    query = Gaussian(1 / np.sqrt(1 - 2.0**-42))  # costs all but 2^-42 of the budget
    admitted, state = ledger.update(query, ledger.init())
    assert admitted
    assert not ledger.update(Gaussian(1e9), state)[0]


def test_the_loudest_step_is_clipped_and_not_refused():
    ledger = filters.approximate_gdp(0.05)
    query = PoissonSampled(Gaussian(1e-3), 0.01)
    admitted, state, scale = ledger.update_clipped(query, ledger.init())
    assert admitted
    assert 0 < float(scale) < 0.01
    assert float(ledger.remaining(state)) == 0.0


def test_a_plan_at_a_target_epsilon_gets_the_order_that_admits_most():
    plan = PoissonSampled(Gaussian(1.0), 0.02)
    best = filters.plan_order(plan, DELTA, 3.0)

    def steps(order):
        ledger = filters.renyi(3.0, DELTA, order=order)
        admitted, state = ledger.update(plan, ledger.init())
        return 1 / float(ledger.fraction(state)) if admitted else 0.0

    assert all(steps(best) >= steps(order) * (1 - 1e-6) for order in (5.5, 6.0, 8.0, 10.0, 16.0))
    assert filters.plan_order(plan, DELTA, 3.0, orders=(4, 32)) in (4.0, 32.0)
