"""Rényi curves against quadrature in high precision, and their conversions against first principles."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled
from jaxacct.losses.renyi import delta_from_renyi, epsilon_from_renyi, renyi
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_delta, gdp_epsilon
from jaxacct.mechanisms.renyi.gaussian import _log_binomial, _trapezoid, _whole, mu_of_noise


def test_the_conversion_is_no_smaller_than_the_gaussians_own_curve():
    for mu in (0.1, 1.0, 4.0):
        for order in (1.5, 4.0, 20.0):
            rho = order * mu**2 / 2
            for delta in (1e-3, 1e-6, 1e-12):
                assert float(epsilon_from_renyi(rho, order, delta)) >= float(gdp_epsilon(mu, delta)) * (1 - 1e-9)
            for epsilon in (0.0, 0.5, 3.0):
                assert float(delta_from_renyi(rho, order, epsilon)) >= float(gdp_delta(mu, epsilon)) * (1 - 1e-9)


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
        for found, truth, units in ((m, ratio, 3), (v, Fraction(float(a)) * ratio**2 / 2, 12), (w, ratio**2, 12)):
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


def test_the_gdp_curve_fails_closed():
    assert float(gdp_delta(0.0, 0.0)) == 0.0
    assert float(gdp_epsilon(0.0, 1e-9)) == 0.0
    assert float(jax.jit(gdp_delta)(math.nan, 1.0)) == 1.0
    assert float(jax.jit(gdp_delta)(1.0, -1.0)) == 1.0
    assert float(jax.jit(gdp_epsilon)(1.0, 0.0)) == math.inf
    assert float(jax.jit(gdp_epsilon)(-1.0, 0.1)) == math.inf
    with pytest.raises(ValueError, match="mu must be"):
        gdp_delta(-1.0, 1.0)


def test_the_trapezoid_rule_is_trusted_where_its_error_is_e_to_the_minus_32():
    mu, b = (x.ravel() for x in np.meshgrid(np.geomspace(0.3, 40.0, 60), [-60.0, -3.0, 1.02, 1.9, 2.5, 30.0]))
    with jax.enable_x64(True):
        ask = jax.jit(_trapezoid, static_argnums=3)
        _, certified = ask(jnp.asarray(mu), jnp.full(mu.shape, 0.1), jnp.asarray(b), 1024)
    reach = np.sqrt(144 + 2 * np.abs(b))
    step = (np.maximum(b, 2) * mu + reach - np.minimum(b, 0) * mu + reach) / 1023
    height = np.minimum(np.pi / (2 * mu), 2 * np.pi / step)
    # 2 exp(d^2 / 2) / (exp(2 pi d / h) - 1) times 2^(max(2 - b, 0) / 2) (1 + 4 / expm1(mu^2)), twice.
    error = np.log(2) + height**2 / 2 - 2 * np.pi * height / step
    error += np.log(2) / 2 * np.maximum(2 - b, 0) + np.log(1 + 4 / np.expm1(np.minimum(mu**2, 700.0))) + np.log(2)
    assert np.all(error[certified] <= -32 + 0.02 * np.abs(b[certified]))
    assert np.all(np.asarray(certified)[error <= -32 - 0.02 * np.abs(b) - 0.02])
    assert 60 < certified.sum() < 300


def test_whole_orders_are_rounded_up_term_by_term():
    order, mu, rate = (
        np.array([2.0, 3.0, 40.0, 60.0]),
        np.array([1e-3, 9.0, 0.3, 2.0]),
        np.array([1e-9, 0.7, 1e-3, 0.5]),
    )
    table = _log_binomial(tuple(order), order.shape)
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(_whole)(mu, rate, order, table))
    for value, n, m, q in zip(found, order, mu, rate, strict=True):
        with mp.workdps(50):
            m, q, n = mp.mpf(float(m)), mp.mpf(float(q)), int(n)
            parts = []
            for k in range(2, n + 1):
                logs = [
                    mp.log(mp.binomial(n, k)),
                    k * mp.log(q),
                    (n - k) * mp.log1p(-q),
                    mp.log(mp.expm1(k * (k - 1) * m * m / 2)),
                ]
                parts.append((mp.exp(mp.fsum(logs)), mp.fsum(map(abs, logs)) + 4))
            total = mp.fsum(t for t, _ in parts)
            room = mp.fsum(t * 8 * mp.mpf(2) ** -52 * size for t, size in parts) / total + 1e-14 * 2
            assert 0.6 * room <= value - mp.log(total) <= 1.3 * room
