"""The curve of a Gaussian far into its tails, and its Rényi divergence to the last units."""

from __future__ import annotations

from fractions import Fraction

import jax
import mpmath as mp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled
from jaxacct.losses.renyi import renyi
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_delta, gdp_epsilon
from jaxacct.mechanisms.renyi.gaussian import mu_of_noise


def test_a_gaussian_is_rounded_up_by_a_few_units_and_no_more():
    rng = np.random.default_rng(0)
    sigma, sensitivity, order = np.exp(rng.normal(0, 2, (3, 200)))
    order = 1 + order
    mechanism = Gaussian(sigma, sensitivity)
    with jax.enable_x64(True):
        mu, value = np.asarray(mu_of_noise(mechanism.sigma, mechanism.sensitivity)), np.asarray(renyi(mechanism, order))
        whole = np.asarray(renyi(PoissonSampled(mechanism, 1.0), 2.0))  # every record is in the sample
    for s, d, a, m, v, w in zip(sigma, sensitivity, order, mu, value, whole, strict=True):
        ratio = Fraction(float(d)) / Fraction(float(s))
        for found, truth, units in ((m, ratio, 3), (v, Fraction(float(a)) * ratio**2 / 2, 12), (w, ratio**2, 24)):
            assert 0 <= Fraction(float(found)) / truth - 1 <= units * Fraction(2) ** -52


@pytest.mark.parametrize("mu", [1e-6, 0.05, 0.314252, 1.0, 5.0, 40.0])
def test_the_gdp_curve_is_sound_and_tight_far_into_the_tails(mu):
    for epsilon in (0.0, 1e-3, 0.3, 2.0, 12.0, 60.0):
        with mp.workdps(400):
            m, e = mp.mpf(mu), mp.mpf(epsilon)
            upper, lower = (mp.erfc((e / m + sign * m / 2) / mp.sqrt(2)) / 2 for sign in (-1, 1))
            truth = upper - mp.exp(e) * lower
        if truth > 1e-290:
            assert 0 <= float(mp.mpf(float(gdp_delta(mu, epsilon))) / truth - 1) < 1e-11
    for delta in (0.4, 1e-5, 1e-30, 1e-200):
        epsilon = float(gdp_epsilon(mu, delta))
        assert float(gdp_delta(mu, epsilon)) <= delta * (1 + 1e-12)
        if epsilon > 0:
            assert float(gdp_delta(mu, epsilon * (1 - 1e-9))) >= delta * (1 - 1e-12)
