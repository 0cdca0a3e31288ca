"""Parts of priced menus by themselves: online certificates, the scan's margins, tables, schedules."""

from __future__ import annotations

import importlib
import pathlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import GDP, Composed, Gaussian, LossGrid, PoissonSampled, PureDP
from jaxacct.filters import amounts, queries
from jaxacct.filters.prices import entries as _menus
from jaxacct.filters.prices import kept as _table_cache
from jaxacct.filters.prices import menu_table as _budget_table
from jaxacct.filters.prices.laws import MenuLaws
from jaxacct.filters.prices.menu import MenuFilter

# The package's names for these are the functions'.
menu_table = importlib.import_module("jaxacct.filters.prices.menu")
kept_table = importlib.import_module("jaxacct.filters.prices.menu_prices")
online = importlib.import_module("jaxacct.filters.prices.online")
RNG = np.random.default_rng(4)


def test_the_tables_scan_is_given_an_error_and_fades_that_cover_rounding(monkeypatch):
    class Stop(Exception):
        pass

    given = []

    def levels(*arguments):
        given.append(arguments)
        raise Stop

    monkeypatch.setattr(_budget_table, "_levels", levels)
    grid = LossGrid(0.25, -6, 14)
    masses = RNG.uniform(0.0, 0.2, (2, 6))
    laws = MenuLaws(grid, masses, RNG.uniform(0.0, 0.1, (2, 14)), 2, 3)
    with pytest.raises(Stop):
        _budget_table.budget_table(laws, np.array([7, 12]), 5, lambda _: True, 100)
    carry, rows, n = given[0][0], jax.tree.map(np.asarray, given[0][1]), given[0][2]
    unit = 2.0**-53
    assert n == 32
    half = masses * np.exp(-0.125 * np.arange(-2, 4))
    eta = (1 + 8 * unit) ** (5 + 1) - 1
    wanted = eta * half.sum(-1) + (2 * eta + 8 * unit) * np.sqrt((half**2).sum(-1))
    assert np.all(rows.error >= wanted)
    assert np.all(rows.error <= 1.02 * wanted)
    kernel = np.fft.irfft(np.asarray(rows.spectra), n)
    assert np.allclose(kernel[:, np.arange(-2, 4)], half, rtol=1e-12)
    assert (rows.nodes.tolist(), rows.share.tolist()) == ([2, 3], [pytest.approx(0.4), pytest.approx(0.4)])
    for found, exact in (
        (rows.excess, laws.excess * np.exp(-0.5 * grid.losses)),
        (rows.left, np.exp(-0.125 * np.arange(3, 0, -1))),
        (rows.right, np.exp(-0.125 * np.arange(1, 3))),
    ):
        assert np.all(np.asarray(found) >= exact)
        assert np.all(np.asarray(found) <= exact * (1 + 200 * unit))
    assert carry.curve.shape == (14,)
    assert carry.ring.shape == (3, 17)
    assert (carry.last.shape, carry.pace.shape, carry.norms.shape) == ((2, 14), (2, 14), (3,))
    with pytest.raises(ValueError, match="prices must be above 7, the distance of nodes, got 7"):
        _budget_table.budget_table(laws, np.array([7, 12]), 7, lambda _: True, 100)


def test_a_law_that_holds_more_than_one_makes_no_online_table(monkeypatch):
    grid = LossGrid(0.5, -2, 5)
    for masses, fine in (([0.5, 0.5 + 3e-9], False), ([0.5, 0.5], True), ([0.9, 0.05], False)):
        # Losses -1 and 0 points: what Q holds is 0.5 e^0.5 + ..., so the third is too much on Q's side only.
        laws = SimpleNamespace(grid=grid, masses=np.array([masses]), below=1, above=0, excess=np.zeros((1, 5)))
        if fine or masses[0] == 0.5:
            laws.below, laws.above = 0, 1
        table = SimpleNamespace(budget=40, excess=np.full(5, 0.01), curves=np.zeros((3, 5)))
        monkeypatch.setattr(kept_table, "menu_laws", lambda *_, laws=laws: (laws, np.array([3.0])))
        monkeypatch.setattr(kept_table, "budget_table", lambda *_, table=table: table)
        if fine:
            kept = kept_table._table([], 1.0, 1e-3, 32, None, None, True)
            a = float(kept["slack"])
            assert a == pytest.approx(0.01 * 1e-3 / 40)
            assert np.asarray(kept["excess"]) == pytest.approx(
                0.01 + 40 * a * np.exp(np.minimum(grid.losses, 0)), rel=1e-12
            )
            assert int(kept["reach"]) == 1
            assert kept["prices"].tolist() == [32]
            assert int(kept["node"]) == 1
        else:
            with pytest.raises(ArithmeticError, match="more than probability 1"):
                kept_table._table([], 1.0, 1e-3, 32, None, None, True)
    table.budget = 31
    with pytest.raises(ValueError, match=r"mechanisms must hold a query that fits within epsilon 1 at delta 0[.]001"):
        kept_table._table([], 1.0, 1e-3, 32, None, None, False)


