"""Parts of priced menus by themselves: online certificates, the scan's margins, tables, schedules."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.filters.menus import table as _budget_table
from jaxacct.filters.menus.laws import MenuLaws

online = importlib.import_module("jaxacct.filters.menus.online")
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
