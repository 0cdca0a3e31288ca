"""The GDP residue filter: the note's residues, the residue condition by brute force, and what it must refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct._numerics.pieces import join
from jaxacct.filters import prepare
from jaxacct.filters.residues.solver import _at_nodes, _pattern
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Gaussian, PoissonSampled


def exact(pieces) -> np.ndarray:
    """The float64 number of a state, whatever the program's precision."""
    return np.asarray(pieces, np.float64).sum(-1)


@pytest.mark.slow
def test_pooling_keeps_both_masses_and_dominates():
    law = PLD.from_mechanism(PoissonSampled(Gaussian(1.5), 0.01), grid=LossGrid(5 / 2048, -2048, 4096))
    query = prepare(law)
    with jax.enable_x64(True):
        losses, masses, infinity = (np.asarray(join(x)) for x in (query.losses, query.masses, query.infinity))
    gamma = np.exp(np.linspace(-0.05, 2, 50))
    pooled = np.maximum(0, masses[0] * -np.expm1(np.log(gamma)[:, None] - losses[0])).sum(-1) + infinity[0]
    full = np.asarray(law.hockey_stick(np.log(gamma)), np.float64)
    assert np.all(pooled >= full * (1 - 1e-12) - 1e-15)
    assert masses[0].sum() == pytest.approx(1, abs=1e-7)
    assert np.sum(masses[0] * losses[0] ** 2) < 1.01 * np.sum(law.masses * law.grid.losses**2)


@pytest.mark.parametrize(("mu", "charge", "spread"), [(1.0, 0.01, 1.0), (0.05, 0.002, 3.0), (1e-3, 1e-9, 20.0)])
def test_products_of_powers_are_the_exponentials_or_more(mu, charge, spread):
    losses = spread * np.random.default_rng(0).normal(size=128)
    m2, kappa, nodes = mu**2 - charge, 0.5 * charge / ((mu**2 - charge) * mu**2), _pattern(128)[0] * (mu / 20)
    constant = -np.log(128) - losses * (losses / m2 + 1) / 2
    with jax.enable_x64(True):
        found = np.asarray(_at_nodes(*map(jnp.asarray, (constant, losses / m2, kappa, mu / 20, nodes[-1]))))
    exponents = (np.longdouble(constant)[:, None] + losses[:, None] / np.longdouble(m2) * nodes) - kappa * nodes**2
    exact = np.exp(exponents).sum(0)
    size = 100 + np.abs(losses).max() * (nodes[-1] + np.abs(losses).max()) / m2 + kappa * nodes[-1] ** 2
    assert np.all(found >= exact * (1 - 32 * 2.0**-52 * size))
    np.testing.assert_allclose(found, np.float64(exact), rtol=64 * 2.0**-52 * size, atol=2e-40)
