"""The scan of a menu's table node by node, and how its largest budget is found, against plain sums of what they say."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.filters.menus import table as _budget_table

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
