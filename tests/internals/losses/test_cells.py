"""Discrete laws above and below a privacy loss enclose its curve, and close in on it."""

import mpmath
import numpy as np
import pytest

from jaxacct.losses.engines.laws.cells import laws
from jaxacct.mechanisms.pairs.cells import with_edge
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.laplace import LaplacePair
from jaxacct.mechanisms.pairs.sampled import SampledPair


def _stick(law, epsilon):
    """The hockey stick of a discrete law, in NumPy."""
    excess = np.maximum(-np.expm1(epsilon - law.losses), 0.0)
    return float((law.masses * excess).sum() + law.infinite)


def _normal(mu, epsilon):
    return float(mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu))


def _laplace(eps0, epsilon):
    if epsilon >= eps0:
        return 0.0
    return float(-mpmath.expm1((epsilon - eps0) / 2)) if epsilon >= -eps0 else float(-mpmath.expm1(epsilon))


def _sampled(inner, rate):
    """Of the direction `remove`: H(gamma) = rate G(1 + (gamma - 1) / rate) at gamma >= 1."""
    return lambda epsilon: rate * inner(float(mpmath.log1p(mpmath.expm1(epsilon) / rate)))


_one, _none = np.ones(()), np.zeros(())
CASES = {
    "gaussian": (GaussianPair(np.asarray(0.7), _one, _none), lambda eps: _normal(1 / 0.7, eps)),
    "small gaussian": (GaussianPair(np.asarray(1e4), _one, _none), lambda eps: _normal(1e-4, eps)),
    "sampled gaussian": (
        GaussianPair(np.asarray(1.2), np.asarray(0.01), _none),
        _sampled(lambda eps: _normal(1 / 1.2, eps), 0.01),
    ),
    "laplace": (LaplacePair(np.asarray(0.8)), lambda eps: _laplace(0.8, eps)),
    "sampled laplace": (
        SampledPair(LaplacePair(np.asarray(2.0)), np.asarray(0.3), _none),
        _sampled(lambda eps: _laplace(2.0, eps), 0.3),
    ),
}


def _edges(pair, size):
    survey = pair.survey()
    seen = survey.losses[survey.log_masses > -60.0]
    return np.linspace(seen.min(), seen.max() * (1 + 1e-12) + 1e-15, size + 1)


@pytest.mark.parametrize("name", CASES)
def test_the_laws_enclose_the_curve_they_were_made_of(name):
    pair, truth = CASES[name]
    edges = _edges(pair, 37)
    lower, upper = laws(pair, edges)
    for epsilon in [*np.linspace(0.0, edges[-1], 23), *edges[edges >= 0][::5]]:
        exact = truth(epsilon)
        assert _stick(lower, epsilon) <= exact * (1 + 1e-12) + 1e-300
        assert _stick(upper, epsilon) >= exact * (1 - 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_laws_close_in_with_the_square_of_the_cells(name):
    pair, _ = CASES[name]

    def gap(size):
        edges = with_edge(_edges(pair, size), pair.anchor())
        lower, upper = laws(pair, edges)
        at = np.linspace(0.05, 0.6, 12) * edges[-1]
        return np.mean([_stick(upper, epsilon) - _stick(lower, epsilon) for epsilon in at])

    assert gap(96) < gap(24) / 8 + 1e-11
