"""What a Rényi curve answers where a traced number makes no sense: infinity, whichever of them it is."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import MixtureOfGaussians, PoissonSampled
from jaxacct._numerics.rows import Row
from jaxacct.losses.renyi import discrete, gaussian, mixture, renyi
from jaxacct.mechanisms.pairs.table import TablePair

INF, NAN = math.inf, math.nan
POSITIVE = ((0.7, 2.0), (0.0, -1.0, INF, NAN))
RATE = ((0.3,), (-0.5, 1.5, INF, NAN))
WHOLE = ((1.0, 2.0), (0.0, -1.0, 1.5, 0.5, INF, NAN))
ORDER = ((2.5, 3.0), (1.0, 0.5, 0.0, -2.0, INF, NAN))


def answers(make, *domains, relation="add_or_remove", orders=ORDER):
    """All combinations with two bad values at most, whether all are good, and the curve there, from inside a trace."""
    every = (*domains, orders)
    columns = np.array(list(itertools.product(*((*good, *bad) for good, bad in every)))).T
    bad = np.sum([~np.isin(x, good) for x, (good, _) in zip(columns, every, strict=True)], axis=0)
    columns, sensible = columns[:, bad <= 2], bad[bad <= 2] == 0
    found = jax.jit(lambda *args: renyi(make(*args[:-1]), args[-1], relation=relation))(*columns)
    return columns, sensible, np.asarray(found)


def check(columns, sensible, found):
    # Where nothing is released 0 is true at an infinite order, too.
    refused = (found == INF) | ((found == 0) & (columns[-1] == INF))
    assert np.all(refused[~sensible]), columns[:, ~sensible & ~refused].T
    assert np.all((found[sensible] >= 0) & (found[sensible] < 30)), columns[:, sensible].T


@pytest.mark.parametrize(
    ("make", "domains"),
    [
        (jaxacct.Laplace, (POSITIVE, POSITIVE)),
        (jaxacct.Exponential, (POSITIVE,)),
        (jaxacct.PermuteAndFlip, (((0.0, 0.7), (-1.0, INF, NAN)),)),
        (jaxacct.RandomizedResponse, (((0.0, 0.7), (-1.0, INF, NAN)), ((2.0, 5.0), (1.0, 0.5, 2.5, -1.0, INF, NAN)))),
        (jaxacct.ApproximateDP, (((0.0, 0.7), (-1.0, INF, NAN)), ((0.0,), (1e-9, 1.0, -1.0, NAN)))),
        (jaxacct.GDP, (((0.0, 0.7), (-1.0, INF, NAN)),)),
        (jaxacct.ZeroConcentratedDP, (POSITIVE,)),
        (
            lambda order, epsilon: jaxacct.RenyiDP(order=order, epsilon=epsilon),
            (((3.0, 7.0), (2.0, 1.0, -1.0, INF, NAN)), ((0.0, 0.7), (-1.0, INF, NAN))),
        ),
        (jaxacct.DiscreteGaussian, (POSITIVE, WHOLE)),
        (jaxacct.DiscreteLaplace, (POSITIVE, WHOLE)),
        (jaxacct.Gaussian, (POSITIVE, ((0.0, 0.7), (-1.0, INF, NAN)))),
    ],
)
def test_closed_curves(make, domains):
    check(*answers(make, *domains))


RELATIONS = (pytest.param("remove", marks=pytest.mark.slow), "add")


@pytest.mark.parametrize("relation", RELATIONS)
def test_samples_of_gaussians(relation):
    make = lambda sigma, sensitivity, rate: PoissonSampled(jaxacct.Gaussian(sigma, sensitivity), rate)  # noqa: E731
    rate, sensitivity = ((0.3, 0.0, 1.0), RATE[1]), ((0.0, 1.5), (-1.0, INF, NAN))
    check(*answers(make, POSITIVE, sensitivity, rate, relation=relation))


@pytest.mark.parametrize("relation", ["remove", "add"])
def test_whole_orders_of_samples_of_gaussians(relation):
    """A concrete order takes another path: a finite sum."""
    mu, rate = ((0.0, 0.7), (-1.0, INF, NAN)), ((0.0, 0.3, 1.0), RATE[1])
    columns = np.array(list(itertools.product(*((*good, *bad) for good, bad in (mu, rate)))))
    sensible = np.isin(columns, [*mu[0], *rate[0]]).all(1)
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(lambda m, q: gaussian.sampled_gaussian_curve(m, q, 3.0, relation))(*columns.T))
    assert np.all(found[~sensible] == INF)
    assert np.all((found[sensible] >= 0) & (found[sensible] <= 1.5 * 0.7**2 * (1 + 1e-12)))


@pytest.mark.parametrize("relation", RELATIONS)
def test_mixtures(relation):
    make = lambda sigma, one, weight, rate: PoissonSampled(  # noqa: E731
        MixtureOfGaussians(sigma, (one, 1.0), (weight, 1.0 - weight)), rate
    )
    domains = (POSITIVE, ((0.0, 0.7), (-0.7, INF, NAN)), ((0.25, 1.0), (-0.25, 1.25, NAN)), ((0.0, 0.3, 1.0), RATE[1]))
    columns, sensible, found = answers(make, *domains, relation=relation, orders=((2.5,), ORDER[1]))
    # What is never sampled may be anything.
    never = columns[3] == 0.0
    check(columns[:, ~never], sensible[~never], found[~never])


def test_weights_that_are_no_law():
    orders, noise, reverse = np.full(6, 2.5), np.ones(6), np.zeros(6, bool)
    weights = np.array([[0.5, 0.5], [0.4, 0.5], [0.6, 0.5], [0.5 + 2e-8, 0.5], [0.5 - 2e-8, 0.5], [1.5, -0.5]])
    with jax.enable_x64(True):
        found = np.asarray(mixture._curve(noise, np.tile([0.5, 1.0], (6, 1)), weights, orders, reverse))
    np.testing.assert_array_equal(found == INF, [False, True, True, True, True, True])


def test_samples_of_samples():
    """At a whole order, where the curve is a sum."""
    rate = ((0.0, 0.3, 1.0), RATE[1])
    twice = lambda inner, outer: PoissonSampled(PoissonSampled(jaxacct.Gaussian(1.0), inner), outer)  # noqa: E731
    columns = np.array(list(itertools.product([*rate[0], *rate[1]], repeat=2))).T
    sensible = np.isin(columns, rate[0]).all(0)
    found = np.asarray(jax.jit(lambda p, q: renyi(twice(p, q), 3.0, relation="remove"))(*columns))
    assert np.all(found[~sensible] == INF)
    product = columns[0, sensible] * columns[1, sensible]
    np.testing.assert_allclose(found[sensible], renyi(PoissonSampled(jaxacct.Gaussian(1.0), product), 3.0), rtol=1e-6)


def test_tables():
    """Two atoms, of which one number at a time is nonsense."""
    losses, p = np.log([0.5, 1.5]), np.array([0.25, 0.75])
    good = (losses, p, p * np.exp(-losses), 0.0, 0.0)
    run = jax.jit(lambda pair, a: discrete._of_table(jax.tree.map(lambda x: x[None], pair), a[None])[0])
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