def test_a_kept_table_that_misses_its_target_is_refused():
    # From epsilon 0 on both directions have 0.4.
    kept = {"excess": np.full(5, 0.4), "spacing": 0.5, "lowest": -2, "prices": np.array([32]), "budget": 40}
    assert int(menu_table.filter_of([Gaussian(1.0)], kept, 0.5, 0.401).budget) == 40
    with pytest.raises(ArithmeticError, match=r"the certified curve misses the target: delta 0[.]4 at epsilon 0[.]5"):
        menu_table.filter_of([Gaussian(1.0)], kept, 0.5, 0.399)


def test_where_tables_lie_and_what_is_left_of_a_write_that_fails(monkeypatch, tmp_path):
    monkeypatch.delenv("JAXACCT_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _table_cache.directory() == tmp_path / "jaxacct"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _table_cache.directory() == pathlib.Path.home() / ".cache" / "jaxacct"
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path / "here"))
    assert _table_cache.directory() == tmp_path / "here"

    def broken(*_, **__):
        raise RuntimeError("no")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(RuntimeError, match="no"):
        _table_cache.store("key", {"a": np.ones(1)})
    assert list((tmp_path / "here").iterdir()) == []

    def gone(*_, **__):
        for path in (tmp_path / "here").iterdir():
            path.unlink()
        raise RuntimeError("gone")

    monkeypatch.setattr(np, "savez", gone)
    with pytest.raises(RuntimeError, match="gone"):
        _table_cache.store("key", {"a": np.ones(1)})


def _priced(budget, prices):
    """A filter of which these two are known, and no table was made."""
    made = object.__new__(MenuFilter)
    for name, value in (("budget", np.int32(budget)), ("prices", np.array(prices, np.int32))):
        object.__setattr__(made, name, value)
    return made


def test_schedules_fixed_in_advance_run_as_often_as_their_price_allows(monkeypatch):
    asked = []

    def epsilon(query, delta, steps):
        asked.append((query, delta, steps))
        return menu_table.Bounds(0.1 * steps, 0.2 * steps)

    monkeypatch.setattr(menu_table.accounting, "epsilon", epsilon)
    ledger = _priced(100, [30, 101, 50])
    found = menu_table.constant_schedules(ledger, ["a", "b", "c"], 1e-5)
    assert asked == [("a", 1e-5, 3), ("c", 1e-5, 2)]
    assert found.lower == pytest.approx([0.3, 0.0, 0.2])
    assert found.upper == pytest.approx([0.6, 0.0, 0.4])


@jax.enable_x64(True)
def test_a_sampled_gaussian_is_its_noise_and_the_product_of_its_rates_and_anything_else_is_none():
    # Past the checks of their constructors, as traced numbers are.
    build = lambda *values: jax.tree.unflatten(jax.tree.structure(Gaussian(1.0)), values)  # noqa: E731

    def sampled(one, rate):
        return jax.tree.unflatten(jax.tree.structure(PoissonSampled(one, 0.1)), [*jax.tree.leaves(one), rate])

    read = queries.as_sampled_gaussian
    assert [float(x) for x in read(build(3.0, 2.0))] == [1.5, 1.0]
    assert [float(x) for x in read(sampled(sampled(build(3.0, 2.0), 0.5), 0.25))] == [1.5, 0.125]
    for sigma, sensitivity in ((0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, -1.0), (-1.0, -1.0), (np.nan, 1.0)):
        assert np.isnan(float(read(build(sigma, sensitivity))[0]))
    for rate, fine in ((0.0, True), (1.0, True), (-0.1, False), (1.1, False), (np.nan, False)):
        assert np.isfinite(float(read(sampled(build(1.0, 1.0), rate))[1])) == fine
    assert read(GDP(1.0)) is None
    assert read(PoissonSampled(PureDP(1.0), 0.5)) is None
    for rate in (0.25, 1.0):
        least, most = (float(x) for x in _menus.covered(1.5, rate))
        assert (least, most) == (1.5 * (1 - 2.0**-22), min(rate * (1 + 2.0**-22), 1.0))
        hair = _menus.shrunk(PoissonSampled(Gaussian(3.0, sensitivity=2.0), rate))
        assert (hair.mechanism.sigma, hair.rate) == (least * (1 - 2.0**-45), min(most * (1 + 2.0**-45), 1.0))
    other = GDP(1.0)
    assert _menus.shrunk(other) is other
    parts = queries.parts_of(Composed([Gaussian(1.0), Composed([Gaussian(2.0)], 3)], [2, 5]))
    assert [(part.sigma, float(n)) for part, n in parts] == [(1.0, 2.0), (2.0, 15.0)]
    assert queries.parts_of(other) == [(other, 1.0)]


