"""The ledger word by word, against whole numbers and fractions: every unit, carry, limit and direction of rounding."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import filters
from jaxacct.filters import amounts

WHOLE = 1 << 88
RNG = random.Random(8)
CHARGE = jax.jit(amounts.charge, static_argnums=3)
# Exactly on a unit, a float above and below, in every word, and some that are nothing special.
SHARES = [k * 2.0**-88 for k in (0, 0.25, 1, 1.5, 2, 3, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**52 + 1)]
SHARES += [k * 2.0**-56 for k in (1, 2**32 - 1, 2**32, 2**32 + 1, 2**51 + 1)] + [0.5, 1.0, 1.5, 2.0]
SHARES += [math.nextafter(s, way) for s in SHARES if s for way in (0.0, 4.0)]
SHARES += [RNG.random() * 2.0 ** -RNG.randrange(0, 80) for _ in range(40)]


def spent_of(words) -> list[int]:
    words = np.asarray(words, np.uint64).reshape(-1, 3).tolist()
    return [(a << 64) + (b << 32) + c for a, b, c in words]


def state_of(units: list[int]) -> amounts.SpentState:
    words = [[n >> 64, n >> 32 & 0xFFFFFFFF, n & 0xFFFFFFFF] for n in units]
    return amounts.SpentState(jnp.array(words, jnp.uint32))


def units_of(share: float) -> int:
    """A cost in units, rounded up, and at least one."""
    return max(1, math.ceil(Fraction(share) * WHOLE))


@pytest.mark.parametrize("limit", [amounts.EXACT, amounts.WITH_SLACK])
@jax.enable_x64(True)
def test_a_cost_is_added_with_all_carries_and_fits_up_to_the_last_unit_of_the_limit(limit):
    budgets = np.array([RNG.choice([1.0, 0.3, 7.0, 1e-12]) for _ in SHARES])
    costs = np.array(SHARES) * budgets
    shares = costs / budgets * (1 + 2.0**-49)
    charged = [units_of(s) if s <= 2 else 1 for s in shares]
    for off in (0, 1, 2**32, -(2**32), -(2**64), None):
        before = [RNG.randrange(WHOLE) if off is None else max(limit - n + off, 0) for n in charged]
        fits, state = CHARGE(state_of(before), costs, budgets, limit)
        after = [b + n for b, n in zip(before, charged, strict=True)]
        assert spent_of(state.words) == after
        assert np.asarray(fits).tolist() == [n <= limit and s <= 2 for n, s in zip(after, shares, strict=True)]
    # Never less than the exact share, and hardly more.
    for cost, budget, n, share in zip(costs, budgets, charged, shares, strict=True):
        exact = Fraction(cost) / Fraction(budget) * WHOLE
        assert exact <= n <= exact * (1 + Fraction(1, 2**48)) + 1 or share > 2


@jax.enable_x64(True)
def test_what_is_used_is_rounded_up_and_what_is_left_down_and_both_are_exact_where_they_can_be():
    spent = [0, 1, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**85, 2**88 - 2**40, 2**88 - 2**32, 2**88 - 2**32 + 1]
    spent += [2**88 - 1, 2**88, 2**88 + 1, 2**88 + 2**48, 2**88 + 2**80]
    spent += [2**88 - 2**40 - 2**32 * (2**44 + 1), 2**32 * (2**55 + 1)]  # odd multiples of what float64 can hold
    spent += [RNG.randrange(1 << RNG.randrange(1, 89)) for _ in SHARES][len(spent) :]
    used, left = (np.asarray(jax.jit(f)(state_of(spent))).tolist() for f in (amounts.used, amounts.left))
    grain = Fraction(1, 2**49)
    for n, high, low in zip(spent, used, left, strict=True):
        full, rest = Fraction(n, WHOLE), Fraction(max(WHOLE - n, 0), WHOLE)
        assert full <= Fraction(high) <= full * (1 + grain)
        assert rest * (1 - grain) <= Fraction(low) <= rest
        for exact, value in ((full, high), (rest, low)):
            if exact * 2**56 % 1 == 0 and Fraction(float(exact)) == exact:
                assert Fraction(value) == exact


def test_budgets_end_where_three_pieces_do_and_outside_them_nothing_fits():
    ends = np.array([1e-18, 1e30])
    outside = np.array([np.nextafter(1e-18, 0), np.nextafter(1e30, 2e30), 0.0, -1.0, np.nan, np.inf])
    with jax.enable_x64(True):
        split, join = jax.jit(amounts.split), jax.jit(amounts.join)
        joined = np.asarray(join(split(np.array([*ends, *outside]))))
        assert joined[:2].tolist() == ends.tolist()
        assert np.isnan(joined[2:]).all()
        values = np.array([(1 + RNG.random()) * 10.0 ** RNG.randrange(-17, 29) for _ in range(8)])
        pieces = split(values.reshape(2, 4))
        assert pieces.shape == (2, 4, 3)
        assert pieces.dtype == jnp.float32
        assert np.array_equal(join(pieces), values.reshape(2, 4))
        for value, most in zip(values, np.asarray(filters.zcdp(values).guarantee.rho), strict=True):
            limit = Fraction(value) * amounts.WITH_SLACK / WHOLE
            assert limit <= Fraction(most) <= limit * (1 + Fraction(1, 2**49))
    amounts.check_budget(rho=ends)
    for bad in outside:
        with pytest.raises(ValueError, match="rho must be"):
            amounts.check_budget(rho=np.array([1.0, bad]))
