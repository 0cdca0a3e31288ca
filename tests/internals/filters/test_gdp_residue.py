"""The GDP residue filter: the note's residues, the residue condition by brute force, and what it must refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.filters.residues.solver import _at_nodes, _pattern


def exact(pieces) -> np.ndarray:
    """The float64 number of a state, whatever the program's precision."""
    return np.asarray(pieces, np.float64).sum(-1)


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
