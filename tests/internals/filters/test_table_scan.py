"""The scan of a menu's table node by node, and how its largest budget is found, against plain sums of what they say."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.filters.prices import menu_table as _budget_table
from jaxacct.filters.prices.laws import MenuLaws

SIZE, BELOW, ABOVE, N = 9, 2, 3, 16
RNG = np.random.default_rng(11)


def summed(masses, excess, nodes, share, left, right, error, levels):
    """U at nodes 1 to ``levels``, by plain sums: no transforms, no rounding but the error that was given."""
    curves = [np.zeros(SIZE)]
    last = np.full((len(nodes), SIZE), -np.inf)
    once, twice = np.zeros((2, SIZE))
    for j in range(levels):
        asked = []
        for m, (whole, t) in enumerate(zip(nodes, share, strict=True)):
            at = j + 2 - whole  # the node that is left after the query
            moved = np.full(SIZE, -np.inf)
            if at >= 0:
                wide = np.concatenate([curves[at][0] * left, curves[at], curves[at][-1] * right])
                norm = np.sqrt((wide**2).sum())
                moved = np.convolve(wide, masses[m], mode="valid") + excess[m] + error[m] * norm
            with np.errstate(invalid="ignore"):
                inside = curves[j] + (last[m] - curves[j]) / t
                at_node = t * last[m] + (1 - t) * moved
                ramp = excess[m] * min((j + 1) / (whole - 1 + t), 1.0)
                # Double exponential smoothing, from the pace of the last node to that two nodes on.
                ahead = moved - t * (once + (once - twice) * (1 + 2 * 0.25 / 0.75))
            asked += [np.maximum(at_node, inside) if at > 0 else ramp, ahead]
            last[m] = moved
        curves.append(np.maximum(np.max(asked, 0), 0.0))
        once = once + 0.25 * (curves[-1] - curves[-2] - once)
        twice = twice + 0.25 * (once - twice)
    return np.array(curves[1:])


@pytest.mark.parametrize("error", [0.0, 1e-3])
@jax.enable_x64(True)
def test_the_scan_takes_the_largest_of_what_every_query_asks_at_every_node(error):
    nodes, share = np.array([2, 3, 7]), np.array([1.0, 0.3, 0.75])
    masses = RNG.uniform(0.0, 0.12, (3, BELOW + ABOVE + 1)) * [[1.0], [1.2], [1.5]]
    excess = RNG.uniform(0.0, 0.02, (3, SIZE)) * [[1.0], [1.3], [3.0]]
    left, right = np.array([0.5, 0.6, 0.8]), np.array([0.7, 0.4])
    kernels = np.zeros((3, N))
    kernels[:, np.arange(-BELOW, ABOVE + 1) % N] = masses
    errors = error * np.array([1.0, 2.0, 0.5])
    rows = _budget_table._Rows(
        *map(jnp.asarray, (np.fft.rfft(kernels), excess, errors, nodes.astype(np.int32), share, left, right))
    )
    carry = _budget_table._Carry(
        jnp.int32(0), jnp.zeros(SIZE), jnp.zeros((7, N // 2 + 1), complex), jnp.zeros(7), jnp.full((3, SIZE), -jnp.inf),
        jnp.zeros((2, SIZE)),
    )  # fmt: skip
    carry, found = _budget_table._levels(carry, rows, N)
    wanted = summed(masses, excess, nodes, share, left, right, errors, 300)
    assert found.shape == (256, SIZE)
    np.testing.assert_allclose(found, wanted[:256], rtol=1e-11)
    assert np.all(np.asarray(found)[0] >= wanted[0])
    assert int(carry.level) == 256
    # Another stretch goes on where this one ended.
    np.testing.assert_allclose(_budget_table._levels(carry, rows, N)[1][:44], wanted[256:], rtol=1e-10)


def test_between_two_nodes_the_curve_is_on_the_line_rounded_up_and_the_last_that_fits_is_found():
    low, high = RNG.uniform(0.0, 1.0, (2, 40))
    for units in range(9):
        exact = np.longdouble(low) * (9 - units) / 9 + np.longdouble(high) * units / 9
        found = _budget_table._between(low, high, 9, units)
        assert np.all(found >= exact)
        assert np.all(found <= exact * (1 + 2.0**-48))
    for last in range(9):
        asked = []
        assert (
            _budget_table._last(lambda n, asked=asked: asked.append(n) or n, lambda n, last=last: n <= last, 9) == last
        )
        assert all(0 < n < 9 for n in asked)
        assert len(asked) <= 4
    whole, share = _budget_table.prices_in_nodes(np.array([8, 9, 10, 16, 17]), 8)
    assert whole.tolist() == [1, 2, 2, 2, 3]
    assert whole.dtype == np.int32
    assert share.tolist() == [1.0, 0.125, 0.25, 1.0, 0.125]


@pytest.mark.parametrize("keep", [False, True])
def test_the_budget_is_the_largest_whole_one_that_meets_the_target_and_is_cut_at_the_most(monkeypatch, keep):
    # Curves that rise by one a node, of one point; a budget of b units has the value b / 5.
    grid, node = LossGrid(0.25, 0, 1), 5
    laws = MenuLaws(grid, np.full((1, 3), 0.1), np.zeros((1, 1)), 1, 1)

    def levels(carry, rows, n):
        start = int(carry.level)
        curves = np.arange(start + 1, start + 257, dtype=float)[:, None]
        return carry._replace(level=start + 256, curve=jnp.asarray(curves[-1])), curves

    monkeypatch.setattr(_budget_table, "_levels", levels)
    seen = []
    for limit, most, wanted in (
        (3.35, 10**6, 16), (0.99, 10**6, 4), (255.9, 10**6, 1279), (256.0 + 1e-9, 10**6, 1280), (600.15, 10**6, 3000),
        (700.0, 2600, 2600), (3.35, 11, 11), (256.5, 1280, 1280), (300.0, 1282, 1282),
    ):  # fmt: skip
        met = lambda curve, limit=limit: bool(curve[0] <= limit + 1e-9)  # noqa: E731
        table = _budget_table.budget_table(laws, np.array([7]), node, met, most, seen.append, keep)
        assert table.budget == wanted, (limit, most)
        assert table.excess[0] >= wanted / node
        assert met(table.excess * (1 - 1e-12))
        if keep:
            assert table.curves[:, 0].tolist() == list(range(table.curves.shape[0]))
            assert table.curves.shape[0] - 1 >= table.budget / node
            assert table.curves.shape[0] <= table.budget // node + 2 or table.budget == most
        else:
            assert table.curves is None
    assert all(n >= 0 for n in seen)
