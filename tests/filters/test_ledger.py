"""Accumulated cost: never lost, never under-counted."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxacct import filters


def units(state) -> int:
    return sum(int(w) << (32 * (2 - i)) for i, w in enumerate(np.asarray(state.words)))


def share(state) -> Fraction:
    return Fraction(units(state), 1 << 88)


@settings(max_examples=60, deadline=None)
@given(
    budget=st.floats(1e-12, 1e12),
    shares=st.lists(st.floats(1e-30, 0.3) | st.floats(1e-3, 0.3), min_size=1, max_size=12),
)
def test_the_ledger_never_under_counts_and_hardly_over_counts(budget, shares):
    ledger = filters.zcdp(budget)
    state, truth = ledger.init(), Fraction(0)
    limit = Fraction(budget) * (1 + Fraction(1, 1 << 40))
    for s in shares:
        cost = budget * s
        with jax.enable_x64(True):
            admitted, after = ledger.update(jnp.float64(cost), state)
        if admitted:
            truth += Fraction(cost)
            assert truth <= limit
            assert share(after) * Fraction(budget) >= truth
            over = share(after) * Fraction(budget) - truth
            assert over <= truth * Fraction(1, 1 << 47) + len(shares) * Fraction(budget) / (1 << 87)
            state = after
        else:
            assert truth + Fraction(cost) > Fraction(budget) * (1 - Fraction(1, 1 << 45))
            assert units(after) == units(state)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 49, 1000, 12_345, 100_000])
@pytest.mark.parametrize("mu", [1.0, 0.1, 3.7])
def test_n_equal_parts_of_the_budget_fit_exactly_n_times(n, mu):
    ledger = filters.gdp(mu)
    with jax.enable_x64(True):
        part = jnp.float64(mu / np.sqrt(n))
    _, admitted = jax.jit(lambda f, q: jax.lax.scan(lambda s, _: f.update(q, s)[::-1], f.init(), None, length=n + 3))(
        ledger, part
    )
    assert int(admitted.sum()) == n


def test_what_remains_can_be_spent_and_nothing_after_it():
    for ledger in (filters.gdp(1.3), filters.renyi(3.0, 1e-5, order=9)):
        _, state = ledger.update(0.3, ledger.init())
        with jax.enable_x64(True):
            rest = ledger.remaining(state)
        admitted, state = ledger.update(rest, state)
        assert admitted
        assert float(ledger.remaining(state)) < 1e-5
        assert not ledger.update(1e-4, state)[0]
