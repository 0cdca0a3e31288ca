"""Distances, orders and readings that are made of curves, on small numbers that a loop can follow."""

import math
from fractions import Fraction as F

import jax
import numpy as np
import pytest

from jaxacct import LossGrid, TradeOff
from jaxacct.losses.compare import suprema as extremes
from jaxacct.losses.compare.attack import bayes_risk
from jaxacct.losses.compare.distance import delta_divergence_of_trade_offs
from jaxacct.losses.curves import trade_off as tradeoff
from tests import stored

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
def test_what_a_float32_program_rounded_is_moved_by_one_of_its_units(bound, sign):
    """By 2^-23: the mass that counts on its side of slope 1 to the safe side, the other one back; equal ones meet."""
    widths, drops = np.array([0.125, 0.25, 0.625], np.float32), np.array([0.5, 0.25, 0.25], np.float32)
    w, d = (np.asarray(x) for x in tradeoff.arrays(TradeOff(widths, drops, bound)))
    unit = sign * 2.0**-23
    if bound == "lower":
        np.testing.assert_array_equal([w[0], d[0]], [0.0, 0.25 * (1 - 2.0**-23) * 2.0**-22])
        w, d = w[1:], d[1:]
        equal = [0.25 * (1 + unit), 0.25 * (1 - unit)]
    else:
        equal = [0.25 * (1 + unit)] * 2  # they do not pass each other
    np.testing.assert_array_equal(w, [0.125 * (1 - unit), equal[0], 0.625 * (1 + unit)])
    np.testing.assert_array_equal(d, [0.5 * (1 + unit), equal[1], 0.25 * (1 - unit)])


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


def test_a_sequence_of_batches_is_a_family_of_batches():
    grid = LossGrid(0.5, -2, 5)
    rng = np.random.default_rng(3)
    one, other = (stored.profile(rng.uniform(0, 0.1, (2, 5)), grid) for _ in range(2))
    np.testing.assert_array_equal(extremes.supremum([one, other]).excess, np.maximum(one.excess, other.excess))
    np.testing.assert_array_equal(extremes.supremum(one).excess, one.excess.max(0))
    longer = LossGrid(0.5, -3, 7)
    found = extremes.supremum(one, grid=longer)
    assert found.grid == longer
    np.testing.assert_array_equal(found.excess[1:-1], one.excess.max(0))
