"""The filter with one closed-form price: its promise against analysts, and against the limit it corrects."""

import functools

import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.adversary import true_cost

SIGMA, RATE, EPSILON, DELTA = (2.0, 2.6), 0.1, 2.0, 1e-4


@functools.cache
def made():
    return filters.closed_form(sigma=SIGMA, rate=RATE, epsilon=EPSILON, delta=DELTA)


@pytest.mark.slow
def test_no_adaptive_analyst_exceeds_the_promise_and_one_comes_near():
    queries = [PoissonSampled(Gaussian(s), RATE) for s in (2.0, 2.23, 2.6)]
    worst = true_cost(made(), queries, delta=DELTA).epsilon(DELTA)
    assert worst.lower <= EPSILON
    assert worst.lower >= 0.965 * EPSILON


def test_the_budget_is_below_the_limits_which_an_analyst_exceeds():
    limit = filters.for_target("approximate_gdp", EPSILON, DELTA)
    assert float(made().budget) < float(limit.budget)
    loud = PoissonSampled(Gaussian(SIGMA[0]), RATE)
    runs = int(float(limit.budget) / float(RATE**2 * np.expm1(SIGMA[0] ** -2) / 2))
    assert jaxacct.epsilon(loud, DELTA, steps=runs).lower > EPSILON


@pytest.mark.parametrize("sigma", SIGMA)
def test_every_constant_schedule_within_the_budget_meets_the_target(sigma):
    query, filter = PoissonSampled(Gaussian(sigma), RATE), made()
    price = RATE**2 * np.expm1(sigma**-2) / 2
    runs = int(float(filter.budget) / price)
    assert filter.update(jaxacct.Composed([query], runs - 1), filter.init())[0]
    assert not filter.update(jaxacct.Composed([query], runs + 2), filter.init())[0]
    assert jaxacct.epsilon(query, DELTA, steps=runs).upper <= EPSILON


def test_queries_beyond_the_quiet_ends_pay_for_the_ends_and_louder_ones_are_refused():
    filter = made()
    spent = lambda query: float(filter.spent(filter.update(query, filter.init())[1]))  # noqa: E731
    end = spent(PoissonSampled(Gaussian(SIGMA[1]), RATE))
    assert spent(PoissonSampled(Gaussian(50.0), RATE)) == pytest.approx(end, rel=1e-6)
    assert spent(PoissonSampled(Gaussian(SIGMA[1]), 1e-3)) == pytest.approx(end, rel=1e-6)
    for query in (PoissonSampled(Gaussian(1.99), RATE), PoissonSampled(Gaussian(2.0), 0.101), Gaussian(9.0)):
        assert not filter.update(query, filter.init())[0]


def test_bad_arguments_are_named():
    for wrong, message in (
        ({"sigma": (3.0, 2.0)}, "sigma and rate must rise"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"sigma": 0.3}, "sigma must be larger"),
    ):
        with pytest.raises(ValueError, match=message):
            filters.closed_form(**{"sigma": 2.0, "rate": RATE, "epsilon": 1.0, "delta": 1e-5} | wrong)
