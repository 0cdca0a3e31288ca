"""Small versions of `verification.prices`: they must find nothing, and find it when prices are lowered."""

from __future__ import annotations

import types

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, UserLevel
from jaxacct.filters import amounts
from jaxacct.filters.prices import family as families
from jaxacct.filters.prices import kernels, lines, look_up
from jaxacct.losses.grids.grid import LossGrid
from verification.prices import brute, search
from verification.prices.inequality import Curves, worst_margins


def test_least_prices_hold_off_the_lattice_and_one_percent_less_does_not():
    """Online prices of three queries against curves that have nothing to do with them."""
    grid = LossGrid(0.01, -500, 1001)
    nodes = np.rint(families.UNITS * np.linspace(0.0, 1.1, 56)) / families.UNITS
    nodes[50] = 1.0
    excess = np.stack([kernels.gaussian_excess(0.8 * np.sqrt(max(b, 1e-9)), grid.losses) for b in nodes])
    excess[0] = 0.0
    family = families.prepared(grid, nodes, excess, 0.06, 1e-4, 0.2)
    curves, rng = Curves(family, 0.37), np.random.default_rng(3)
    for sigma, rate in ((1.1, 0.02), (2.0, 0.1), (4.0, 0.3)):
        atoms = kernels.sampled(kernels.gaussian_atoms(1 / sigma), rate)
        kernel = kernels.kernel_of(atoms, family.half_width, grid.spacing, grid.size)
        first, second, _ = lines.price_lines(kernel, family)
        at = rng.integers(5, 45, 40)
        share = rng.uniform(size=40)
        after = (1 - share) * nodes[at] + share * nodes[at + 1]
        price = (1 - share) * first[at] + share * second[at]
        added, size = curves.added(sigma, rate)
        margin, error, _ = worst_margins(curves, added, size, after + price, after)
        assert (margin > error).all()
        margin, error, _ = worst_margins(curves, added, size, after + 0.99 * price, after)
        assert (margin < -error).any()


def test_no_price_between_the_grids_points_is_too_low_and_one_percent_less_is(monkeypatch):
    box = {"sigma": (1.2, 1.5), "rate": 0.03, "epsilon": 1.5, "delta": 1e-3}
    monkeypatch.setitem(search.BOXES, "small", box)
    found, _ = search.search("small", points=8000, seed=1)
    assert found.violated == 0
    assert found.least > -1e-6
    assert found.violated_below > 0.3 * found.lowered  # between the grid's points a price is a little above the least


@pytest.mark.parametrize("play", [brute.menu, brute.box_of_coins])
def test_every_play_of_coins_stays_within_the_promise_and_one_percent_less_does_not(play):
    (charged,), (lowered,) = play(1.0).values(), play(0.99).values()
    assert 0.999 < charged["largest ratio to the promise"] <= 1.0
    assert lowered["largest ratio to the promise"] > 1.005


@pytest.mark.parametrize("records", [1, 3, 30])
@pytest.mark.parametrize("sigmas", [(0.06, 0.063), (0.8, 0.83), (6.0, 6.3)])
def test_corners_of_a_cell_dominate_what_lies_between_them(records, sigmas):
    """Also where 1 / sigma is so large that the curves of both corners are 1 to the last digit."""
    rates = np.array([0.01, 0.0105])
    box = types.SimpleNamespace(sigmas=amounts.split(np.array(sigmas)), rates=amounts.split(rates), records=records)
    between = np.exp(np.random.default_rng(4).uniform(np.log([sigmas[0], 0.01]), np.log([sigmas[1], 0.0105]), (20, 2)))
    losses = np.array([-0.2, -0.01, 0.0, 0.05, 0.5, 2.0])[:, None]
    delta = lambda s, q, side: getattr(  # noqa: E731
        jaxacct.delta(UserLevel(Gaussian(s), q, records), losses, relation="remove"), side
    )
    with jax.enable_x64(True):
        good, corners = look_up.corners_of(box, between[:, 0], between[:, 1])
    each = [(np.array(sigmas)[row // 2], rates[row % 2]) for _, row in corners]
    mixed = sum(weight * delta(*at, "upper") for (weight, _), at in zip(corners, each, strict=True))
    assert np.all(good)
    assert np.all(delta(between[:, 0], between[:, 1], "lower") <= mixed)
