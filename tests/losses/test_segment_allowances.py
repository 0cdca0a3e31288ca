"""What piecewise linear curves add for rounding is what they say, line by line; merged segments cost what they did."""

import jax
import numpy as np
import pytest

from jaxacct import LossGrid, PrivacyProfile, TradeOff
from tests import stored
from tests.allowances import Long, needs_long_double

UNIT = 2.0**-52
pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]


def curve(seed, count=7):
    """A vertical piece, slopes on both sides of 1, a flat piece."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.ones(count))
    p = q * np.exp(np.sort(rng.normal(0, 2.5, count)))
    p[0] = q[-1] = 0.0
    return p / p.sum(), q / q.sum()


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
