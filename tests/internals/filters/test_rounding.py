"""What filters spend, keep, store and guarantee is rounded to the safe side, in every unit and in high precision."""

from __future__ import annotations

import importlib
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import filters
from jaxacct.filters import amounts
from jaxacct.filters.accounts.examples import ExamplesState
from jaxacct.filters.guarantees import of_parameters as _guarantees
from jaxacct.filters.marks import marked
from jaxacct.filters.prices.packed import least_of, packed, rounded_down, unpacked

# The package's name for it is the function's.
residue = importlib.import_module("jaxacct.filters.residues.gdp_residue")
RNG = np.random.default_rng(4)


@pytest.mark.parametrize(("wide", "bits"), [(True, 47), (False, 21)])
def test_what_is_spent_is_rounded_up_and_what_remains_down_in_every_filters_own_unit(wide, bits):
    words = RNG.integers(1, 2**24, (60, 3)) * [1, 1, 0]
    words[::2, 1] = 0  # shares that float64 holds exactly: only the product's own rounding is left to cover
    state = amounts.SpentState(jnp.array(words, jnp.uint32))
    shares = [Fraction((int(a) << 64) + (int(b) << 32), 1 << 88) for a, b, _ in words]
    up, down = 1 + Fraction(1, 2**bits), 1 - Fraction(1, 2**bits)

    def read(filter, which, state):
        with jax.enable_x64(wide):
            return jax.jit(getattr(filter, which))(marked(filter, state)).tolist()

    for budget in (0.7, 1.0 / 3.0):
        sums, squares, exact = filters.pure_dp(budget), filters.gdp(budget), Fraction(budget)
        for share, spent, left in zip(shares, *(read(sums, x, state) for x in ("spent", "remaining")), strict=True):
            assert exact * share <= Fraction(spent) <= exact * share * up
            assert exact * (1 - share) * down <= Fraction(left) <= exact * (1 - share) * (1 + Fraction(1, 2**52))
        for share, spent, left in zip(shares, *(read(squares, x, state) for x in ("spent", "remaining")), strict=True):
            assert exact**2 * share <= Fraction(spent) ** 2 <= exact**2 * share * up
            rest = exact**2 * (1 - share)
            assert rest * down <= Fraction(left) ** 2 <= rest * (1 + Fraction(1, 2**51))
        units = RNG.integers(0, 2**30, 60).astype(np.int32)
        ledgers = filters.per_example(filters.approximate_gdp(budget), examples=60)
        found = (read(ledgers, x, ExamplesState(jnp.array(units))) for x in ("spent", "remaining", "fraction"))
        for n, spent, left, share in zip(units.tolist(), *found, strict=True):
            part = Fraction(n, 2**30)
            assert exact * part <= Fraction(spent) <= exact * part * up
            assert exact * (1 - part) * down <= Fraction(left) <= exact * (1 - part)
            assert part <= Fraction(share) <= part * up
            assert not wide or Fraction(share) == part
        residues = filters.gdp_residue(np.full(60, budget))
        with jax.enable_x64(True):
            whole = np.asarray(residue._whole(residues.mu_pieces))
            gone = whole * RNG.uniform(0.0, 1.0, 60)
            kept = residues.init()._replace(mu=amounts.split(gone))
        whole = Fraction(float(whole[0]))
        assert exact * (1 + Fraction(1, 2**41)) * (1 - Fraction(1, 2**52)) <= whole <= exact * (1 + Fraction(1, 2**40))
        for which in ("spent", "fraction", "remaining"):
            for rest, value in zip(gone.tolist(), read(residues, which, kept), strict=True):
                used = whole**2 - Fraction(rest) ** 2
                if which == "remaining":
                    free = max(Fraction(rest) ** 2 - exact**2 / 2**40, 0)
                    assert free * down - exact**2 / 2**44 <= Fraction(value) ** 2 <= free + exact**2 / 2**51
                else:
                    value = Fraction(value) ** 2 if which == "spent" else Fraction(value) * exact**2
                    assert used <= value <= used * up


MANY = 160


def test_what_approximate_concentrated_privacy_hands_on_is_on_the_safe_side():
    # The conversions themselves are tested elsewhere; here is what is left of delta for them, and what is made of it.
    curve = _guarantees.Curve("rho", lambda rho, rest: rest, lambda rho, part: jnp.asarray(part), lambda rho: None)
    fails = np.concatenate([10.0 ** RNG.uniform(-18, -0.01, MANY - 2), [0.0, 0.0]])
    delta = np.minimum(fails * np.resize([1 + 1e-9, 1.5, 3.0, 1e3], MANY) + np.r_[np.zeros(MANY - 2), 0.1, 1e-9], 0.999)
    guarantee = _guarantees.ParameterGuarantee(curve, 0.5, "", fails=fails)
    delta[:16] = np.nextafter(fails[:16], 1.0)
    delta[16:18] = fails[16], fails[17] / 2
    part = np.minimum(RNG.uniform(0.0, 1.5, MANY), 1.0)
    with jax.enable_x64(True):
        left, whole = map(np.asarray, jax.jit(lambda d, v: (guarantee.epsilon(d), guarantee.delta(v)))(delta, part))
    for f, d, rest, v, total in zip(fails, delta, left, part, whole, strict=True):
        f, d, v = Fraction(f), Fraction(d), Fraction(v)
        exact, lost = (d - f) / (1 - f), (2 * d - f) / (1 - f) / 2**48
        if rest == np.inf:
            assert exact <= lost
        else:
            assert 0 < Fraction(rest) <= exact <= Fraction(rest) + lost
        exact = f + (1 - f) * v
        assert exact <= Fraction(total) <= min(exact * (1 + Fraction(1, 2**48)), 1)
    assert (left[-2:] == delta[-2:]).all()
    assert (whole[-2:] == part[-2:]).all()
    guarantee = _guarantees.ParameterGuarantee(_guarantees.OF_ZCDP, 0.5, "", fails=1e-6)
    with pytest.raises(ValueError, match="delta must be"):
        guarantee.epsilon(1.0)


@pytest.mark.parametrize(("slack", "far"), [(1e-9, 1e-3), (1e-14, 1e-6), (0.5, 0.5)])
def test_words_round_down_by_a_little_and_keep_the_order(slack, far):
    least = least_of(slack, far)
    rng = np.random.default_rng(3)
    values = np.sort(np.concatenate([[0.0, least, 1.0], np.exp(rng.uniform(np.log(least) - 5.0, 0.0, 20_000))]))
    values = np.concatenate([values, np.nextafter(values, 2.0), np.nextafter(values, -1.0).clip(0.0)])
    values = np.sort(values.clip(0.0, 1.0))
    rounded = rounded_down(values, least)
    assert (rounded <= values).all()
    assert (np.diff(rounded) >= 0).all()
    assert (rounded[values < least] == 0).all()
    kept = values >= least
    assert (values[kept] - rounded[kept] <= 2.0**-24 * values[kept]).all()
    words = packed(rounded, least)
    assert words.dtype == np.uint32
    assert (unpacked(words, least) == rounded).all()
    assert (rounded_down(rounded, least) == rounded).all()
