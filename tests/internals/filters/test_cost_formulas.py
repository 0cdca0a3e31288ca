"""Closed forms of costs in concentrated privacy, in high precision; no smaller ones would do."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from jaxacct import (
    GDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    ZeroConcentratedDP,
)
from jaxacct.filters.additive.costs import concentrated_cost, pure_cost
from jaxacct.losses.renyi import renyi

EPSILONS = [1e-12, 1e-6, 1e-3, 0.1, 0.49, 0.51, 1.0, 3.0, 20.0, 200.0]
ORDERS = (1.0001, 1.1, 1.5, 2.0, 3.7, 8.0, 30.0, 200.0, 3000.0)


def close_above(value, truth):
    assert truth <= float(value) <= truth * (1 + 1e-12), (float(value), float(truth))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_closed_forms_of_rho_are_the_kullback_leibler_divergences_rounded_up(epsilon):
    with mpmath.workdps(40):
        e = mpmath.mpf(epsilon)
        close_above(concentrated_cost(PureDP(epsilon)), e * mpmath.tanh(e / 2))
        close_above(concentrated_cost(RandomizedResponse(epsilon)), e * mpmath.tanh(e / 2))
        close_above(concentrated_cost(Laplace(1.0, epsilon)), e + mpmath.exp(-e) - 1)
        close_above(concentrated_cost(RandomizedResponse(epsilon, 3)), e * mpmath.expm1(e) / (mpmath.exp(e) + 2))
        close_above(concentrated_cost(RandomizedResponse(epsilon, 10**9)), _many(e, 10**9))


def _many(e, k):
    """More categories than 2 + 2 exp(epsilon / 2) count as that many: epsilon tanh(epsilon / 4)."""
    return e * mpmath.expm1(e) / (mpmath.exp(e) + min(k, 2 + 2 * mpmath.exp(e / 2)) - 1)


@pytest.mark.parametrize(
    "make",
    [
        Laplace,
        lambda e: Laplace(1.0, e),
        RandomizedResponse,
        lambda e: RandomizedResponse(e, 4),
        lambda e: RandomizedResponse(e, 50),
        lambda e: RandomizedResponse(e, 10**6),
        PureDP,
        PermuteAndFlip,
        Exponential,
        lambda e: DiscreteLaplace(1 / e, 1),
        lambda e: DiscreteLaplace(1 / e, 3),
        lambda e: DiscreteGaussian(1 / e, 1),
        lambda e: Gaussian(1 / e),
        GDP,
        ZeroConcentratedDP,
    ],
)
def test_no_order_costs_more_than_order_times_rho(make):
    for epsilon in (0.03, 0.5, 2.0, 9.0):
        query = make(epsilon)
        rho = float(concentrated_cost(query))
        curve = np.array([float(renyi(query, order)) for order in ORDERS])
        # The Rényi curves are rounded up by themselves.
        assert np.all(curve <= np.array(ORDERS) * rho * (1 + 1e-6)), (epsilon, curve / np.array(ORDERS) / rho)


@pytest.mark.parametrize("rate", [0.0, 1e-12, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 5.0, 100.0, 720.0])
def test_a_sample_costs_the_logarithm_of_the_mixed_ratio(rate, epsilon):
    with mpmath.workdps(400):
        truth = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(epsilon)))
        value = float(pure_cost(PoissonSampled(PureDP(epsilon), rate)))
        assert float(truth) <= value * (1 + 2.0**-52)
        assert value <= float(truth) * (1 + 1e-9) + (1e-9 if epsilon > 700 else 0.0)
