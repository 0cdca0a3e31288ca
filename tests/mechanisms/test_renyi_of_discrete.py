"""Rényi curves of discrete mechanisms and stated guarantees against sums in high precision."""

import mpmath as mp
import numpy as np
import pytest

import jaxacct
from jaxacct import (
    GDP,
    ApproximateDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    FromProfile,
    FromTables,
    Gaussian,
    PureDP,
    RandomizedResponse,
    RenyiDP,
    ZeroConcentratedDP,
)
from jaxacct.losses.renyi import renyi

ORDERS = np.array([1.001, 1.5, 2.0, 7.3, 64.0])


def divergence(p, q):
    """log(sum p^a q^(1 - a)) / (a - 1), in 100 digits."""
    with mp.workdps(100):
        p, q = ([mp.mpf(x) for x in table] for table in (p, q))
        orders = [mp.mpf(float(a)) for a in ORDERS]
        return np.array(
            [float(mp.log(mp.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))) / (a - 1)) for a in orders]
        )


def noise(log_weight, shift, reach):
    with mp.workdps(100):
        weights = {x: mp.exp(log_weight(mp.mpf(x))) for x in range(-reach - shift, reach + shift + 1)}
        total = mp.fsum(weights.values())
        at = range(-reach, reach + 1)
        return [weights[x - shift] / total for x in at], [weights[x] / total for x in at]


def response(epsilon, categories):
    with mp.workdps(100):
        big = mp.exp(mp.mpf(epsilon))
        total = big + categories - 1
        rest = [1 / total] * (categories - 2)
        return [big / total, 1 / total, *rest], [1 / total, big / total, *rest]


P, Q = [0.5, 0.3, 0.2, 0.0], [0.2, 0.3, 0.4, 0.1]


@pytest.mark.parametrize(
    ("mechanism", "tables"),
    [
        (RandomizedResponse(1.3, 4), response(1.3, 4)),
        (RandomizedResponse(1e-4), response(1e-4, 2)),
        (PureDP(0.8), response(0.8, 2)),
        (ApproximateDP(0.8, 0.0), response(0.8, 2)),
        (FromProfile([0.8], [0.0]), response(0.8, 2)),
        (FromTables(P, Q), (P, Q)),
        (DiscreteLaplace(0.5, 1), noise(lambda x: -abs(x) / mp.mpf(0.5), 1, 60)),
        (DiscreteLaplace(4.0, 5), noise(lambda x: -abs(x) / mp.mpf(4.0), 5, 400)),
    ],
    ids=str,
)
def test_curves_are_the_sum_rounded_up(mechanism, tables):
    truth = divergence(*tables)
    found = np.asarray(renyi(mechanism, ORDERS, relation="remove"))
    assert np.all(found >= truth * (1 - 1e-14))
    # At order 1.001 the log of a moment close to 1 is divided by 0.001.
    np.testing.assert_allclose(found, truth, rtol=1e-9)


@pytest.mark.parametrize(("sigma", "sensitivity"), [(0.4, 1), (1.7, 3)])
def test_a_discrete_gaussian_has_at_most_the_gaussians_curve(sigma, sensitivity):
    truth = divergence(*noise(lambda x: -(x**2) / (2 * mp.mpf(sigma) ** 2), sensitivity, 260))
    found = np.asarray(renyi(DiscreteGaussian(sigma, sensitivity), ORDERS))
    assert np.all(found >= truth)
    np.testing.assert_allclose(found[[2, 4]], truth[[2, 4]], rtol=1e-12)  # whole order: exact
    np.testing.assert_allclose(found, np.asarray(renyi(Gaussian(sigma, sensitivity), ORDERS)), rtol=1e-12)


def test_stated_guarantees_have_the_curve_they_state():
    np.testing.assert_allclose(renyi(GDP(0.7), ORDERS), ORDERS * 0.245, rtol=1e-12)
    np.testing.assert_allclose(renyi(ZeroConcentratedDP(0.3), ORDERS), ORDERS * 0.3, rtol=1e-12)
    np.testing.assert_array_equal(renyi(RenyiDP(7.3, 0.2), ORDERS), [0.2, 0.2, 0.2, 0.2, np.inf])
    np.testing.assert_array_equal(renyi(ApproximateDP(0.7, 1e-6), ORDERS), np.inf)
    np.testing.assert_array_equal(renyi(FromTables(Q, P), ORDERS, relation="remove"), np.inf)
    np.testing.assert_array_equal(renyi(FromTables(P, Q), ORDERS), np.inf)
    np.testing.assert_array_equal(renyi(PureDP(0.0), ORDERS), 0.0)
    both = renyi(Composed([PureDP(0.2), ZeroConcentratedDP(0.1)], [3, 2]), ORDERS)
    np.testing.assert_allclose(both, 3 * np.asarray(renyi(PureDP(0.2), ORDERS)) + 0.2 * ORDERS, rtol=1e-12)
    with pytest.raises(ValueError, match="add_or_remove"):
        renyi(FromTables(P, Q), 2.0, relation="replace")


def test_losses_of_any_size_have_a_divergence_of_at_most_that_and_more_than_none():
    epsilon = np.array([1e-170, 500.0, 700.0, 1000.0, 1e5])  # of the last ones a lie's probability is no float64 number
    for make in (PureDP, RandomizedResponse, lambda epsilon: RandomizedResponse(epsilon, 5), jaxacct.PermuteAndFlip):
        found = np.asarray(renyi(make(epsilon[:, None]), ORDERS))
        np.testing.assert_allclose(found[1:], np.broadcast_to(epsilon[1:, None], found[1:].shape), rtol=1e-2)
        assert np.all((found[0] > 0) & (found[0] <= epsilon[0] * (1 + 1e-12)))
    rare = FromTables([1 - 1e-200, 1e-200], [1e-200, 1 - 1e-200])
    np.testing.assert_allclose(renyi(rare, ORDERS), 200 * np.log(10), rtol=1e-9)
