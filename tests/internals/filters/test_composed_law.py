"""A composed law on a fixed grid: against a plain convolution, with what falls off either end."""

from __future__ import annotations

import jax
import numpy as np

from jaxacct import LossGrid
from jaxacct._numerics.pieces import join
from jaxacct.filters.residues import on_grid as _composed_law
from tests import stored

GRID = LossGrid(0.25, -5, 9)
RNG = np.random.default_rng(8)


@jax.enable_x64(True)
def test_what_composes_beyond_the_grid_is_infinite_above_and_at_its_end_below():
    lowest = -3
    step = LossGrid(0.25, lowest, 8)
    query = RNG.uniform(0.0, 1.0, 8)
    query *= 0.97 / query.sum()
    run = jax.jit(lambda state, masses, atom: _composed_law.after(state, stored.law(masses, atom, step), GRID))
    state = _composed_law.nothing(GRID)
    assert np.asarray(join(state.masses)).tolist() == [0.0] * 5 + [1.0] + [0.0] * 3
    assert (float(join(state.infinity)), int(state.rounds)) == (0.0, 0)
    masses, atom = np.eye(9)[5], 0.0
    for n in range(1, 5):
        whole = np.convolve(masses, query)  # from lowest - 5 on
        first = -lowest
        kept = whole[first : first + 9].copy()
        kept[0] += whole[:first].sum()
        atom = 1 - (1 - atom) * 0.97 + whole[first + 9 :].sum()
        state = run(state, query, 0.03)
        masses = kept
        found, infinite = np.asarray(join(state.masses)), float(join(state.infinity))
        assert np.all(found >= kept * (1 - 1e-15))
        np.testing.assert_allclose(found, kept, rtol=1e-11, atol=1e-12)
        assert atom * (1 - 1e-15) <= infinite <= atom * (1 + 1e-11)
        assert int(state.rounds) == n
    law = _composed_law.law_of(state, GRID)
    assert (law.bound, law.grid) == ("upper", GRID)
    for _ in range(60):
        state = run(state, query, 0.9)
    assert float(join(state.infinity)) <= 1 + 1e-14
