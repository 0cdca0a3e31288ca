"""Rényi curves against quadrature in high precision, and their conversions against first principles."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxacct import Composed, Gaussian, PoissonSampled
from jaxacct.losses.renyi import delta_from_renyi, epsilon_from_renyi, renyi, renyi_from_epsilon


def exact_whole(rate, sigma, order):
    with mp.workdps(60):
        q, s = mp.mpf(rate), mp.mpf(sigma)
        total = mp.fsum(
            mp.binomial(order, k) * (1 - q) ** (order - k) * q**k * mp.expm1(mp.mpf(k * (k - 1)) / (2 * s * s))
            for k in range(2, order + 1)
        )
        return mp.log1p(total) / (order - 1)


def exact(rate, sigma, order, b):
    with mp.workdps(40):
        q, s, b = mp.mpf(rate), mp.mpf(sigma), mp.mpf(b)

        def integrand(t):
            w = q * mp.expm1(t / s - 1 / (2 * s * s))
            return mp.npdf(t) * ((1 + w) ** b - 1 - b * w)

        ends = np.linspace(min(0, float(b)) / sigma - 15, max(2, float(b)) / sigma + 15, 24)
        return mp.log1p(mp.quad(integrand, list(ends), maxdegree=5)) / (mp.mpf(order) - 1)


@pytest.mark.parametrize("rate", [1e-9, 1e-3, 0.1, 0.7, 1 - 1e-9])
@pytest.mark.parametrize("sigma", [0.01, 0.2, 1.0, 7.0, 300.0])
@pytest.mark.parametrize("order", [2, 3, 16, 64, 256])
def test_whole_orders_are_sound_and_tight(rate, sigma, order):
    value = float(renyi(PoissonSampled(Gaussian(sigma), rate), order))
    truth = exact_whole(rate, sigma, order)
    assert 0 <= float(value / truth - 1) < 1e-10


@pytest.mark.parametrize("relation", ["add", "remove"])
@pytest.mark.parametrize(
    ("rate", "sigma", "order"),
    [(1e-9, 1.0, 1.1), (1e-4, 0.5, 2.7), (0.01, 1.0, 6.7), (0.3, 3.0, 1.5), (0.9, 0.7, 4.2), (0.01, 50.0, 10.9)],
)
def test_real_orders_are_sound_and_tight_in_both_directions(rate, sigma, order, relation):
    mechanism = PoissonSampled(Gaussian(sigma), rate)
    value = float(renyi(mechanism, order, relation=relation))
    truth = exact(rate, sigma, order, order if relation == "remove" else 1 - mp.mpf(order))
    assert 0 <= float(value / truth - 1) < 1e-9
    assert float(renyi(mechanism, order)) >= value


def test_a_traced_order_agrees_with_a_static_one():
    mechanism = PoissonSampled(Gaussian(1.3), 0.02)
    for order in (2.0, 6.5, 12.0):
        traced = float(jax.jit(lambda a: renyi(mechanism, a))(order))
        assert traced == pytest.approx(float(renyi(mechanism, order)), rel=1e-9)
    for order in (0.5, 1.0, math.inf, math.nan):
        assert float(jax.jit(lambda a: renyi(mechanism, a))(order)) == math.inf


def test_edges():
    assert float(renyi(PoissonSampled(Gaussian(1.0), 0.0), 8)) == 0.0
    assert float(renyi(PoissonSampled(Gaussian(2.0), 1.0), 8)) == pytest.approx(1.0, rel=1e-12)
    assert float(renyi(Gaussian(2.0), 8, relation="replace")) == pytest.approx(1.0, rel=1e-12)
    assert float(renyi(PoissonSampled(Gaussian(1e-200), 0.5), 8)) == math.inf
    run = jax.jit(lambda s, q: renyi(PoissonSampled(Gaussian(s), q), 8))
    for s, q in [(math.nan, 0.1), (-1.0, 0.1), (0.0, 0.1), (1.0, math.nan), (1.0, -0.1), (1.0, 1.1)]:
        assert float(run(s, q)) == math.inf
    composed = Composed([Gaussian(2.0), PoissonSampled(Gaussian(1.0), 0.1)], (3, 5))
    parts = 3 * float(renyi(Gaussian(2.0), 4)) + 5 * float(renyi(PoissonSampled(Gaussian(1.0), 0.1), 4))
    assert float(renyi(composed, 4)) == pytest.approx(parts, rel=1e-12)
    with pytest.raises(ValueError, match="order must be a finite number above 1"):
        renyi(Gaussian(1.0), 1.0)
    with pytest.raises(ValueError, match="mechanism must be"):
        renyi("gaussian", 2)


def test_it_vmaps_jits_and_differentiates_inside_a_float32_program():
    sigmas, rates = jnp.linspace(0.6, 5.0, 7), jnp.linspace(0.001, 0.5, 7)
    for order in (8, 6.5):
        direct = renyi(PoissonSampled(Gaussian(sigmas), rates), order)
        mapped = jax.jit(jax.vmap(lambda s, q, a=order: renyi(PoissonSampled(Gaussian(s), q), a)))(sigmas, rates)
        assert direct.dtype == mapped.dtype == np.float64
        np.testing.assert_allclose(direct, mapped, rtol=1e-11)
    with jax.enable_x64(True):
        slope = jax.grad(lambda s: renyi(PoissonSampled(Gaussian(s), 0.01), 8.5))(1.0)
        wide, narrow = (float(renyi(PoissonSampled(Gaussian(1.0 + d), 0.01), 8.5)) for d in (1e-5, -1e-5))
    assert float(slope) == pytest.approx((wide - narrow) / 2e-5, rel=1e-4)


def test_the_conversions_invert_each_other_on_the_safe_side():
    for rho, order, delta in [(0.5, 8.0, 1e-5), (2.0, 3.3, 1e-10), (1e-3, 64.0, 1e-3), (40.0, 1.2, 1e-30)]:
        epsilon = float(epsilon_from_renyi(rho, order, delta))
        closed = rho + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        assert closed <= epsilon <= closed + 1e-12 * (1 + abs(closed))
        assert delta <= float(delta_from_renyi(rho, order, epsilon)) * (1 + 1e-9)
        back = float(renyi_from_epsilon(epsilon, delta, order))
        assert back <= rho * (1 + 1e-15)
        assert back == pytest.approx(rho, rel=1e-9)
        assert float(epsilon_from_renyi(max(back, 0.0), order, delta)) <= epsilon


def test_conversions_fail_closed():
    for rho in (math.nan, -1.0, math.inf):
        assert float(epsilon_from_renyi(rho, 4.0, 1e-5)) == math.inf
        assert float(delta_from_renyi(rho, 4.0, 1.0)) == 1.0
    assert float(epsilon_from_renyi(0.0, 4.0, 1e-5)) == 0.0
    assert float(jax.jit(epsilon_from_renyi)(1.0, 4.0, 0.0)) == math.inf
    assert math.isnan(float(jax.jit(renyi_from_epsilon)(1.0, math.nan, 4.0)))
    with pytest.raises(ValueError, match="delta must be"):
        epsilon_from_renyi(1.0, 4.0, 0.0)
    # (rho, order, delta or epsilon) at every edge of what makes sense.
    rows = [(1.0, 1.0, 0.5), (1.0, math.inf, 0.5), (50.0, 4.0, 1.0), (math.nan, 4.0, 1.0), (-1.0, 4.0, 1.0)]
    found = np.asarray(jax.jit(epsilon_from_renyi)(*np.array(rows).T))
    np.testing.assert_array_equal(found, [math.inf, math.inf, 0.0, math.inf, math.inf])
    rows = [(1.0, 1.0, 0.5), (1.0, math.inf, 0.5), (0.0, 4.0, 0.0), (1.0, 4.0, -1.0), (1.0, 4.0, math.nan)]
    found = np.asarray(jax.jit(delta_from_renyi)(*np.array(rows).T))
    np.testing.assert_array_equal(found, [1.0, 1.0, 0.0, 1.0, 1.0])
    assert 0 < float(delta_from_renyi(1e-3, 2.0, 700.0)) < 1e-300
    assert float(jax.jit(delta_from_renyi)(1.0, 4.0, math.inf)) <= 1e-300
    rows = [(1.0, 0.5, 1.0), (1.0, 0.5, math.inf), (1.0, 1.0, 4.0), (1.0, 0.0, 4.0), (-1.0, 0.5, 4.0)]
    assert np.isnan(np.asarray(jax.jit(renyi_from_epsilon)(*np.array(rows).T))).all()
    assert not math.isnan(float(renyi_from_epsilon(0.0, 0.5, 4.0)))
