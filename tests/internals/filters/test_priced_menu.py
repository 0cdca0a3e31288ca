"""The priced menu: its certificate checked by hand, its worst case by other means, its ledger, its cache."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest

from jaxacct import filters
from jaxacct.filters.prices import kept as _table_cache
from jaxacct.filters.prices import menu_table as _budget_table
from jaxacct.filters.prices.entries import shrunk
from jaxacct.filters.prices.laws import delta_of, menu_laws

module = importlib.import_module("jaxacct.filters.prices.menu_prices")  # the room's name is the function's
EPSILON, DELTA, POINTS = 1.5, 1e-3, 512
MENU = filters.gaussian_menu((1.2, 2.4), 0.1, sigmas=4)


def curves_of(laws, prices, node, met):
    """A table and the curves of all its nodes, from perfect privacy on."""
    seen = [np.zeros((1, laws.grid.size))]
    original = _budget_table._levels

    def watched(*arguments):
        carry, curves = original(*arguments)
        seen.append(np.asarray(curves) * np.exp(0.5 * laws.grid.losses))
        return carry, curves

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_budget_table, "_levels", watched)
        table = _budget_table.budget_table(laws, prices, node, met, 2**31 - 2)
    return table, np.concatenate(seen)


def played(laws, m, curve):
    """T_m of a curve by a plain sum, with the curve's ends continued."""
    left = curve[0] * np.exp(-laws.grid.spacing * np.arange(laws.above, 0, -1))
    wide = np.concatenate([left, curve, np.full(laws.below, curve[-1])])
    return laws.excess[m] + np.convolve(wide, laws.masses[m], mode="valid")


@pytest.mark.parametrize("node", [256, 144, 96, 17])
def test_every_node_and_every_budget_between_two_dominates_every_query_before_it(node):
    """The hypothesis of the certificate, at the breakpoints and in between, summed without transforms."""
    laws, runs = menu_laws([shrunk(one) for one in MENU], EPSILON, DELTA, POINTS)
    prices = np.maximum(np.rint(288 * runs.max() / runs), 288).astype(np.int64)
    table, curves = curves_of(laws, prices, node, lambda curve: delta_of(curve, laws.grid, EPSILON) <= DELTA)
    assert (curves >= 0).all()
    last = min(len(curves) - 1, table.budget // node + 9)

    def at(b):
        j = min(math.floor(b), last - 1)
        return curves[j] + (b - j) * (curves[j + 1] - curves[j])

    rng = np.random.default_rng(0)
    for m, price in enumerate(prices):
        cost = price / node
        corners = [cost + j for j in rng.integers(0, last - math.ceil(cost), 12)]
        nodes = [math.ceil(cost) + j for j in (0, 1, *rng.integers(0, last - math.ceil(cost), 12))]
        for b in [*corners, *nodes, cost, *rng.uniform(cost, last, 12)]:
            assert (at(b) * (1 + 1e-13) >= played(laws, m, at(b - cost))).all()
    # The last curve is that of the budget, which is the largest to the unit.
    assert np.allclose(table.excess, at(table.budget / node), rtol=1e-12, atol=0)
    assert (
        delta_of(at((table.budget + 1) / node), laws.grid, EPSILON)
        > DELTA
        >= delta_of(table.excess, laws.grid, EPSILON)
    )


def test_tables_on_disk_are_used_and_damaged_or_foreign_ones_are_not(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(tmp_path))
    made = []
    original = module.budget_table
    monkeypatch.setattr(module, "budget_table", lambda *a: (made.append(1), original(*a))[1])
    make = lambda delta=DELTA, **k: filters.menu(MENU, epsilon=EPSILON, delta=delta, points=POINTS, **k)  # noqa: E731
    first = make()
    (path,) = tmp_path.glob("*.npz")
    assert len(made) == 1
    same = make()
    assert len(made) == 1
    assert (np.asarray(same.excess) == np.asarray(first.excess)).all()
    assert int(same.budget) == int(first.budget)
    good = path.read_bytes()
    arrays = _table_cache.load(path.stem)
    richer = {**arrays, "budget": arrays["budget"] * 2}
    with open(tmp_path / "richer.npz", "wb") as file:
        np.savez(file, digest=np.array(_table_cache.digest(path.stem, arrays)), **richer)
    with open(tmp_path / "pickled.npz", "wb") as file:
        np.savez(file, digest=np.array("x"), budget=np.array([object()], dtype=object))
    with open(tmp_path / "foreign.npz", "wb") as file:
        np.savez(file, digest=np.array(_table_cache.digest("another key", arrays)), **arrays)
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    damaged = [b"", b"not an archive", good[: len(good) // 2], bytes(flipped)]
    damaged += [(tmp_path / f"{name}.npz").read_bytes() for name in ("richer", "pickled", "foreign")]
    for content in damaged:
        path.write_bytes(content)
        assert _table_cache.load(path.stem) is None
    path.write_bytes(damaged[-3])
    assert int(make().budget) == int(first.budget)
    assert len(made) == 2
    assert path.read_bytes() != damaged[-3], "the damaged file is replaced"
    make(cache=False)
    make(delta=2 * DELTA)
    assert len(made) == 4
    monkeypatch.setenv("JAXACCT_CACHE_DIR", str(path))  # a file: nothing can be kept there
    assert int(make().budget) == int(first.budget)
