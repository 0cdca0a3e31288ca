"""The certificate of a menu's table by hand: every node dominates every query before it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxacct import filters
from jaxacct.filters.prices import menu_table as _budget_table
from jaxacct.filters.prices.entries import shrunk
from jaxacct.filters.prices.family import delta_at
from jaxacct.filters.prices.laws import menu_laws

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


def delta_of(curve, laws):
    return delta_at(curve * np.exp(-0.5 * laws.grid.losses), laws.grid, EPSILON)


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
    table, curves = curves_of(laws, prices, node, lambda curve: delta_of(curve, laws) <= DELTA)
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
    assert delta_of(at((table.budget + 1) / node), laws) > DELTA >= delta_of(table.excess, laws)
