"""What a Rényi curve answers where a traced number makes no sense: infinity, whichever of them it is."""

import itertools
import math

import jax
import numpy as np
import pytest

import jaxacct
from jaxacct import PoissonSampled, RandomSensitivityGaussian
from jaxacct.losses.renyi import renyi

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
    rate = (0.3, 0.0, 1.0), RATE[1]
    check(*answers(make, POSITIVE, ((1.5,), (0.0, -1.0, INF, NAN)), rate, relation=relation))


@pytest.mark.parametrize("relation", RELATIONS)
def test_mixtures(relation):
    make = lambda sigma, one, weight, rate: PoissonSampled(  # noqa: E731
        RandomSensitivityGaussian(sigma, (one, 1.0), (weight, 1.0 - weight)), rate
    )
    domains = (POSITIVE, ((0.0, 0.7), (-0.7, INF, NAN)), ((0.25, 0.75), (-0.25, 1.25, NAN)), ((0.0, 0.3, 1.0), RATE[1]))
    columns, sensible, found = answers(make, *domains, relation=relation, orders=((2.5,), ORDER[1]))
    # What is never sampled may be anything.
    never = columns[3] == 0.0
    check(columns[:, ~never], sensible[~never], found[~never])


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
