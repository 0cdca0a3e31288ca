"""Algorithm 2 step by step: what a step costs in high precision, and the last unit at which one is still admitted."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.filters import amounts

module = importlib.import_module("jaxacct.filters.additive.approximate_gdp")
RNG = np.random.default_rng(21)
WHOLE = 1 << 88


def state_of(units):
    return amounts.SpentState(jnp.array([units >> 64, units >> 32 & 0xFFFFFFFF, units & 0xFFFFFFFF], jnp.uint32))


@pytest.mark.parametrize("regime", ["small", "large"])
@jax.enable_x64(True)
def test_a_step_costs_its_mean_loss_rounded_up_however_loud_and_nothing_where_there_is_none(regime):
    sigma, clip = 10.0 ** RNG.uniform(-1.2, 3, 300), 10.0 ** RNG.uniform(-0.2, 0.2, 300)
    rate = RNG.uniform(1e-4, 0.2, 300) if regime == "small" else RNG.uniform(0.801, 1.0, 300)
    read = jax.jit(lambda *x: module._mean_loss(x, regime))
    cost, mu, rates = (np.asarray(x) for x in read(clip, sigma, rate))
    assert np.array_equal(mu, clip / sigma)
    assert np.array_equal(rates, rate)
    with mpmath.workdps(40):
        for c, s, q, value in zip(clip.tolist(), sigma.tolist(), rate.tolist(), cost.tolist(), strict=True):
            square = (mpmath.mpf(c) / s) ** 2
            exact = min(mpmath.mpf(q) ** 2 * (mpmath.expm1(square) if regime == "small" else square) / 2, 1e200)
            assert exact <= value <= exact * (1 + (3 + square) * 2.0**-49)
    fine = 0.1 if regime == "small" else 0.9
    bad = [(-1.0, 1.0, fine), (1.0, 0.0, fine), (1.0, -1.0, fine), (1.0, np.inf, fine), (np.inf, 1.0, fine)]
    bad += [(1.0, 1.0, x) for x in ((-0.1, 0.2, 0.5) if regime == "small" else (0.8, 0.5, 1.0 + 1e-9))]
    bad += [(np.nan, 1.0, fine), (1.0, np.nan, fine), (1.0, 1.0, np.nan)]
    count = len(bad)
    rest = [(0.0, 1.0, fine), (1e200, 1.0, fine), (1.0, 1e300, fine), (1.0, 1.0, 0.0 if regime == "small" else 1.0)]
    found = np.asarray(read(*np.resize(bad + rest, (300, 3)).T)[0])
    assert np.isnan(found[:count]).all()
    assert found[count : count + 2].tolist() == [0.0, 1e200]
    assert found[count + 2] >= 0
    assert (found[count + 3] == 0) == (regime == "small")


@pytest.mark.parametrize("regime", ["small", "large"])
@jax.enable_x64(True)
def test_the_factor_on_a_last_step_is_below_the_exact_one_by_a_few_units(regime):
    count = 300
    units = [int(x) for x in WHOLE * RNG.uniform(0.0, 1.0, count)]
    state = amounts.SpentState(jnp.stack([state_of(n).words for n in units]))
    rate = RNG.uniform(1e-3, 0.2, count) if regime == "small" else RNG.uniform(0.801, 1.0, count)
    sigma, clip, budget = 10.0 ** RNG.uniform(-3, -1, count), RNG.uniform(0.5, 2.0, count), RNG.uniform(0.1, 1.0, count)
    *_, found = module._update(amounts.split(budget), (clip, sigma, rate), state, regime, True, "float64")
    with mpmath.workdps(40):
        for n, q, s, c, b, scale in zip(units, rate, sigma, clip, budget, np.asarray(found), strict=True):
            rest = mpmath.mpf(WHOLE - n) / WHOLE * b
            most = mpmath.sqrt(mpmath.log1p(2 * rest / mpmath.mpf(q) ** 2) if regime == "small" else 2 * rest)
            exact = most * s / c / (1 if regime == "small" else q)
            assert exact * (1 - 2.0**-48) <= scale <= exact
            assert scale < 1
