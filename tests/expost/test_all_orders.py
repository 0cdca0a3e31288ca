"""Ex-post zCDP and GDP: what they imply, what they do not, and the worst stopping rule by backward induction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal, stats

import jaxacct
from jaxacct import GDP, ZeroConcentratedDP, expost
from jaxacct.expost import (
    ApproximateExPost,
    ExPostResult,
    GDPExPost,
    ProbabilisticExPost,
    PureExPost,
    RenyiExPost,
    ZCDPExPost,
)
from tests.expost.test_conversions import TABLE_3
from tests.refusals import all_refused

DELTA = 1e-5
BUDGETS = np.logspace(-2, 0, 7) / 20  # the rho of Table 3's epsilons at order 20
TABLES = {"gdp": (GDPExPost(), {}), "gdp, not above order 20": (GDPExPost(), {"order": 20}), "zcdp": (ZCDPExPost(), {})}


def worst_stop(budgets, reward, step=5e-4):
    """The largest mean reward of stopping a Brownian motion at one of the times 2 rho, on a grid of losses."""
    losses = np.arange(-3.0, 4.0, step)
    value = reward(len(budgets) - 1, losses)
    for i in range(len(budgets) - 1, -1, -1):
        time = 2 * (budgets[i] - (budgets[i - 1] if i else 0.0))
        around = np.arange(-10 * np.sqrt(time), 10 * np.sqrt(time) + step, step)
        weights = stats.norm.pdf(around, time / 2, np.sqrt(time))
        later = signal.fftconvolve(value, (weights / weights.sum())[::-1], mode="same")
        later[losses > 3.0] = value[losses > 3.0]  # beyond the reach of the grid; the chance is below 1e-12
        value = np.maximum(later, reward(i - 1, losses)) if i else later
    return float(np.interp(0.0, losses, value))


def epsilons(definition, to, tight=True, **fixed):
    return np.asarray(expost.convert(ExPostResult(None, BUDGETS, definition), to, tight=tight, **fixed).epsilon)


@pytest.mark.parametrize("name", TABLES)
def test_no_stopping_rule_breaks_an_epsilon_for_each_budget(name):
    definition, fixed = TABLES[name]
    row = epsilons(definition, ApproximateExPost(DELTA), budgets=BUDGETS, **fixed)
    worst = worst_stop(BUDGETS, lambda i, loss: np.maximum(-np.expm1(row[i] - loss), 0.0))
    assert worst <= DELTA
    # By how much a table of shares is above the best one: of Gaussians most of delta is reached.
    assert worst >= (0.8 if "gdp" in name else 0.15) * DELTA
    row = epsilons(definition, ProbabilisticExPost(DELTA), budgets=BUDGETS, **fixed)
    assert worst_stop(BUDGETS, lambda i, loss: 1.0 * (loss > row[i])) <= DELTA


def test_a_post_processing_of_a_gaussian_keeps_the_approximate_epsilon_and_not_the_gaussian_tail():
    """Outputs merged into "loss above 1" or not: the loss of the first is above what the path seldom passes."""
    rho, cut, delta = 0.05, 1.0, 5e-3
    p, q = stats.norm.sf(cut, rho * np.array([1, -1]), np.sqrt(2 * rho))
    laws = np.array([[p, 1 - p], [q, 1 - q]])
    gaussian = rho + np.sqrt(2 * rho) * stats.norm.isf(p * 0.9)  # the path passes it with 0.9 p
    assert expost.exact.excess_of_pair(ProbabilisticExPost(0.9 * p), *laws, np.full(2, gaussian)).lower > 0
    for to in (kind(share) for kind in (ApproximateExPost, ProbabilisticExPost) for share in (delta, p / 2)):
        result = ExPostResult(None, np.full(2, rho), GDPExPost())
        shifted = np.asarray(expost.convert(result, to, budgets=[rho]).epsilon)
        assert expost.exact.excess_of_pair(to, *laws, shifted).upper <= 0


def test_table_3_with_orders_chosen_for_delta_is_nowhere_larger():
    gaussian = epsilons(GDPExPost(), ApproximateExPost(DELTA), budgets=BUDGETS)
    assert gaussian == pytest.approx([0.11316, 0.17077, 0.25760, 0.38859, 0.58652, 0.88640, 1.34271], abs=1e-5)
    assert np.all(gaussian < TABLE_3)
    best = BUDGETS + 2 * np.sqrt(BUDGETS * np.log(1 / DELTA))  # the order chosen for each rho: Markov's inequality
    assert np.all(gaussian <= best)
    assert np.all(best < TABLE_3)
    for tight in (True, False):
        today = np.asarray(expost.approximate_epsilon(20 * BUDGETS, order=20, delta=DELTA, tight=tight))
        never = epsilons(GDPExPost(), ApproximateExPost(DELTA), tight, budgets=BUDGETS, order=20)
        if tight:
            assert np.all(never < today)
        assert never == pytest.approx(today, rel=0.8 if tight else 1e-6)
        # One order alone, and what nothing is known of but its rho.
        assert epsilons(ZCDPExPost(), ApproximateExPost(DELTA), tight, order=20) == pytest.approx(today, rel=1e-12)
        some = epsilons(ZCDPExPost(), ApproximateExPost(DELTA), tight, budgets=BUDGETS)
        assert np.all(some[:4] < today[:4])


def test_the_mixture_holds_for_any_rho_and_is_close_to_the_best_order():
    rho = np.array([1e-3, 0.01, 0.1, 1.0])
    plain = np.asarray(expost.convert(ExPostResult(None, rho, ZCDPExPost()), ProbabilisticExPost(DELTA)).epsilon)
    best = rho + 2 * np.sqrt(rho * np.log(1 / DELTA))
    assert np.all(plain > best)
    assert np.all(plain < 1.2 * best)
    assert expost.convert(ExPostResult(None, np.inf, GDPExPost()), ApproximateExPost(DELTA)).epsilon == np.inf
    budgets = np.geomspace(1e-3, 1.0, 12)
    row = np.asarray(expost.convert(ExPostResult(None, budgets, GDPExPost()), ProbabilisticExPost(DELTA)).epsilon)
    assert worst_stop(budgets[:8], lambda i, loss: 1.0 * (loss > row[i])) <= DELTA


def test_pure_implies_zcdp_with_rho_epsilon_and_no_less():
    """One outcome that P never has: p = 0 there and its epsilon is what the other direction needs."""
    for epsilon in (0.5, 0.1, 0.01):
        q = 1.0 - np.exp(-epsilon)
        laws, budgets = np.array([[0.0, 1.0], [q, 1.0 - q]]), np.array([np.inf, epsilon])
        assert expost.exact.excess(PureExPost(), laws, budgets).upper <= 1e-12
        assert expost.exact.excess(ZCDPExPost(), laws, budgets).upper <= 1e-12
        less = np.array([np.inf, 0.9 * epsilon])
        assert expost.exact.excess(ZCDPExPost(), laws, less).lower > 0
        # epsilon^2 / 2, which a constant epsilon has, is far too little.
        assert expost.exact.excess(ZCDPExPost(), laws, np.array([np.inf, epsilon**2 / 2])).lower > 0.4 * epsilon


def test_results_with_a_rho_compose_convert_and_are_capped():
    gdp, zcdp, pure = (ExPostResult(i, 0.1, d) for i, d in enumerate((GDPExPost(), ZCDPExPost(), PureExPost())))
    free = ExPostResult(None, 0.0, PureExPost())
    for other, definition in ((gdp, GDPExPost()), (free, GDPExPost()), (zcdp, ZCDPExPost()), (pure, ZCDPExPost())):
        results = gdp, other
        both, either = expost.compose(*results), expost.stopped_by(*results)
        assert both.definition == either.definition == definition
        assert 0 <= both.epsilon - sum(r.epsilon for r in results) < 1e-15
        assert either.epsilon == 0.1
    assert expost.convert(gdp, ZCDPExPost()).epsilon == 0.1
    assert expost.convert(pure, ZCDPExPost()).epsilon == 0.1
    assert expost.convert(zcdp, RenyiExPost(20)).epsilon == pytest.approx(2.0)
    assert isinstance(expost.ex_ante(ZCDPExPost(), 0.1), ZeroConcentratedDP)
    capped = expost.ex_ante(GDPExPost(), 0.125)
    assert isinstance(capped, GDP)
    assert float(capped.mu) == pytest.approx(0.5)
    all_refused(
        ("share one definition and order", lambda: expost.compose(gdp, ExPostResult(0, 0.1, RenyiExPost(20)))),
        ("to must be implied by", lambda: expost.convert(zcdp, GDPExPost())),
        ("to must be implied by", lambda: expost.convert(pure, GDPExPost())),
        ("to must be implied by", lambda: expost.convert(zcdp, PureExPost())),
        ("order and budgets must be None", lambda: expost.convert(pure, ApproximateExPost(DELTA), order=3)),
        ("budgets must not fall", lambda: expost.convert(gdp, ApproximateExPost(DELTA), budgets=[0.2, 0.1])),
        ("a table decides", lambda: expost.exact.excess(GDPExPost(), np.eye(2), np.zeros(2))),
    )


def test_what_is_implied_inside_a_program_has_its_float_type_and_fails_closed():
    @jax.jit
    def read(rho):
        zcdp = ExPostResult(None, rho, ZCDPExPost())
        renyi, approximate = (expost.convert(zcdp, to).epsilon for to in (RenyiExPost(20), ApproximateExPost(DELTA)))
        return renyi, approximate, expost.ex_ante(GDPExPost(), rho).mu

    found = read(jnp.float32(0.1))
    assert [x.dtype for x in found] == [jnp.float32] * 3
    assert found[0] >= np.float32(0.1) * 20.0
    assert found[0] == pytest.approx(2.0, rel=1e-6)
    assert found[2] == pytest.approx(np.sqrt(0.2), rel=1e-6)
    for bad in (np.nan, -1.0):
        assert np.all(np.isinf(read(jnp.float32(bad))[:2]))
        assert not read(jnp.float32(bad))[2] >= 0  # as a mechanism reveals everything then


def test_a_rho_that_is_traced_or_off_the_list_gets_the_next_budget_or_nothing():
    row = epsilons(GDPExPost(), ApproximateExPost(DELTA), budgets=BUDGETS)

    @jax.jit
    def read(rho):
        result = ExPostResult(None, rho, GDPExPost())
        return expost.convert(result, ApproximateExPost(DELTA), budgets=BUDGETS).epsilon

    between = np.array([BUDGETS[2] * 0.9, BUDGETS[6] * 1.1, np.nan, 0.0], np.float32)
    # A budget that came back through float32, or a sum rounded up, is still that budget.
    rounded = np.nextafter(BUDGETS.astype(np.float32), np.float32(1.0))
    assert np.asarray(read(jnp.asarray(rounded))) == pytest.approx(row, rel=1e-6)
    run = expost.release_until(
        lambda x: 1.0, expost.Brownian(0.5, sensitivity=1.0), BUDGETS, expost.PublicScore(0.0), key=jax.random.key(0)
    )
    assert expost.convert(run.result, ApproximateExPost(DELTA), budgets=BUDGETS).epsilon == row[0]
    found = np.asarray(read(jnp.asarray(between)))
    assert found[[0, 3]] == pytest.approx(row[[2, 0]], rel=1e-6)
    assert np.all(found[[0, 3]] >= row[[2, 0]])
    assert np.all(np.isinf(found[1:3]))


@pytest.mark.parametrize("kind", [expost.Brownian, expost.PrecisionWeighted, expost.Doubling])
def test_a_release_without_an_order_is_the_release_at_any_order_with_its_rho(kind):
    rho, key = np.array([0.01, 0.02, 0.05]), jax.random.key(4)
    free, fixed = kind(0.5, sensitivity=0.1), kind(0.5, sensitivity=0.1, order=16)
    assert free.definition == GDPExPost()
    assert np.asarray(free.path(key, rho)) == pytest.approx(np.asarray(fixed.path(key, 16 * rho)), rel=1e-6)


def test_a_run_with_a_rho_stops_and_says_what_it_costs():
    source = expost.Brownian(0.5, sensitivity=0.1)
    check = expost.PlainGaussian(0.4, epsilon=0.01, sensitivity=1e-3, order=None, checks=2)
    found = expost.release_until(lambda x: x, source, [0.01, 0.02, 0.5], check, key=jax.random.key(0), disjoint=True)
    assert found.result.definition == GDPExPost()
    assert "GDPExPost" in found.report()
    assert float(found.result.epsilon) >= 0.01
    alone = expost.release_until(lambda x: 1.0, source, [0.01, 0.02], expost.PublicScore(0.0), key=jax.random.key(0))
    assert alone.result.definition == GDPExPost()
    mu = np.sqrt(0.02)
    least = jaxacct.epsilon(GDP(mu), DELTA).lower
    assert float(expost.convert(alone.result, ApproximateExPost(DELTA)).epsilon) >= least
