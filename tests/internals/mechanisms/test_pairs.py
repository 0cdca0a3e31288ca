"""Tails of every pair against densities integrated another way, and the laws that every pair obeys."""

from __future__ import annotations

import jax
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from jaxacct import (
    Exponential,
    FromTables,
    Gaussian,
    Laplace,
    PermuteAndFlip,
    PoissonSampled,
    RandomSensitivityGaussian,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedPoisson,
)
from jaxacct.mechanisms.directions import directions

MIXTURE = RandomSensitivityGaussian(0.9, (0.0, 1.0, 2.5), (0.7, 0.2, 0.1))
EVERY = {
    "gaussian": (Gaussian(1.3), "remove"),
    "laplace": (Laplace(0.7), "remove"),
    "mixture": (MIXTURE, "remove"),
    "mixture added": (MIXTURE, "add"),
    "exponential": (Exponential(1.5), "remove"),
    "permute and flip": (PermuteAndFlip(0.8), "remove"),
    "sampled gaussian": (PoissonSampled(Gaussian(0.8), 0.3), "add"),
    "sampled laplace": (PoissonSampled(Laplace(0.7), 0.1), "remove"),
    "sampled laplace added": (PoissonSampled(Laplace(0.7), 0.1), "add"),
    "sampled mixture": (PoissonSampled(MIXTURE, 0.2), "add"),
    "replaced gaussian": (PoissonSampled(Gaussian(0.8), 0.3), "replace"),
    "replaced laplace": (PoissonSampled(Laplace(0.7), 0.1), "replace"),
    "replaced mixture": (PoissonSampled(MIXTURE, 0.2), "replace"),
    "replaced tables": (PoissonSampled(FromTables([0.5, 0.3, 0.2, 0.0], [0.2, 0.3, 0.4, 0.1]), 0.2), "replace"),
    "truncated": (TruncatedPoisson(Gaussian(0.9), 0.2, 3, 10), "remove"),
    "truncated, zeroed out": (TruncatedPoisson(Gaussian(0.9), 0.2, 3, 10), "zero_out"),
    "truncated, filled in": (TruncatedPoisson(Gaussian(0.9), 0.2, 3, 10), "fill_in"),
    "truncated, replaced": (TruncatedPoisson(Gaussian(0.9), 0.2, 3, 10), "replace"),
    "with replacement": (SampledWithReplacement(Gaussian(1.1), 3, 10), "remove"),
    "with replacement, replaced": (SampledWithReplacement(Gaussian(1.1), 3, 10), "replace"),
    "without replacement": (SampledWithoutReplacement(Gaussian(1.1), 3, 10), "replace"),
    "laplace without replacement": (SampledWithoutReplacement(Laplace(1.1), 3, 10), "replace"),
}


def pair_of(mechanism, relation):
    with jax.enable_x64(True):
        ((pair, _),) = directions(mechanism, relation)[0]
        return jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, np.float64), pair)


def tails_of(pair, losses):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(lambda p, x: p.tails(x))(pair, np.asarray(losses, np.float64)))


@pytest.mark.parametrize("name", EVERY)
def test_tails_are_those_of_a_pair(name):
    """dP = e^L dQ between any two losses, both sides add up to 1, and tails fall."""
    pair = pair_of(*EVERY[name])
    with jax.enable_x64(True):
        largest, error, infinity = float(pair.max_loss()), float(pair.loss_error()), float(pair.infinity())
        survey = jax.tree.map(np.asarray, pair.survey())
        anchor = float(pair.anchor())
    losses = np.linspace(-4.0, min(largest, 4.0), 4001)
    p_above, p_below, q_above, q_below, _ = tails_of(pair, losses)
    np.testing.assert_allclose(p_above + p_below, 1.0, atol=1e-14)
    np.testing.assert_allclose(q_above + q_below, 1.0, atol=1e-14)
    assert np.all(np.diff(p_above) <= 1e-15)
    assert np.all(np.diff(q_above) <= 1e-15)
    p, q = -np.diff(p_above), -np.diff(q_above)
    assert np.all(p >= np.exp(losses[:-1]) * q - 1e-13)
    assert np.all(p <= np.exp(losses[1:]) * q + 1e-13)
    assert infinity == 0.0
    assert 0.0 <= error < 5e-11
    assert abs(anchor) <= 4.0
    # The survey is a quadrature of the loss under P.
    weights = np.exp(survey.log_masses)
    assert weights.sum() == pytest.approx(1.0, abs=1e-6)
    seen = (weights * np.clip(survey.losses, losses[0], losses[-1])).sum()
    assert seen == pytest.approx(losses[0] + np.trapezoid(p_above, losses), abs=5e-3)
    if largest < 4.0:
        assert tails_of(pair, [largest * (1 + 1e-9)]).p_above[0] == 0.0


def hockey_stick(pair, losses):
    p_above, _, q_above, _, _ = tails_of(pair, losses)
    return p_above - np.exp(losses) * q_above


def test_tiny_rates_lose_no_digits():
    rate, scale = 1e-10, 1.0
    losses = np.array([-0.5 * rate, 0.3 * rate, rate])  # losses of remove lie within rate * expm1(+-1)
    found = tails_of(pair_of(PoissonSampled(Laplace(scale), rate), "remove"), losses)
    with mp.workdps(40):
        for i, loss in enumerate(losses):
            inner = mp.log1p(mp.expm1(mp.mpf(loss)) / mp.mpf(rate))
            q = mp.e ** (-(1 + inner) / 2) / 2
            assert found.q_above[i] == pytest.approx(float(q), rel=1e-12)


def test_without_replacement_is_the_theorem():
    """Balle, Barthe, Gaboardi 2018: delta'(log(1 + q (e^eps - 1))) = q delta(eps) for a Gaussian under `replace`."""
    q, sigma = 0.3, 1.1
    epsilon = np.array([0.0, 0.2, 1.0, 3.0])
    mu = 1 / sigma
    inner = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    pair = pair_of(SampledWithoutReplacement(Gaussian(sigma), 3, 10), "replace")
    outer = np.log1p(q * np.expm1(epsilon))
    np.testing.assert_allclose(hockey_stick(pair, outer), q * inner, rtol=1e-12)
    # The curve of a symmetric relation: H(gamma) = gamma H(1 / gamma) + 1 - gamma.
    reflected = np.exp(-outer) * q * inner - np.expm1(-outer)
    np.testing.assert_allclose(hockey_stick(pair, -outer), reflected, rtol=1e-12)
