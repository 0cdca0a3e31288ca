"""First calls compile nothing, or the one small program that moves a ledger; NumPy and compiled programs agree."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct import (
    PLD,
    LossGrid,
)
from jaxacct.filters.residues.on_grid import after, law_of, nothing


@pytest.mark.parametrize("lowest", [-3, -2, -1, 0, 2])
def test_a_composed_law_of_any_reach_is_put_on_the_grid(lowest, monkeypatch):
    """Mass above the grid becomes infinite, mass below it moves to its end, however long the composed law's own is."""
    grid = LossGrid(0.5, -2, 5)
    masses = np.array([0.25, 0.5, 0.125])
    made = PLD(masses, np.float64(0.125), LossGrid(0.5, lowest, 3), "upper")
    monkeypatch.setattr(PLD, "compose", lambda self, other: made)
    with jax.enable_x64(True):
        found = law_of(after(jax.tree.map(np.asarray, nothing(grid)), made, grid), grid)
    wanted, infinite = np.zeros(5), 0.125
    for point, mass in zip(range(lowest, lowest + 3), masses, strict=True):
        if point > grid.highest:
            infinite += mass
        else:
            wanted[max(point + 2, 0)] += mass
    np.testing.assert_allclose(np.asarray(found.masses), wanted, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(found.infinity_mass), infinite, rtol=1e-12)
