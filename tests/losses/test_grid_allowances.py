"""What hockey sticks of laws on a grid add for their rounding is what they say, no less and no more."""

import numpy as np
import pytest

from jaxacct import PLD, LossGrid
from tests.allowances import Long, allowed, needs_long_double

UNIT = 2.0**-52
pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]
GRIDS = [LossGrid(5.0, -20, 41), LossGrid(1e-3, -400, 801)]


def around(grid, rng, count):
    """Losses everywhere, and within two units of lattice points."""
    low, high = (grid.lowest - 2) * grid.spacing, (grid.highest + 2) * grid.spacing
    points = rng.integers(grid.lowest, grid.highest + 1, count // 3) * grid.spacing
    near = points * (1 + rng.integers(-2, 3, points.size) * 2.0**-53)
    return np.concatenate([near, rng.uniform(low, high, count - points.size)]), np.arange(count) < points.size


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_hockey_sticks_of_laws_at_their_word(bound, sign):
    rng = np.random.default_rng(4)
    for grid in GRIDS[:1]:
        n, masses = grid.size, 0.99 * rng.dirichlet(np.full(grid.size, 0.05))
        at, near = around(grid, rng, 900)
        found = PLD(masses, np.array(0.01), grid, bound).hockey_stick(at)
        losses, x = (grid.lowest + np.arange(n)) * Long(grid.spacing), Long(at)
        truth = (masses * -np.expm1(np.minimum(x[:, None] - losses, 0))).sum(-1) + Long(0.01)
        above = (masses * (losses > x[:, None])).sum(-1)
        floor = np.maximum(-np.expm1(x), 0)
        assert np.all(sign * (found - np.clip(truth, floor, 1)) >= 0)
        free = (found < 1) & (np.abs(found - floor) > 1e-14) & ~near
        room = UNIT * (4 * n + 16) * truth + 2 * UNIT * np.abs(at) * (above + truth)
        allowed((sign * (found - truth))[free], room[free], 0.9, 1.15)
        # Next to a lattice point its atom may be on either side.
        atom = (masses * (np.abs(losses - x[:, None]) < 1e-9)).sum(-1)
        room += 2 * UNIT * np.abs(at) * atom + UNIT * np.abs(at)
        assert np.all((sign * (found - np.clip(truth, floor, 1)) <= 1.15 * room)[near & (found < 1)])
