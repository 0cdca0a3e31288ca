"""Skellam noise against modified Bessel functions in many digits, and in every place that takes a mechanism."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PoissonSampled, Skellam
from jaxacct.losses.renyi import renyi

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of:RuntimeWarning")


def masses(mu, reach):
    """p(x) for x from -reach to reach, by the recurrence in 60 digits; I_0 and I_1 at its end are checked."""
    with mp.workdps(60):
        z = 2 * mp.mpf(mu)
        after, here = mp.besseli(reach + 1, z), mp.besseli(reach, z)
        side = [here]
        for x in range(reach, 0, -1):
            after, here = here, 2 * x / z * here + after
            side.append(here)
        assert mp.almosteq(side[-1], mp.besseli(0, z), 1e-40)
        side = [value * mp.exp(-z) for value in side]
        return side + side[-2::-1]


def tables(mu, gap, reach):
    """(P, Q) on one support."""
    p = masses(mu, reach)
    return [mp.mpf(0)] * gap + p, p + [mp.mpf(0)] * gap


def hockey_stick(p, q, epsilons):
    with mp.workdps(60):
        gammas = [mp.exp(mp.mpf(float(e))) for e in epsilons]
        return np.array([float(sum(max(a - g * b, mp.mpf(0)) for a, b in zip(p, q, strict=True))) for g in gammas])


def assert_encloses(bounds, truth, lost=0.0):
    """Sound; ``lost`` is what the reference's finite tables leave out."""
    assert np.all(bounds.lower * (1 - 1e-14) <= truth + lost)
    assert np.all(truth * (1 - 1e-14) <= bounds.upper + lost)


@pytest.mark.parametrize(("mu", "gap"), [(0.05, 1), (1.0, 2), (30.0, 4), (600.0, 9)])
def test_one_run_is_the_sum_over_outcomes(mu, gap):
    epsilons = gap / math.sqrt(2 * mu) * np.array([-1.0, 0.0, 0.3, 1.0, 2.0, 4.0])
    truth = hockey_stick(*tables(mu, gap, int(140 + 20 * math.sqrt(mu))), epsilons)
    for relation in ("add_or_remove", "replace"):
        bounds = jaxacct.delta(Skellam(mu, gap), epsilons, relation=relation)
        assert_encloses(bounds, truth, 1e-30)
        np.testing.assert_allclose(bounds.upper, truth, rtol=1e-7, atol=1e-270)
        np.testing.assert_allclose(bounds.lower, truth, rtol=1e-7, atol=1e-270)


def convolved(mu, gap, reach, rate, epsilons, steps=3):
    """delta of three runs over all triples of outcomes; the direction `remove`."""
    p, q = (np.array([float(x) for x in table]) for table in tables(mu, gap, reach))
    p = rate * p + (1 - rate) * q
    kept = (p > 0) & (q > 0)
    loss, p = np.log(p[kept] / q[kept]), p[kept]
    losses = (loss[:, None, None] + loss[:, None] + loss).ravel()
    weights = (p[:, None, None] * p[:, None] * p).ravel()
    return np.array([np.sum(weights * np.maximum(-np.expm1(e - losses), 0.0)) for e in epsilons])


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_three_runs_are_the_sum_over_triples(rate):
    mu, gap, epsilons = 2.0, 1, np.array([0.1, 0.8, 2.0])
    truth = convolved(mu, gap, 35, rate, epsilons)
    mechanism = Skellam(mu, gap) if rate == 1.0 else PoissonSampled(Skellam(mu, gap), rate)
    bounds = jaxacct.delta(mechanism, epsilons, steps=3, relation="remove")
    room = 1e-12 + 1e-11 * truth  # the reference's roundings
    assert np.all((bounds.lower <= truth + room) & (truth <= bounds.upper + room))
    np.testing.assert_allclose(bounds.upper, truth, rtol=5e-3)
    np.testing.assert_allclose(bounds.lower, truth, rtol=5e-3)


@pytest.mark.parametrize("mu", [2e4, 1e6])
def test_wide_noise_is_a_gaussian(mu):
    gap = int(math.sqrt(2 * mu))
    wide, smooth = jaxacct.epsilon(Skellam(mu, gap), 1e-5), jaxacct.epsilon(Gaussian(math.sqrt(2 * mu), gap), 1e-5)
    # The losses are those of a Gaussian up to some gap / mu.
    np.testing.assert_allclose(wide, smooth, atol=3.0 * gap / mu)
    assert wide.upper - wide.lower <= 1e-6


@pytest.mark.parametrize(("mu", "gap"), [(0.2, 1), (10.0, 2), (5000.0, 60)])
@pytest.mark.parametrize("order", [1.1, 2.0, 7.5, 40.0])
def test_renyi_curves_are_sums_from_above(mu, gap, order):
    p = masses(mu, int(100 + 30 * math.sqrt(mu) + 1.3 * order * gap))
    with mp.workdps(60):
        terms = (a**order * b ** (1 - order) for a, b in zip(p[:-gap], p[gap:], strict=True))
        truth = float(mp.log(mp.fsum(terms)) / (mp.mpf(order) - 1))
    found = float(renyi(Skellam(mu, gap), order))
    assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-5)


def test_curves_of_samples_are_between_nothing_and_those_of_everything():
    for order in (1.5, 4.0):
        some, every = (float(renyi(x, order)) for x in (PoissonSampled(Skellam(20.0), 0.1), Skellam(20.0)))
        smooth = renyi(PoissonSampled(Gaussian(math.sqrt(40.0)), 0.1), order)
        assert 0 < some < every
        assert some == pytest.approx(float(smooth), rel=0.05)
