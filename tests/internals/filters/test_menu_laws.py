"""Where a menu's lattice reaches, and how often each query may run alone: against convolutions and normal tails."""

from __future__ import annotations

import numpy as np
import pytest

from jaxacct import LossGrid, PrivacyProfile
from jaxacct.filters.menus import laws as _menu_laws


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 0.6, 1.2499, 2.0])
def test_the_delta_of_a_curve_is_that_of_the_worse_direction(epsilon):
    grid, rng = LossGrid(0.25, -12, 25), np.random.default_rng(1)
    for _ in range(4):
        masses = rng.uniform(0.0, 1.0, 25) * np.exp(0.3 * rng.normal() * grid.losses)
        masses *= 0.99 / max(masses.sum(), (masses * np.exp(-grid.losses)).sum())
        gamma = np.exp(grid.losses)[:, None]
        excess = (masses * np.maximum(1 - gamma * np.exp(-grid.losses), 0)).sum(-1) + 1 - masses.sum()
        excess -= np.maximum(1 - gamma[:, 0], 0)
        exact = float(PrivacyProfile(excess, grid, "upper").symmetrise().hockey_stick(epsilon))
        assert exact * (1 - 1e-9) <= _menu_laws.delta_of(excess, grid, epsilon) <= exact * (1 + 3e-9)
