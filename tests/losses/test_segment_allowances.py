"""What piecewise linear curves add for rounding is what they say, line by line; merged segments cost what they did."""

import jax
import numpy as np
import pytest

from jaxacct import LossGrid, PrivacyProfile, TradeOff, supremum
from jaxacct.losses.compare.attack import bayes_risk
from tests import stored
from tests.allowances import Long, allowed, needs_long_double

UNIT = 2.0**-52
pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]


def curve(seed, count=7):
    """A vertical piece, slopes on both sides of 1, a flat piece."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(count))
    p = q * np.exp(np.sort(rng.normal(0, 2.5, count)))
    p[0] = q[-1] = 0.0
    return p / p.sum(), q / q.sum()


def excess(p, q, losses):
    gamma = np.exp(Long(losses))[:, None]
    return np.where(gamma >= 1, np.maximum(p - gamma * q, 0), np.maximum(gamma * q - p, 0)).sum(-1)


def lines(along, across, x):
    """Value and size of each line that carries a segment, and of the one of slope 1 after them."""
    a, b = (np.concatenate([[0], np.cumsum(Long(v))]) for v in (along, across))
    held = np.append(along > 0, True)
    slope = np.append(np.where(along > 0, across / np.where(along > 0, Long(along), 1), 0), 1)
    return (b + slope * (x - a))[held], (b + slope * (x + a))[held]


@pytest.mark.parametrize(("bound", "sign"), [("lower", -1), ("upper", 1)])
def test_trade_offs_are_read_with_the_margin_of_every_line(bound, sign):
    alpha = np.concatenate([10.0 ** np.random.default_rng(1).uniform(-12, 0, 25), np.linspace(0.02, 0.98, 24)])
    for seed in range(4):
        p, q = curve(seed)
        f, power = (np.asarray(read(alpha)) for read in (TradeOff(p, q, bound).trade_off, TradeOff(p, q, bound).power))
        steep = q > p
        for k, x in enumerate(Long(alpha)):
            value, size = lines(p[steep], q[steep], x)
            best = max((value - sign * 4 * 11 * UNIT * size).min(), 0)
            value, size = lines(p[~steep][::-1], q[~steep][::-1], 1 - x)
            miss = max((value + sign * 4 * 11 * UNIT * size).max(), 0)
            known = min(max(max(miss, 1 - best + sign * UNIT), 0), 1 - x)
            assert abs(f[k] - known) <= 4 * UNIT * (size.max() if miss > 1 - best else 1)
            known = min(max(min(best, 1 - miss - sign * UNIT), x), 1)
            assert abs(power[k] - known) <= 8 * UNIT * max(known, 1 if 1 - miss < best else 0)


@pytest.mark.slow
def test_risks_carry_the_rounding_of_their_order():
    p, q = curve(5)
    prior = np.concatenate([np.random.default_rng(2).uniform(0.1, 0.9, 20), [1e-6, 1 - 1e-6]])
    epsilon = np.log1p(-Long(prior)) - np.log(Long(prior))
    truth = np.minimum(Long(prior), 1 - Long(prior)) - prior * excess(p, q, epsilon)
    for bound, sign in (("lower", 1),):
        found = np.asarray(bayes_risk(TradeOff(p, q, bound), prior))
        gamma = np.exp(epsilon)[:, None]
        counted = (np.where(gamma >= 1, p - gamma * q, gamma * q - p) > 0) * (p + gamma * q)
        of_curve = UNIT * ((4 + 2 * np.abs(epsilon)) * counted.sum(-1) + 7 * excess(p, q, epsilon))
        room = prior * (of_curve + 16 * UNIT * (1 + np.abs(epsilon)) + 4 * UNIT * excess(p, q, epsilon)) + 2 * UNIT
        inside = (found > 0) & (found < np.minimum(prior, 1 - prior))
        assert inside.sum() > 15
        allowed((sign * (truth - found))[inside], room[inside], 0.7, 1.3)


@pytest.mark.slow
def test_suprema_of_trade_off_curves_pay_for_their_hull():
    rows, alpha = [curve(seed) for seed in (0, 1)], np.linspace(0.05, 1.0, 20)
    error, vertical = 8 * (7 + 4) * UNIT, max(q[0] for _, q in rows)
    one, two = (TradeOff(*row) for row in rows)
    alone, both = supremum([one]), supremum([one, two])
    np.testing.assert_allclose(*(np.interp(alpha, *x.points()) for x in (alone, one)), atol=2e-13)
    allowed(both.widths[-1], error, 0.99, 1.01)
    allowed(both.drops[0] - vertical, error, 0.6, 1.4)
    # From the other side vertices go up and to the right.
    above = supremum([TradeOff(*row, "upper") for row in rows])
    assert above.drops[0] <= vertical - 0.9 * error or above.widths[0] >= 0.9 * error


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_arrays_that_no_curve_has_are_cut_to_what_one_may_have(bound, sign):
    grid = LossGrid(1.0, -2, 5)
    limit = np.exp(np.minimum(grid.losses, 0.0))
    wrong = np.array([np.nan, 2.0, -1.0, 7.0, np.nan])
    found = np.asarray(stored.profile(wrong, grid, bound).float64())
    nothing = limit if sign > 0 else np.zeros(5)
    known = np.where(~(wrong >= 0), nothing, np.clip(wrong, 0.0, limit))
    np.testing.assert_allclose(found, known, rtol=2e-12)
    # What a float32 program has rounded goes to its side, and not beyond.
    single = np.array([0.01, 0.1, 0.3, 0.2, 1e-3])
    found = np.asarray(PrivacyProfile(single.astype(np.float32), grid, bound).float64())
    wide = single.astype(np.float32).astype(float)
    np.testing.assert_allclose(found, wide * (1 + sign * 2.0**-23), rtol=1e-14)
    full = np.asarray(PrivacyProfile(limit.astype(np.float32), grid, bound).float64())
    assert np.all(full <= limit * (1 + 2e-12))
    at = np.array([np.nan, 0.5, -0.5])
    read = jax.jit(lambda at: PrivacyProfile(single, grid, bound).hockey_stick(at))
    assert np.asarray(read(at))[0] == (1.0 if sign > 0 else 0.0)
