"""Distances, orders and readings that are made of curves, on small numbers that a loop can follow."""

import math
from fractions import Fraction as F

import jax
import numpy as np
import pytest

from jaxacct import TradeOff
from jaxacct.losses.compare.attack import bayes_risk
from jaxacct.losses.compare.distance import delta_divergence_of_trade_offs

pytestmark = pytest.mark.usefixtures("in_float64")

EPS = 2.0**-52


def test_a_float32_program_does_not_round_what_is_made_of_curves():
    """The distance of randomized responses is known to 12 digits although the caller's precision is single."""
    ends = [np.array([0.0, 1 / 3, 2 / 3]), np.array([0.0, 1 / 4, 3 / 4])]
    a, b = (TradeOff(x, x[::-1].copy()[[2, 0, 1]]) for x in ends)
    with jax.enable_x64(False):
        found = delta_divergence_of_trade_offs(a, b)
        risk = bayes_risk(a, 0.5)
    assert found.dtype == risk.dtype == np.float64
    assert float(found) == pytest.approx(1 / 12, abs=1e-12)
    assert float(risk) == pytest.approx(1 / 3, abs=1e-14)


@pytest.mark.parametrize(("bound", "sign"), [("lower", 1), ("upper", -1)])
def test_a_risk_is_rounded_by_its_order_and_two_units(bound, sign):
    """16 units of 1 + |log odds| times the prior, 4 of what is saved, and 2 of its own."""
    curve = TradeOff(np.array([0.25, 0.75]), np.array([0.75, 0.25]), bound)
    for prior in (0.5, 0.3, 0.62, 0.26, 0.74):
        p = F(prior)
        exact = min(p * F(1, 4), (1 - p) * F(3, 4)) + min(p * F(3, 4), (1 - p) * F(1, 4))
        found = F(float(bayes_risk(curve, prior)))
        odds = abs(math.log((1 - prior) / prior))
        saved = float(min(p, 1 - p) - exact)
        gamma, read = (1 - prior) / prior, 0.0
        for w, d in ((0.25, 0.75), (0.75, 0.25)):
            if (w > gamma * d) == (gamma >= 1):
                read += EPS * (4 + 2 * odds) * (w + gamma * d)
        room = prior * (16 * (1 + odds) * EPS + read + 2 * EPS * saved) + 4 * EPS * saved + 2 * EPS
        assert 0.8 * room <= sign * float(exact - found) <= 1.2 * room + 2 * EPS
