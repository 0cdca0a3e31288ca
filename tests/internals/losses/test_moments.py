"""Privacy-loss moments against 25-digit integration, Theorem 4.1's approximations, Theorem 4.2's conditions."""

import math

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct.papers.central_limit import _theorem, clt
from jaxacct.papers.moments import Moments, loss_moments


def sampled(sigma, rate):
    return jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)


def test_the_conditions_of_the_limit_theorem_for_a_schedule():
    sigma, rate, steps = np.array([1.0, 2.0]), np.array([0.01, 0.02]), np.array([500, 300])
    each = loss_moments(sampled(sigma, rate))
    found = clt(sampled(sigma, rate), steps)
    variances = [(each.variance_p * steps).sum(), (each.variance_q * steps).sum()]
    assert found.v == pytest.approx(sum(variances) / 2)
    assert found.kappa == pytest.approx(abs(variances[0] - variances[1]) / 2)
    assert found.m_1 == pytest.approx((each.mean_p * steps).sum())
    assert found.m_2 == pytest.approx(-(each.mean_q * steps).sum())
    assert found.phi == 0
    assert found.rho == pytest.approx(
        max((each.third_p / each.variance_p).max(), (each.third_q / each.variance_q).max())
    )
    assert found.mu == pytest.approx((found.m_1 + found.m_2) / math.sqrt(found.v))
    assert found.holds
    assert not clt(sampled(1.0, 0.01), 1).holds  # 4 rho^2 > v: one step is no limit
    each, low, high = (Moments(0.0, 0.0, v, v, t, t) for v, t in ((1.0, 1.0), (3.0, 0.0), (5.0, 0.0)))
    assert _theorem(*jax.tree.map(np.asarray, (low, high, each))).holds  # 4 rho^2 = 4 kappa = v: the ends count
    gaussian = clt(jaxacct.Gaussian(50.0), 2500)
    assert gaussian.mu == pytest.approx(1.0, rel=1e-10)
    assert gaussian.kappa == pytest.approx(0, abs=1e-10)
