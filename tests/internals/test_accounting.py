"""delta and epsilon against truth that was computed another way: sound in one test, tight in another."""

import numpy as np
import scipy.stats

import jaxacct
from jaxacct.losses.engines import run as engine


def _sampled(sigma, rate):
    return jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)


def test_the_far_tail_of_a_sampled_gaussian_needs_no_lattice(monkeypatch):
    # The contour places its taper by a first bound of delta: 1e-32 asks for another one than 1e-10.
    monkeypatch.setattr(engine, "universal_bounds", None)
    lower, upper = jaxacct.delta(_sampled(1.0, 0.01), np.array([2.0, 6.0, 10.0]), steps=1000)
    assert np.all(upper / lower - 1 < 1e-2)
    assert 1e-34 < upper[2] < 1e-31


def test_a_delta_near_1_needs_no_lattice(monkeypatch):
    monkeypatch.setattr(engine, "universal_bounds", None)
    lower, upper = jaxacct.delta(_sampled(0.9, 0.0766), 2.73, steps=36_429)
    assert 0.9999 < lower < 1.0  # as delta is
    assert upper <= 1.0
    # Truly below 1, by Chernoff's bound with an exponent of 1 / 2: E_P[e^(-L / 2)]^n is the affinity of P and Q.
    lower, _ = jaxacct.delta(jaxacct.Gaussian(1.0), 1.0, steps=64)
    truth = scipy.stats.norm.cdf(4 - 1 / 8) - np.e * scipy.stats.norm.cdf(-4 - 1 / 8)
    assert lower <= truth
