"""What a Rényi curve answers where a traced number makes no sense: infinity, whichever of them it is."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.pairs.table import TablePair
from jaxacct.mechanisms.renyi import gaussian, mixture, tails

INF, NAN = math.inf, math.nan
RATE = ((0.3,), (-0.5, 1.5, INF, NAN))
ORDER = ((2.5, 3.0), (1.0, 0.5, 0.0, -2.0, INF, NAN))


@pytest.mark.parametrize("relation", ["remove", "add"])
def test_whole_orders_of_samples_of_gaussians(relation):
    """A concrete order takes another path: a finite sum."""
    mu, rate = ((0.0, 0.7), (-1.0, INF, NAN)), ((0.0, 0.3, 1.0), RATE[1])
    columns = np.array(list(itertools.product(*((*good, *bad) for good, bad in (mu, rate)))))
    sensible = np.isin(columns, [*mu[0], *rate[0]]).all(1)
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(lambda m, q: gaussian.sampled_gaussian_divergence(m, q, 3.0, relation))(*columns.T))
    assert np.all(found[~sensible] == INF)
    assert np.all((found[sensible] >= 0) & (found[sensible] <= 1.5 * 0.7**2 * (1 + 1e-12)))


def test_weights_that_are_no_law():
    orders, noise, reverse = np.full(6, 2.5), np.ones(6), np.zeros(6, bool)
    weights = np.array([[0.5, 0.5], [0.4, 0.5], [0.6, 0.5], [0.5 + 2e-8, 0.5], [0.5 - 2e-8, 0.5], [1.5, -0.5]])
    with jax.enable_x64(True):
        found = np.asarray(mixture._curve(noise, np.tile([0.5, 1.0], (6, 1)), weights, orders, reverse))
    np.testing.assert_array_equal(found == INF, [False, True, True, True, True, True])


def test_tables():
    """Two atoms, of which one number at a time is nonsense."""
    losses, p = np.log([0.5, 1.5]), np.array([0.25, 0.75])
    good = (losses, p, p * np.exp(-losses), 0.0, 0.0)
    run = jax.jit(lambda pair, a: tails._of_table(jax.tree.map(lambda x: x[None], pair), a[None])[0])
    with jax.enable_x64(True):
        make = lambda x, p, q, loss, error: TablePair(Row(x), Row(p), Row(q), *map(jnp.float64, (loss, error)))  # noqa: E731
        for order in ORDER[0]:
            assert 0 < run(make(*good), jnp.float64(order)) < math.log(1.5)
        for order in ORDER[1]:
            assert run(make(*good), jnp.float64(order)) == INF
        for at in range(5):
            bad = [*good]
            bad[at] = good[at] * NAN
            assert run(make(*bad), jnp.float64(2.5)) == INF
        # A loss that may be infinite, and one that is not there.
        losses[1] = INF
        assert run(make(*good), jnp.float64(2.5)) == INF
        p[1] = 0.0
        assert 0 < run(make(*good), jnp.float64(2.5)) < INF
