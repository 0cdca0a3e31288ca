"""What attackers get from finite experiments, in exact arithmetic; batches over devices."""

from fractions import Fraction as F

import numpy as np
import pytest

from jaxacct import PLD, LossGrid, PrivacyProfile, TradeOff
from jaxacct.losses.compare.attack import advantage, bayes_risk, power
from tests import finite

LAW = finite.compose(finite.randomized_response(2), finite.randomized_response(4), finite.failing("1/10"))
GRID = LossGrid(np.log(2.0), -8, 17)
PRIORS = np.concatenate([np.random.default_rng(3).uniform(0.01, 0.99, 60), [0.5, 0.2, 1e-9, 1 - 1e-9]])


def risk(prior):
    """Bayes' rule guesses the likelier of the two at every outcome."""
    return sum(min(prior * p, (1 - prior) * q) for p, q in LAW)


def curves(bound):
    """The experiment's curve in three forms, each rounded to its side by hand."""
    up = 1 + (1 if bound == "upper" else -1) * 2.0**-51
    exact = TradeOff(*(up * x for x in finite.as_arrays(LAW)), "lower" if bound == "upper" else "upper")
    losses = [F(2) ** k for k in range(GRID.lowest, GRID.highest + 1)]
    height = [float(finite.hockey_stick(LAW, gamma) - max(F(0), 1 - gamma)) * up for gamma in losses]
    profile = PrivacyProfile(np.array(height), GRID, bound)
    masses = np.array([float(sum(p for p, q in LAW if q and p == gamma * q)) * up for gamma in losses])
    return {"trade-off curve": exact, "profile": profile, "law": PLD(masses, np.float64(0.1 * up), GRID, bound)}


@pytest.mark.parametrize("bound", ["upper", pytest.param("lower", marks=pytest.mark.slow)])
def test_attacks_on_a_finite_experiment_are_bounded_from_the_curves_side(bound):
    sign = 1 if bound == "upper" else -1
    truths = [risk(F(float(x))) for x in PRIORS]
    distance = finite.hockey_stick(LAW, 1)
    for curve in curves(bound).values():
        found, risks = advantage(curve), bayes_risk(curve, PRIORS)
        assert found.shape == ()
        assert sign * (F(float(found)) - distance) >= 0
        assert float(found) == pytest.approx(float(distance), abs=1e-12)
        assert risks.dtype == np.float64
        assert all(sign * (truth - F(float(value))) >= 0 for truth, value in zip(truths, risks, strict=True))
        # A lower law says nothing below its lattice, where a guess of P at small odds is decided.
        known = slice(None, None if bound == "upper" else -1)
        np.testing.assert_allclose(risks[known], np.array(truths, float)[known], atol=2e-13, rtol=0)
        assert np.all((risks >= 0) & (risks <= np.minimum(PRIORS, 1 - PRIORS)))
    np.testing.assert_array_equal(bayes_risk(curve, PRIORS.reshape(2, -1)), bayes_risk(curve, PRIORS).reshape(2, -1))


def test_power_is_that_of_the_best_test():
    alpha = np.array([0.0, 0.05, 0.3, 1.0])
    found = power(curves("upper")["law"], alpha)
    truths = [1 - finite.trade_off(LAW, float(a)) for a in alpha]
    assert all(F(float(value)) >= truth for truth, value in zip(truths, found, strict=True))
    np.testing.assert_allclose(found, np.array(truths, float), atol=1e-12)


def test_perfect_privacy_and_none():
    nothing = PrivacyProfile(np.zeros(GRID.size), GRID)
    assert advantage(nothing) < 1e-15
    assert bayes_risk(nothing, PRIORS)[-3] == pytest.approx(0.2, abs=1e-14)
    everything = TradeOff(*np.eye(len(LAW))[[-1, 0]])
    assert advantage(everything) == 1.0
    assert np.all(bayes_risk(everything, PRIORS) == 0.0)
