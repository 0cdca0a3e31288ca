"""What individual ledgers charge, bound and mark, by themselves: units, norms, last steps."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct import Gaussian, filters
from jaxacct.filters import amounts
from jaxacct.filters.accounts.examples import FLAG, settle_norms

# The package's names for these are the functions'.
approximate = importlib.import_module("jaxacct.filters.accounts.approximate_gdp")
units = importlib.import_module("jaxacct.filters.accounts.units")
RNG = np.random.default_rng(4)
WHOLE = 2**30


def test_an_example_pays_what_fits_and_its_last_step_is_marked_and_never_too_much(monkeypatch):
    spent = np.array([0, 1, 5, 2**29, WHOLE - 2**23, WHOLE - 5, WHOLE - 1, WHOLE])
    spent = np.repeat(spent, 8)
    left = WHOLE - spent
    units = np.ravel([[1, n, n - 1, n + 1, n * (1 - 2.0**-21), n * (1 + 2.0**-23), 2 * n, np.inf] for n in left[::8]])
    units = np.maximum(np.floor(units), 1.0).astype(np.float32)
    words = np.where(spent == WHOLE, WHOLE + 7, spent).astype(np.int32)
    monkeypatch.setattr(approximate, "_units", lambda *_: jnp.array(units))
    ledger = SimpleNamespace(common=SimpleNamespace(regime="small"), examples=units.size)
    with jax.enable_x64(True):
        charged = approximate.IndividualApproximateGDPFilter._charged
        step = jax.jit(lambda norms: charged(ledger, (1.0, 1.0, 0.1), norms, words))
        after = step(np.ones(units.size))
        nothing = step(np.resize([0.0, np.inf, np.nan, -1.0], units.size))
    assert after.dtype == jnp.int32
    for n, pay, word in zip(spent.tolist(), units.tolist(), np.asarray(after), strict=True):
        last, paid = bool(word & WHOLE), int(word) & (WHOLE - 1)
        assert bool(word < 0) == (n < WHOLE)
        if n == WHOLE:
            assert word == WHOLE
        elif last:
            assert paid == n
            assert pay > (WHOLE - n) * (1 - 2.0**-21)
        else:
            assert paid == n + pay < WHOLE
    assert np.array_equal(nothing, spent)


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
def test_a_norm_takes_part_when_it_is_a_number_and_bounds_round_up():
    norms = np.array([0.0, 0.3, 1.0, 7.0, np.inf, np.nan, -1.0, -0.0])
    clipped = jax.jit(lambda query: units.clipped(query, norms, norms.size))
    clip, bits, good = clipped(Gaussian(1.0, sensitivity=1.0 + 1e-12))
    assert clip.dtype == jnp.float32
    assert 1.0 + 1e-12 <= float(clip) <= 1.0 + 2.0**-22
    assert good.tolist() == [True] * 4 + [False] * 4
    capped = np.asarray(bits)[:4].astype(np.int32).view(np.float32)
    assert capped.tolist() == [
        0.0,
        np.float32(0.3) if np.float32(0.3) >= 0.3 else np.nextafter(0.3, 1),
        1.0,
        float(clip),
    ]
    for bad in (0.0, -1.0, np.inf, np.nan):
        query = jax.tree.unflatten(jax.tree.structure(Gaussian(1.0)), [bad, bad])
        assert not clipped(query)[2].any()
    fine = 0.3 + 1e-12
    assert float(settle_norms(np.array([fine]), 1)[0]) >= fine


def test_an_individual_ledger_is_charged_no_less_than_a_float64_norm_and_asks_its_filter_of_each(monkeypatch):
    module = importlib.import_module("jaxacct.filters.accounts.any_filter")
    monkeypatch.setattr(module, "_update", lambda filter, query, norms, state: (norms, state))
    norms = np.array([0.5 + 1e-10, 0.1])
    ledger = filters.per_example(filters.gdp(1.0), examples=2)
    assert np.all(np.asarray(ledger.update(Gaussian(2.0), norms, ledger.init())[0], np.float64) >= norms)
    asked = SimpleNamespace(filter=SimpleNamespace(remaining=lambda s: 2 * s, fraction=lambda s: s * s))
    state = ledger.init()._replace(each=np.arange(3))
    assert type(ledger).remaining(asked, state).tolist() == [0, 2, 4]
    assert type(ledger).fraction(asked, state).tolist() == [0, 1, 4]


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


@pytest.mark.parametrize(
    ("noise", "rows"),
    [([0.5, 4.0], 4), ([4.0, 0.5, np.nan], 4), ([2.0, 2.0], 1), ([np.nan], 1), ([0.9, 1.0, 7.3], 5), ([1e-9, 1e9], 25)],
)
def test_there_are_rows_for_every_octave_of_the_menus_noise(noise, rows):
    with jax.enable_x64(True):
        pieces = amounts.split(np.array(noise))
    assert units.rows_for(pieces) == rows * 2**7


@jax.enable_x64(True)
def test_a_step_is_one_of_its_regime_up_to_the_ends_of_its_rates():
    for regime, fine, bad in (
        ("small", (0.0, 0.1, 0.2 - 1e-9), (-1e-9, 0.2, 0.5, 1.0, np.nan)),
        ("large", (0.8 + 1e-9, 0.9, 1.0), (0.0, 0.1, 0.8, 1.0 + 1e-9, 1.5, np.nan)),
    ):
        for rate in (*fine, *bad):
            clip, sigma, same, good = approximate._is_one((2.0, 1.5, rate), regime)
            assert (float(clip), float(sigma)) == (2.0, 1.5)
            assert float(same) == rate or np.isnan(rate)
            assert bool(good) == (rate in fine)
        for pair in ((0.0, 1.0), (-1.0, 1.0), (np.inf, 1.0), (np.nan, 1.0), (1.0, 0.0), (1.0, -1.0), (1.0, np.inf)):
            assert not approximate._is_one((*pair, fine[0]), regime)[3]


def test_a_step_that_its_filter_does_not_shorten_is_allowed_in_full_and_a_shortened_one_a_hair_less():
    module = importlib.import_module("jaxacct.filters.accounts.any_filter")

    class Scaled:
        """Admits everything and shortens by what the state says."""

        def update_clipped(self, query, state):
            return jnp.asarray(True), state + 1.0, state

    jax.tree_util.register_static(Scaled)
    scales = jnp.array([1.0, 0.5, 0.0, 1.0, -1.0], jnp.float32)
    norms = jnp.array([0.3, 0.7, 0.7, 9.0, 0.7], jnp.float32)
    state = module.IndividualState(scales, jnp.zeros(5, jnp.float32))
    takes_part, after = module._update(Scaled(), Gaussian(1.0, sensitivity=2.0), norms, state)
    allowed = np.asarray(after.allowed)
    assert allowed[[0, 3]].tolist() == [np.float32(0.3), 2.0]
    assert 0.35 * (1 - 2.0**-20) <= allowed[1] < 0.35
    assert allowed[[2, 4]].tolist() == [0.0, 0.0]
    assert np.asarray(takes_part).tolist() == [True, True, False, True, False]
    assert np.asarray(after.each).tolist() == [2.0, 1.5, 0.0, 2.0, -1.0]  # nothing is charged to who takes no part