def test_a_menu_that_is_not_the_ledgers_is_no_schedule():
    ledger = _priced(0, [30, 101])
    with pytest.raises(ValueError, match="mechanisms must be the 2 that"):
        menu_table.constant_schedules(ledger, ["a", "b", "c"], 1e-5)


@pytest.mark.parametrize(
    ("excess", "at_and_above_0"),
    [
        # More than that of no privacy counts as no privacy, of which 1 at every epsilon is all there is.
        ([0.5, 0.9, 1.5, 1.2, 1.1], [1.0, 1.0, 1.0]),
        # A bound may rise away from 0, the curve itself does not.
        ([0.1, 0.9, 0.2, 1.5, 0.3], [0.2, 0.2, 0.2]),
        # The reversal has e^0.5 0.1 at epsilon 0.5, and e 0.05 at 1.
        ([0.05, 0.1, 0.3, 0.2, 0.1], [0.3, 0.2, 0.05 * np.e]),
        ([0.05, 0.1, 0.3, 0.1, 0.1], [0.3, 0.1 * np.exp(0.5), 0.05 * np.e]),
    ],
)
def test_a_table_promises_no_more_than_no_privacy_would(excess, at_and_above_0):
    kept = {"excess": np.array(excess), "spacing": 0.5, "lowest": -2, "prices": np.array([32, 40]), "budget": 400}
    made = menu_table.filter_of([Gaussian(1.5), GDP(0.3)], kept, 0.5, 1.0)
    assert made.grid == LossGrid(0.5, -2, 5)
    above = np.array(at_and_above_0)
    both = np.concatenate([above[:0:-1] * np.exp(made.grid.losses[:2]), above])  # of both directions: its own reversal
    np.testing.assert_allclose(made.excess, both, rtol=1e-13)
    assert np.all(made.excess >= both * (1 - 2.0**-53))
    assert np.all(made.guarantee.delta(np.array([0.0, 0.5, 1.0])) <= 1.0)
    assert (made.prices.tolist(), int(made.budget)) == ([32, 40], 400)
    with jax.enable_x64(True):
        assert np.asarray(amounts.join(jnp.asarray(made.noise)))[0] == 1.5 * (1 - 2.0**-22)
        assert np.isnan(np.asarray(amounts.join(jnp.asarray(made.rate)))[1])


def test_an_online_price_is_certified_exactly_where_the_curve_after_the_query_fits():
    grid, lowest = LossGrid(0.25, -6, 14), -2
    masses = np.array([0.1, 0.2, 0.3, 0.15, 0.2, 0.05])  # losses -2 .. 3 points
    excess = RNG.uniform(0.01, 0.02, grid.size)
    after = RNG.uniform(0.2, 0.4, grid.size)
    wide = {
        k: after[k] if 0 <= k < 14 else after[13] * np.exp(-0.125 * (k - 13)) if k > 0 else after[0] * np.exp(0.125 * k)
        for k in range(-5, 20)
    }
    whole = np.array([e + sum(m * wide[k - (lowest + j)] for j, m in enumerate(masses)) for k, e in enumerate(excess)])
    for slack in (0.0, 1e-3):
        bump = slack * np.exp(-0.5 * np.abs(grid.losses))
        # A node is 4 units: the curve after is at 4 units, that before at 8, and 6 lies half-way.
        # What rounding may have taken is not there to be spent; any point may be the one that decides.
        for scale, fits, point in (
            (1 + 1e-12, True, 0), (1 + 2e-14, False, 5), *((1 - 1e-12, False, k) for k in range(14)),
        ):  # fmt: skip
            raised = whole * scale + np.where(np.arange(14) == point, 0.0, 1e-3)
            curves = np.stack([0 * after, after - 4 * bump, raised - 8 * bump, raised])
            one = online.MenuCurves(curves, 4, 9, slack, 0, grid)
            certified = lambda left, price, one=one: one.certified(masses, lowest, excess, left, price)  # noqa: E731
            assert certified(8, 4) == fits
            np.testing.assert_allclose(one.curve(6), 0.5 * (after + raised), rtol=1e-13)
            np.testing.assert_allclose(one.curve(5), 0.75 * after + 0.25 * raised - bump * 0, rtol=1e-13)
        assert [certified(*x) for x in ((8, 0), (4, 5), (10, 4))] == [False] * 3
    empty = online.MenuCurves(np.zeros((4, 14)), 4, 9, 0.0, 0, grid)
    assert empty.certified(masses, lowest, 0 * excess, 8, 8)
    assert empty.certified(masses, lowest, 0 * excess, 8, 1)
    assert not empty.certified(masses, lowest, 0 * excess + 1e-320, 8, 8)
