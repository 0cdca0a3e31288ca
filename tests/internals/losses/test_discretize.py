"""A step on a lattice, charge by charge: what tails that are badly off must cost, in 30 digits.

The pair's tails are off by thousandths, as much as they say, each edge by another share, and a rounding is said to
cost some millions of units: every margin is as visible as the mass that it is for. Lattices lie around the bulk, far
below and above it, and across the largest loss.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.scipy.stats import norm

from jaxacct.losses.grids import discretize
from jaxacct.losses.grids.discretize import step_masses
from jaxacct.mechanisms.pairs.base import Tails

EXACT = 2.0**-53
UNIT, ROUNDING = 2.0**-27, 2.0**-24  # what the formulas are told that a rounding costs
SIZE = 16
SPURIOUS = 0.125


@pytest.fixture(autouse=True)
def _large_roundings(in_float64, monkeypatch):
    monkeypatch.setattr(discretize, "UNIT", UNIT)
    monkeypatch.setattr(discretize, "ROUNDING", ROUNDING)


class Vague:
    """A Gaussian loss and an infinite one, of which the tails say that they are some thousandths off, and are."""

    def __init__(self, infinite):
        self.infinite, self.seen = infinite, []

    def tails(self, losses):
        error = 1e-3 * (1.5 + jnp.sin(7.0 * losses))
        finite = 1.0 - self.infinite
        off = [1.0 + error * jnp.sin(13.0 * losses + k) for k in range(4)]
        p_above = self.infinite + finite * norm.cdf(0.5 - losses)
        tails = p_above, finite * norm.cdf(losses - 0.5), norm.cdf(-0.5 - losses), norm.cdf(losses + 0.5)
        found = Tails(*(tail * share for tail, share in zip(tails, off, strict=True)), error)
        self.seen.append((losses, found))
        return found

    def infinity(self):
        return 0.9 * self.infinite


@jax.jit
def placed(infinite, spacing, lowest):
    """The step, the tails that it asked for, and what it made its masses from below of."""
    pair, given = Vague(infinite), []

    def below(*arguments):
        given.append(arguments)
        return arguments[0], jnp.asarray(SPURIOUS)

    step = step_masses(pair, spacing, lowest, SIZE, below)
    return step, pair.seen, given[0]


def exactly(x):
    return mpmath.mpf(float(x))


def cells(above, below, error):
    """Mass of every cell, from the smaller tails at its ends, and twice the larger of what those may be off by."""
    found = []
    for h in range(len(error) - 1):
        right = above[h] < below[h + 1]
        mass = above[h] - above[h + 1] if right else below[h + 1] - below[h]
        size = above[h] if right else below[h + 1]
        found.append((max(mass, mpmath.mpf(0)), 2 * size * max(error[h], error[h + 1])))
    return found


def agree(found, exact, units=16, size=0):
    """Equal but for roundings, ``units`` of the number itself or of what it is the difference of."""
    assert len(found) == len(exact)
    size = np.broadcast_to(np.array(size, object), len(exact))
    for one, truth, larger in zip(np.asarray(found), exact, size, strict=True):
        assert abs(exactly(one) - truth) <= EXACT * units * max(abs(truth), larger), (float(one), float(truth))


CASES = {
    "around the bulk": (0.03, 0.5, -7.0),
    "no infinite loss": (0.0, 0.5, -7.0),
    "below the bulk": (0.03, 0.25, -20.0),
    "above the bulk": (0.03, 0.25, 4.0),
    "wide": (0.0, 4.0, -10.0),
    "tiny": (0.03, 2.0**-30, -10.0),
    "as far as the largest loss": (0.03, 50.0, -2.0),
    "beyond the largest loss": (0.0, 80.0, -7.0),
    "Q underflows": (0.0, 30.0, -7.0),
}


@pytest.mark.parametrize("name", CASES)
@mpmath.workdps(30)
def test_a_step_is_charged_what_its_tails_may_hide_and_no_more(name):
    infinite, spacing, lowest = CASES[name]
    (step, seen, (chords, sums, width)) = jax.tree.map(np.asarray, placed(*(jnp.asarray(x) for x in CASES[name])))
    ((edges, tails),) = seen
    assert width == spacing
    np.testing.assert_array_equal(edges, (lowest + np.arange(2 * SIZE - 1) / 2) * spacing)
    at = [exactly(x) for x in edges[::2]]
    pa, pb, qa, qb, e = ([exactly(x) for x in array] for array in tails)
    p, q = cells(pa, pb, e), cells(qa, qb, e)
    gamma = [mpmath.exp(min(x, 650)) for x in at]
    gamma_off = [4 * UNIT * (1 + abs(x)) for x in at]
    cut = [x > 650 for x in at]
    kept = [not cut[k + 1] and qa[2 * k] > 1e-290 for k in range(SIZE - 1)]
    share = -mpmath.expm1(-exactly(spacing))

    points, bare, clipped, size = [0] * SIZE, [0] * SIZE, 0, [0] * SIZE
    expected, sizes = [], []
    points[0] = size[0] = pb[0]
    for k in range(SIZE - 1):
        (p1, p1_off), (p2, p2_off) = p[2 * k : 2 * k + 2]
        (q1, q1_off), (q2, q2_off) = q[2 * k : 2 * k + 2]
        difference, all_p = p1 + p2 - gamma[k] * (q1 + q2), p1 + p2
        slack = p1_off + p2_off + gamma[k] * (q1_off + q2_off + (q1 + q2) * gamma_off[k])
        up = min(max((difference + slack) / share * (1 + ROUNDING), 0), all_p)
        large = 0 if up in (0, all_p) else (all_p + gamma[k] * (q1 + q2)) / share
        points[k], points[k + 1] = points[k] + all_p - up, points[k + 1] + up
        size[k], size[k + 1] = max(size[k], large, all_p), max(large, all_p)
        up = min(max(difference / share, 0), all_p)
        if kept[k]:
            bare[k], bare[k + 1] = bare[k] + all_p - up, bare[k + 1] + up
            clipped += max(-difference, 0) / share
        right = [
            max(a - gamma[k] * b, 0) + a_off + gamma[k] * (b_off + b * gamma_off[k])
            for a, a_off, b, b_off in ((p1, p1_off, q1, q1_off), (p2, p2_off, q2, q2_off))
        ]
        left = [
            max(gamma[k + 1] * b - a, 0) + a_off + gamma[k + 1] * (b_off + b * gamma_off[k + 1])
            for a, a_off, b, b_off in ((p1, p1_off, q1, q1_off), (p2, p2_off, q2, q2_off))
        ]
        row = (right[0], left[1], sum(right), sum(left), p1, p2)
        expected.append(row if kept[k] else (0,) * 6)
        larger = (all_p + gamma[k + 1] * (q1 + q2)) * kept[k]
        sizes.append((larger,) * 4 + (all_p,) * 2)

    argument = 4 * max(float(abs(x)) for x in at)
    points = [x * (1 + e[2 * k] + ROUNDING) for k, x in enumerate(points)]
    agree(step.above, [0 if c else x for c, x in zip(cut, points, strict=True)], 16 + argument, size)
    never = sum(x for c, x in zip(cut, points, strict=True) if c) + pa[-1] * (1 + e[-1]) + mpmath.mpf(1e-290)
    agree([step.infinite_above], [never * (1 + mpmath.mpf(1e-9))], 100)
    agree([step.infinite_below], [0.9 * exactly(infinite)], 2)

    if kept[-1]:
        bare[-1] += max(pa[-1] - 0.9 * exactly(infinite), 0)
    lower = [x * (1 - e[2 * k] - ROUNDING) for k, x in enumerate(bare)]
    agree(chords, lower, 16 + argument, size)
    for name, given, truth, larger in zip(
        sums._fields, sums, zip(*expected, strict=True), zip(*sizes, strict=True), strict=True
    ):
        if "mass" in name:  # they only steer
            np.testing.assert_allclose(given, np.array(truth, float), rtol=1e-12, atol=1e-300)
        else:
            agree(given, truth, 16 + argument, larger)
    np.testing.assert_array_equal(step.below, chords)
    assert step.spurious == SPURIOUS
    agree([step.clipped], [clipped * (1 + mpmath.mpf(1e-9))], 64 + argument, clipped)
