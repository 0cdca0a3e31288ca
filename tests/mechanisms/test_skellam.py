"""Skellam noise against modified Bessel functions in many digits, and in every place that takes a mechanism."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PoissonSampled, Skellam
from jaxacct.losses.renyi import renyi


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
