"""What piecewise linear curves add for rounding is what they say, line by line; merged segments cost what they did."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from jaxacct import LossGrid
from jaxacct.losses.compare.enclose import excess_of_segments
from jaxacct.losses.curves import conversions, segments
from jaxacct.losses.curves.segments import Segments
from jaxacct.losses.grids.convex_envelope import infimum_excess
from tests.allowances import Long, allowed, needs_long_double
from tests.losses.test_segment_allowances import UNIT, curve, excess

pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]


def test_excess_of_segments():
    rng = np.random.default_rng(0)
    for seed in range(3):
        p, q = curve(seed)
        losses = np.concatenate([rng.uniform(-6, 6, 40), [-80.0, 80.0, 1e-9]])
        low, high = (np.asarray(x) for x in excess_of_segments(*map(jnp.asarray, (p, q, losses))))
        gamma, truth = np.exp(Long(losses))[:, None], excess(p, q, losses)
        counted = (np.where(gamma >= 1, p - gamma * q, gamma * q - p) > 0) * (p + gamma * q)
        room = UNIT * (4 + 2 * np.abs(losses)) * counted.sum(-1) + 7 * UNIT * truth
        allowed((high - truth), room, 0.7, 1.3)
        allowed((truth - low)[low > 0], room[low > 0], 0.7, 1.3)
        # At its own slope a segment may be on either side.
        own = np.log(p[1:-1]) - np.log(q[1:-1])
        low, high = (np.asarray(x) for x in excess_of_segments(*map(jnp.asarray, (p, q, np.resize(own, 43)))))
        assert np.all((low[:5] <= excess(p, q, own)) & (excess(p, q, own) <= high[:5]))
        assert np.all(
            high[:5] - low[:5] >= 2 * UNIT * 4 * (p + np.exp(own.repeat(7).reshape(5, 7)) * q)[range(5), range(1, 6)]
        )


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_chords_of_an_envelope(bound, sign):
    with mpmath.workdps(60):
        _chords_of_an_envelope(bound, sign)


def _chords_of_an_envelope(bound, sign):
    seen = 0
    """One row that is not convex: points between its hull's vertices lie on chords of H, which bends at gamma = 1."""
    for losses in (np.arange(-6.0, 7.0, 2.0), np.array([-40.0, -25.0, -10.0, 0.0, 10.0, 25.0, 40.0])):
        limit = np.exp(np.minimum(losses, 0.0))
        for row in (
            limit * np.array([0.3, 0.29, 0.292, 0.294, 0.28, 0.2, 0.01]),
            limit * np.array([0.1, 0.11, 0.9, 0.99, 0.9, 0.1, 0.0]),
            limit * np.array([0.1, 0.2, 0.21, 0.12, 0.11, 0.13, 0.001]),
        ):
            found = np.asarray(infimum_excess(jnp.asarray(row)[None], jnp.asarray(losses), bound))
            x = [mpmath.mpf(0), *(mpmath.exp(float(v)) for v in losses)]
            y = [mpmath.mpf(0), *(mpmath.mpf(float(v)) for v in row)]
            h = [v + max(1 - u, 0) for u, v in zip(x, y, strict=True)]
            hull = [0]
            for k in range(1, 8):
                while len(hull) > 1 and (h[hull[-1]] - h[hull[-2]]) * (x[k] - x[hull[-1]]) >= (h[k] - h[hull[-1]]) * (
                    x[hull[-1]] - x[hull[-2]]
                ):
                    hull.pop()
                hull.append(k)
            dropped = [k for k in range(1, 8) if k not in hull]
            kept = [k - 1 for k in hull[1:]]
            np.testing.assert_array_equal(found[kept], row[kept])
            seen += len(dropped)
            for k in dropped:
                a, c = max(v for v in hull if v < k), min(v for v in hull if v > k)
                t = (x[k] - x[a]) / (x[c] - x[a])
                truth = h[a] + t * (h[c] - h[a]) - max(1 - x[k], 0)
                straddles = (a == 0 and losses[c - 1] > 0) or (a > 0 and losses[a - 1] < 0 < losses[c - 1])
                room = 16 * UNIT * (1 + abs(losses[k - 1] - losses[c - 1])) * (max(y[a], y[c]) + straddles)
                gap = sign * (found[k - 1] - truth)
                if 0 < found[k - 1] < (row[k - 1] if sign < 0 else 2):
                    allowed(gap, room, 0.7, 1.3)
                assert gap >= 0
    assert seen > 8


@pytest.mark.parametrize(
    ("size", "leakier", "worst", "mean"),
    [(64, True, 0.0159, 0.00227), pytest.param(64, False, 0.00229, 0.000177, marks=pytest.mark.slow)],
)
def test_merging_the_segments_of_a_gaussian_costs_no_more_than_it_did(size, leakier, worst, mean):
    """1,600 pieces of G_1 in groups of mass and of slope: the cost in units of the root of gamma (or of 1)."""
    z = np.linspace(-8, 8, 1601)
    q, p = (np.diff(norm.cdf(z - mu)) for mu in (0.0, 1.0))
    p, q, losses = p / p.sum(), q / q.sum(), np.linspace(-6, 6, 241)
    found = [np.asarray(x) for x in segments.reduce(Segments(jnp.asarray(p), jnp.asarray(q)), size, leakier)]
    gap = (excess(*found, losses) - excess(p, q, losses)) * (1 if leakier else -1) / np.exp(np.minimum(losses, 0) / 2)
    assert gap.min() >= 0
    assert gap.max() <= 1.2 * worst
    assert gap.mean() <= 1.2 * mean
    assert np.count_nonzero(found[0] + found[1]) >= 0.8 * size


def test_curves_of_a_law_at_its_word_are_rounded_once():
    """Nothing but the law's own reading is between a batch of laws and their curves."""
    grid = LossGrid(0.5, -6, 13)
    rng = np.random.default_rng(3)
    masses = rng.dirichlet(np.ones(9), (2, 3)) * np.exp(np.arange(-4, 5) * 0.5)  # so that E[exp(-L)] is below 1
    masses *= 0.99 / masses.sum(-1, keepdims=True)
    law = conversions.PLD(masses, np.full((2, 3), 0.01), LossGrid(0.5, -4, 9))
    losses = np.arange(-4, 5) * 0.5
    below = np.asarray(conversions.pld_excess(law, grid, literal="lower"))
    at = Long(grid.losses)[:, None]
    truth = (masses[..., None, :] * -np.expm1(np.minimum(at - losses, 0))).sum(-1) + 0.01
    truth = truth - np.maximum(-np.expm1(at[:, 0]), 0)
    assert below.shape == truth.shape
    inner = slice(3, -1)
    assert np.all((below <= truth)[..., inner])
    np.testing.assert_allclose(below[..., inner], truth[..., inner], atol=3e-14)
    assert conversions.grid_of_pld(LossGrid(1.0, 3, 4)) == LossGrid(1.0, -1, 8)
    assert conversions.grid_of_pld(LossGrid(1.0, -9, 4)) == LossGrid(1.0, -9, 11)
    assert conversions.grid_of_pld(LossGrid(1.0, -1000, 3000)) == LossGrid(1.0, -650, 1301)
