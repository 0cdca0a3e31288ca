"""What individual ledgers charge, bound and mark, by themselves: units, norms, last steps."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

from jaxacct import filters
from jaxacct.filters.accounts.examples import FLAG

# The package's names for these are the functions'.
approximate = importlib.import_module("jaxacct.filters.accounts.approximate_gdp")
units = importlib.import_module("jaxacct.filters.accounts.units")
RNG = np.random.default_rng(4)
WHOLE = 2**30


@jax.enable_x64(True)
def test_an_example_pays_at_least_its_cost_in_units_and_hardly_more():
    norms = np.concatenate([10.0 ** RNG.uniform(-6, 1, 40), [0.5, 1.0, 3.0, 1e-30]]).astype(np.float32)
    for regime, rate in (("small", 0.1), ("large", 0.9)):
        ledger = filters.per_example(filters.approximate_gdp(0.7, regime), examples=norms.size)
        found = np.asarray(jax.jit(approximate._units)(norms, jnp.float64(2.0), jnp.float64(1.7), rate, ledger))
        assert found.dtype == np.float32
        assert np.array_equal(found, np.floor(found))
        with mpmath.workdps(30):
            for norm, units in zip(norms.tolist(), found.tolist(), strict=True):
                square = (min(mpmath.mpf(norm), 2) / mpmath.mpf(1.7)) ** 2
                gain = mpmath.expm1(square) if regime == "small" else square
                cost = mpmath.mpf(rate) ** 2 * gain / 2 / 0.7 * WHOLE
                assert max(cost, 1) <= units <= cost * (1 + (6 + square) * 2.0**-19) + 1


@jax.enable_x64(True)
def test_a_last_step_is_clipped_to_what_is_left_and_others_to_the_clip_norm():
    norms = np.concatenate([RNG.uniform(0.01, 5.0, 40), [2.0, 3.0, np.nan, 1.0]]).astype(np.float32)
    spent = RNG.integers(0, 2**30, norms.size).astype(np.int32)
    last = np.arange(norms.size) % 2 == 0
    words = (spent | np.where(last, 2**30, 0) | FLAG).astype(np.int32)
    words[-1] = spent[-1]  # takes no part
    for regime, rate in (("small", 0.1), ("large", 0.9)):
        ledger = filters.per_example(filters.approximate_gdp(0.02, regime), examples=norms.size)
        found = np.asarray(ledger._allowed((2.0, 1.7, rate), norms, words))
        assert found.dtype == np.float32
        assert found[-2:].tolist() == [0.0, 0.0]
        with mpmath.workdps(30):
            for norm, used, ends, value in list(zip(norms.tolist(), spent.tolist(), last, found.tolist(), strict=True))[
                :-2
            ]:
                rest = mpmath.mpf(2**30 - used) / 2**30 * 0.02 * 2 / mpmath.mpf(rate) ** 2
                most = 1.7 * mpmath.sqrt(mpmath.log1p(rest) if regime == "small" else rest)
                clipped = min(norm, 2.0)
                if not ends or most > clipped * (1 + 1e-6):
                    assert value == clipped
                else:
                    assert most * (1 - 2.0**-22) <= value <= most
