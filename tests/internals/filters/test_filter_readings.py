"""What is spent and what remains, read in every filter's own unit."""

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
from jaxacct.filters.marks import marked

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
