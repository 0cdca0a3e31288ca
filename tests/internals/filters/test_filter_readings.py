"""What is spent and what remains, read in every filter's own unit."""

from __future__ import annotations

import importlib
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.filters import amounts

# The package's names for these are the functions'.
approximate = importlib.import_module("jaxacct.filters.per_example.approximate_gdp")
base = importlib.import_module("jaxacct.filters.additive.base")
residue = importlib.import_module("jaxacct.filters.residues.gdp_residue")
RNG = np.random.default_rng(4)


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 47), ("float32", 21)])
@jax.enable_x64(True)
def test_what_is_spent_is_rounded_up_and_what_remains_down_in_every_filters_own_unit(dtype, bits):
    words = RNG.integers(1, 2**24, (60, 3)) * [1, 1, 0]
    words[::2, 1] = 0  # shares that float64 holds exactly: only the product's own rounding is left to cover
    state = amounts.LedgerState(jnp.array(words, jnp.uint32))
    shares = [Fraction((int(a) << 64) + (int(b) << 32), 1 << 88) for a, b, _ in words]
    up, down = 1 + Fraction(1, 2**bits), 1 - Fraction(1, 2**bits)
    reads = jax.jit(base._in_budget, static_argnums=(2, 3, 4))
    residues = jax.jit(residue._in_mu, static_argnums=(2, 3))
    for budget in (0.7, 1.0 / 3.0):
        pieces, exact = amounts.split(budget), Fraction(budget)
        wide = jnp.broadcast_to(pieces, (60, 3))
        for share, spent in zip(shares, reads(pieces, state, "spent", dtype, False).tolist(), strict=True):
            assert exact * share <= Fraction(spent) <= exact * share * up
        for share, left in zip(shares, reads(pieces, state, "remaining", dtype, False).tolist(), strict=True):
            assert exact * (1 - share) * down <= Fraction(left) <= exact * (1 - share) * (1 + Fraction(1, 2**52))
        for share, spent in zip(shares, reads(pieces, state, "spent", dtype, True).tolist(), strict=True):
            assert exact**2 * share <= Fraction(spent) ** 2 <= exact**2 * share * up
        for share, left in zip(shares, reads(pieces, state, "remaining", dtype, True).tolist(), strict=True):
            rest = exact**2 * (1 - share)
            assert rest * down <= Fraction(left) ** 2 <= rest * (1 + Fraction(1, 2**51))
        units = RNG.integers(0, 2**30, 60).astype(np.int32)
        ledger = SimpleNamespace(common=SimpleNamespace(pieces=pieces))
        read = {
            which: approximate._in_budget(ledger, jnp.array(units), which, dtype).tolist()
            for which in ("spent", "remaining", "fraction")
        }
        for n, spent, left, share in zip(units.tolist(), *read.values(), strict=True):
            part = Fraction(n, 2**30)
            assert exact * part <= Fraction(spent) <= exact * part * up
            assert exact * (1 - part) * down <= Fraction(left) <= exact * (1 - part)
            assert part <= Fraction(share) <= part * up
            assert dtype == "float32" or Fraction(share) == part
        gone = np.asarray(residue._whole(wide)) * RNG.uniform(0.0, 1.0, 60)
        left = amounts.split(gone)
        whole = Fraction(float(residue._whole(pieces)))
        assert exact * (1 + Fraction(1, 2**41)) * (1 - Fraction(1, 2**52)) <= whole <= exact * (1 + Fraction(1, 2**40))
        for which in ("spent", "fraction", "remaining"):
            for rest, value in zip(gone.tolist(), residues(wide, left, which, dtype).tolist(), strict=True):
                used = whole**2 - Fraction(rest) ** 2
                if which == "remaining":
                    free = max(Fraction(rest) ** 2 - exact**2 / 2**40, 0)
                    assert free * down - exact**2 / 2**44 <= Fraction(value) ** 2 <= free + exact**2 / 2**51
                else:
                    value = Fraction(value) ** 2 if which == "spent" else Fraction(value) * exact**2
                    assert used <= value <= used * up
