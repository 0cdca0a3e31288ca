"""Parts of the natural filters by themselves: laws for both directions, grids, curves that are raised."""

from __future__ import annotations

import importlib

import jax
import numpy as np
import pytest

from jaxacct import PLD, LossGrid
from tests.contract.filter_cases import law as response_law

# The package's name for this is the function's.
natural = importlib.import_module("jaxacct.adversary.filters.natural_approximate_dp")
RNG = np.random.default_rng(4)


def test_a_law_and_its_reversal_are_dominated_at_every_order_and_a_symmetric_one_pays_for_rounding():
    both_ways = jax.jit(natural._for_both)
    same = response_law(0.5, 1e-3, LossGrid(0.25, -8, 12))
    with jax.enable_x64(True):
        assert 0 < float(both_ways(same).infinity_mass) - 1e-3 <= 1e-13
    for grid in (LossGrid(0.25, -5, 12), LossGrid(0.25, -8, 12)):
        masses = RNG.uniform(0.0, 1.0, 12) * np.exp(0.5 * grid.losses)
        masses *= 0.99 / max(masses.sum(), (masses * np.exp(-grid.losses)).sum())
        atom = 1 - masses.sum()
        with jax.enable_x64(True):
            made = both_ways(PLD(masses, np.float64(atom), grid))
        q = masses * np.exp(-grid.losses)
        at = np.linspace(-4.0, 4.0, 65)[:, None]
        one = (masses * np.maximum(1 - np.exp(at - grid.losses), 0)).sum(-1)
        other = (q * np.maximum(1 - np.exp(at + grid.losses), 0)).sum(-1) + 1 - q.sum()
        both = one + float(made.infinity_mass)
        assert np.all(both >= np.maximum(one + atom, other) - 1e-12)
        turned = np.array([q[i] if 0 <= (i := -2 * grid.lowest - n) < 12 else 0.0 for n in range(12)])
        more = np.maximum(turned - masses, 0).sum() + q.sum() - turned.sum() + max(1 - q.sum() - atom, 0.0)
        assert float(made.infinity_mass) == pytest.approx(atom + more, rel=1e-12)
