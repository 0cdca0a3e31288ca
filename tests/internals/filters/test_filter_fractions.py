"""The share of the budget that each filter says is spent: of which budget, the largest or the least, rounded up."""

from __future__ import annotations

import importlib
from fractions import Fraction
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import PLD, LossGrid, adversary, filters
from jaxacct.filters import amounts
from jaxacct.filters.additive.renyi_any import AnyOrderFilter
from jaxacct.filters.marks import marked
from jaxacct.filters.residues import on_grid as _composed_law

natural = importlib.import_module("jaxacct.filters.residues.natural")
undeclared_filter = importlib.import_module("jaxacct.filters.residues.undeclared")
approximate = importlib.import_module("jaxacct.adversary.filters.natural_approximate_dp")
units = importlib.import_module("jaxacct.filters.prices.units")


def ledger_of(*shares):
    """The state of ledgers of which these shares, in units of 2^-24, are spent."""
    return amounts.SpentState(jnp.array([[n, 0, 0] for n in shares], jnp.uint32))


def one(share):
    return amounts.SpentState(jnp.array([share, 0, 0], jnp.uint32))


def test_a_ledgers_fraction_is_its_own_of_two_the_larger_and_of_orders_what_they_share():
    part = 2**22 + 2**20
    just_more = amounts.SpentState(jnp.array([part, 1, 1], jnp.uint32))

    @jax.jit  # in one program, which compiles sooner than many small ones
    def read():
        ledgers = filters.gdp(0.7), filters.pure_dp(0.7), filters.odometer(filters.zcdp(3.0))
        both = filters.approximate_zcdp(0.5, 1e-6)
        several = AnyOrderFilter(amounts.split(np.ones(3)), (8.0, 16.0, 12.0))
        return (
            [ledger.fraction(marked(ledger, one(part))) for ledger in ledgers],
            [ledger.fraction(marked(ledger, just_more)) for ledger in ledgers],
            [
                both.fraction(marked(both, filters.ApproximateZCDPState(one(rho), one(delta))))
                for rho, delta in ((part, 3 * part), (3 * part, part))
            ],
            several.fraction(marked(several, ledger_of(part, part, part))),
        )

    exact, more, both, together = read()
    assert [float(x) for x in exact] == [part / 2**24] * 3
    assert all(part / 2**24 < float(x) < part / 2**24 * (1 + 2.0**-20) for x in more)
    assert [float(x) for x in both] == [3 * part / 2**24] * 2
    assert float(together) == pytest.approx(part / 2**24, rel=1e-9)
    bands = adversary.additive_profile(0.5, 1e-4, rounds=5)
    count = len(bands.pieces)
    state = marked(bands, ledger_of(*[part] * (count - 2), 2 * part, 3 * part))  # the last one counts rounds
    share, spent, left = jax.jit(lambda s: (bands.fraction(s), bands.spent(s), bands.remaining(s)))(state)
    assert float(share) == 2 * part / 2**24
    assert spent.shape == left.shape == (count - 1,)


def test_an_order_that_is_out_reads_as_infinitely_spent_and_stays_out():
    rho = np.array([1.0, 0.25])
    ledger = AnyOrderFilter(amounts.split(rho), (8.0, 16.0))
    costs = np.array([0.6 * rho[0], 200.0 * rho[1]])

    @jax.jit
    def step(costs, state):
        admitted, state = ledger.update(costs, state)
        return admitted, state, (ledger.spent(state), ledger.remaining(state), ledger.fraction(state))

    admitted, state, (spent, left, share) = step(costs, ledger.init())
    assert admitted
    np.testing.assert_allclose(spent, [0.6 * rho[0], np.inf], rtol=1e-6)
    assert 0.25 < float(left[0]) < 0.35  # less than what order 8 has left by itself: half the weight is gone
    assert float(share) == pytest.approx(1 - float(left[0]), rel=1e-6)
    for cost in (0.0, 1e-30):
        admitted, after, _ = step(np.full(2, cost), state)
        assert admitted
        assert np.asarray(after.words)[1].tolist() == [255 << 24, 0, 0]
    assert not step(np.array([0.41 * rho[0], 0.0]), state)[0]


def test_a_menus_fraction_is_exact_at_the_end_and_rounded_up_before_it():
    for wide, width in ((False, 2.0**-22), (True, 2.0**-50)):
        with jax.enable_x64(wide):
            for spent in (0, 1, 33, 99, 100):
                found = float(units.fraction_of(np.int32(100), jnp.int32(spent)))
                assert Fraction(spent, 100) <= Fraction(found) <= Fraction(spent, 100) * (1 + Fraction(width))
            assert float(units.fraction_of(np.int32(100), jnp.int32(100))) == 1.0


def _past_checks(kind, masses, atom, grid):
    """A law with arrays that its constructor may refuse, as traced ones are not."""
    good = kind(np.array([0.0, 1.0, 0.0]), np.float64(0.0), grid, "upper")
    return jax.tree.unflatten(jax.tree.structure(good), [np.array(masses), np.float64(atom)])


def test_the_most_queries_are_the_most_and_not_one_more(monkeypatch):
    grid = LossGrid(0.3125, -1, 3)  # of this test alone: what is compiled here is made up

    charged = []

    def after(state, law, grid):
        charged.append(law)
        return state._replace(rounds=state.rounds + 1)

    query = PLD(np.array([0.0, 1.0, 0.0]), np.float64(0.0), grid)
    monkeypatch.setattr(_composed_law, "after", after)
    monkeypatch.setattr(undeclared_filter, "pld_excess", lambda law, grid: jnp.zeros(3))
    monkeypatch.setattr(_composed_law, "law_of", lambda *_: SimpleNamespace(hockey_stick=lambda epsilon: 0 * epsilon))
    undeclared = natural.UndeclaredNaturalFilter(np.zeros((3, 2), np.float32), grid, "remove", 2)
    for ledger in (undeclared, approximate.NaturalApproximateDPFilter((1.0, 1e-4, 2), grid)):
        state, history = ledger.init(), []
        for _ in range(3):
            admitted, state = ledger.update(query, state)
            history.append(bool(admitted))
        assert history == [True, True, False]
        assert int(state.rounds) == 2
        # What is no law is refused: negative or no numbers, totals above 1. What masses leave of 1 is infinite.
        fresh = state._replace(rounds=jnp.int32(0))
        for masses, atom, fine in (
            ([0.0, 0.5, 0.25], 0.25, True), ([0.5, 0.5, 0.0], 0.9e-3, True), ([0.5, 0.5 - 1e-9, 0.0], 0.0, True),
            ([0.0, 0.0, 0.0], 0.0, True), ([0.5, 0.5, 0.0], 1.1e-3, False),
            ([-0.1, 1.0, 0.1], 0.0, False), ([0.6, 0.5, 0.0], -0.1, False), ([np.nan, 0.5, 0.5], 0.0, False),
        ):  # fmt: skip
            law = _past_checks(approximate.SymmetricLaw if ledger is not undeclared else PLD, masses, atom, grid)
            assert bool(ledger.update(law, fresh)[0]) == fine, (masses, atom)
            if fine:
                assert float(charged[-1].infinity_mass) == max(atom, 1.0 - sum(masses)), (masses, atom)
