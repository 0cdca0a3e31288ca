"""What a law on a grid is made of, part by part: the lattice step and the transform are given, and what they charge."""

import numpy as np
import pytest

import jaxacct
from jaxacct import PLD, LossGrid

pytestmark = pytest.mark.usefixtures("in_float64")


def test_entries_that_no_sum_can_be_stay_empty():
    """Randomized response thrice: of the grid's thousand points eight are sums, and none is infinite."""
    law = PLD.from_mechanism(jaxacct.RandomizedResponse(1.0), grid=LossGrid(2.0**-8, -2048, 4097))
    assert law.infinity_mass == 0
    held = np.flatnonzero(law.masses)
    for steps in (3, 40):
        found = law.self_compose(steps)
        assert found.infinity_mass == 0
        losses = found.grid.losses[found.masses > 0]
        assert losses.max() == steps * law.grid.losses[held[-1]]
        assert losses.min() >= steps * law.grid.losses[held[0]]


def test_a_certain_infinite_loss_stays_certain_and_none_stays_none():
    for mass in (0.0, 1.0):
        law = PLD(np.array([1.0, 0.0]) * (1 - mass), np.array(mass), LossGrid(0.5, 0, 2))
        assert law.self_compose(3).infinity_mass == mass
