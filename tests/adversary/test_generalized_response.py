"""Generalised randomised response dominates and is dominated, in rational arithmetic."""

import math
from fractions import Fraction as F

import numpy as np
import pytest

import jaxacct
from jaxacct import LossGrid, TradeOff, dominates
from jaxacct.adversary import GeneralizedResponse
from tests import finite


def test_the_curve_is_that_of_its_experiment():
    found = GeneralizedResponse([math.log(2), math.inf], [0.75, 0.25]).trade_off()
    exact = [(F(0), F(1, 4)), *((F(3, 4) * p, F(3, 4) * q) for p, q in finite.randomized_response(2)), (F(1, 4), F(0))]
    for alpha in (0.0, 0.1, 0.25, 0.5, 0.9):
        assert float(found.trade_off(alpha)) == pytest.approx(float(finite.trade_off(exact, F(alpha))), abs=1e-12)


def test_random_symmetric_experiments_lie_between_their_roundings():
    rng = np.random.default_rng(7)
    for _ in range(10):
        half = finite.random_experiment(rng, 3, singular=False)
        exact = [(p / 2, q / 2) for p, q in half] + [(q / 2, p / 2) for p, q in half]
        query = TradeOff(*finite.as_arrays(exact))
        down, up = GeneralizedResponse.enclosing(query, np.array([0.2, 0.5, 1.1, 1.7]))
        assert sum(up.masses) == pytest.approx(1.0, abs=1e-12)
        assert dominates(up.trade_off(), query, tolerance=1e-13).word == "yes"
        assert dominates(query, down.trade_off(), tolerance=1e-13).word == "yes"


@pytest.mark.slow  # curves of many mechanisms
def test_mechanisms_lie_between_their_roundings():
    ends = np.linspace(0.1, 6.0, 60)
    for mechanism in (jaxacct.Gaussian(1.0), jaxacct.Laplace(1.0), jaxacct.ApproximateDP(0.55, 0.01)):
        down, up = GeneralizedResponse.enclosing(mechanism, ends)
        epsilon = np.array([0.0, 0.31, 1.0, 2.0])
        truth = jaxacct.delta(mechanism, epsilon)
        grid = LossGrid(1 / 64, -640, 1281)
        high, low = up.pld(grid).hockey_stick(epsilon), down.pld(grid).hockey_stick(epsilon)
        assert np.all(high >= truth.lower)
        assert np.all(low <= truth.upper)
        np.testing.assert_allclose(high, low, atol=0.08)


def test_bad_arguments():
    with pytest.raises(ValueError, match="epsilons must increase"):
        GeneralizedResponse.enclosing(jaxacct.Gaussian(1.0), [1.0, 0.5])
    with pytest.raises(ValueError, match="query must be one run with a symmetric loss"):
        GeneralizedResponse.enclosing(jaxacct.PoissonSampled(jaxacct.Gaussian(1.0), 0.1), [1.0])
    with pytest.raises(ValueError, match="masses must sum up to 1"):
        GeneralizedResponse([1.0], [0.5])
    law = TradeOff(np.array([0.5, 0.5]), np.array([0.9, 0.1]))
    with pytest.raises(ValueError, match="symmetric"):
        GeneralizedResponse.enclosing(law, [1.0])
