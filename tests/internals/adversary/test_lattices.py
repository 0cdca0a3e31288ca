"""Games whose queries are not finite, or are given as curves: played on lattices, small ones here."""

import math

import numpy as np
import pytest

import jaxacct
from jaxacct import GDP, PLD, Laplace, LossGrid, PrivacyProfile, RandomizedResponse
from jaxacct.adversary import natural_filter_cost
from jaxacct.games.compositions import Compositions
from jaxacct.games.lattice_laws import lattice_for, laws_of

LOG2 = math.log(2)
GRID = LossGrid(LOG2 / 16, -80, 161)
LATTICE = LossGrid(0.05, -80, 161)


def test_laws_enclose_their_query():
    at = np.array([0.0, 0.5, 1.0])
    index = np.rint(at / LATTICE.spacing).astype(int) - LATTICE.lowest
    # An atom off the lattice is laid on both points around it from above, and mixed away from below.
    for query, width in ((Laplace(4.0), 2e-2), (RandomizedResponse(0.85), 1e-9), (RandomizedResponse(0.83), 2e-2)):
        truth = jaxacct.delta(query, at)
        for upper, lower in laws_of(query, LATTICE, "add_or_remove"):
            assert np.all(upper.excess[index] >= truth.lower - 1e-15)
            assert np.all(lower.excess[index] <= truth.upper + 1e-15)
            assert np.all(upper.excess[index] - lower.excess[index] < width)


def test_bad_lattices_and_batches_are_named():
    profile = PrivacyProfile.from_mechanism(Laplace(2.0), grid=GRID)
    other = PrivacyProfile.from_mechanism(Laplace(2.0), grid=LossGrid(0.05, -80, 161))
    with pytest.raises(ValueError, match="spacings must agree, got"):
        lattice_for([profile, other], 2, "add_or_remove")
    for batch in (Laplace(np.array([2.0, 3.0])), RandomizedResponse(np.array([0.2, 0.3]))):
        with pytest.raises(ValueError, match="must have scalar parameters, got a batch of shape"):
            natural_filter_cost(GDP(1.0), [batch], 2)
    with pytest.raises(ValueError, match="curves of a family must have no batch axes"):
        natural_filter_cost(GDP(1.0), [PLD(np.full((2, 161), 1 / 161), np.zeros(2), LATTICE)], 2)
    with pytest.raises(ValueError, match="family must be a sequence"):
        Compositions(3, 2, "add_or_remove")
    joined = lattice_for([profile, RandomizedResponse(0.4)], 2, "add_or_remove")
    assert joined.spacing == GRID.spacing
