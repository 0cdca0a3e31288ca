"""A step on a lattice, charge by charge: what tails that are badly off must cost, in 30 digits.

The pair's tails are off by thousandths, as much as they say, each edge by another share, and a rounding is said to
cost some millions of units: every margin is as visible as the mass that it is for. Lattices lie around the bulk, far
from where they are counted, and across each limit.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.scipy.stats import norm

from jaxacct.losses import discretize
from jaxacct.losses.discretize import lattice_origin, pattern, step_masses
from jaxacct.mechanisms._pair import Tails

EXACT = 2.0**-53
UNIT, ROUNDING = 2.0**-27, 2.0**-24  # what the formulas are told that a rounding costs
SIZE, CENTRE, NEAR = 24, 10, 4
INDEX = [0, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 22, 23]  # all points within 4, two cells of 2, one of 4
INNER = 2 * (len(INDEX) - 1)
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


@functools.partial(jax.jit, static_argnames="lift")
def placed(infinite, theta, normaliser, origin, spacing, lowest, cutoff, **lift):
    """The step, the tails that it asked for, and what it made its masses from below of."""
    pair, given = Vague(infinite), []

    def below(*arguments):
        given.append(arguments)
        return arguments[0], jnp.asarray(SPURIOUS)

    step = step_masses(
        pair, theta, normaliser, origin, spacing, lowest, SIZE, CENTRE, NEAR, cutoff, **lift, below=below
    )
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


FAR = 2.0**12
CASES = {
    "tilted": (0.03, 1.7, 0.4, 0.0, 0.5, -10.0, np.inf, False),
    "lifted": (0.03, 0.3, 40.0, 0.0, 0.5, -10.0, np.inf, True),
    "plain": (0.0, 0.0, 0.0, 0.0, 0.5, -10.0, np.inf, False),
    "counted from far away": (0.03, 0.125, -0.1, FAR / 2, 0.5, -10.0 - FAR, np.inf, False),
    "below the bulk": (0.03, 0.5, -300.0, 0.0, 0.25, -20.0, np.inf, True),
    "above the bulk": (0.03, 0.5, 300.0, 0.25, 0.25, -4.0, np.inf, False),
    "wide": (0.0, 0.5, 1.0, 0.0, 4.0, -10.0, np.inf, False),
    "cut at a point": (0.03, 1.7, 0.4, 0.0, 0.5, -10.0, 1.0, False),
    "cut before the top": (0.03, 1.7, 0.4, 0.0, 0.5, -10.0, 5.0, False),
    "tiny": (0.03, 0.5, 0.1, 0.5, 2.0**-30, -10.0, np.inf, False),
    "tilted to the limit": (0.03, 2.0, 0.0, 0.0, 50.0, -10.0, np.inf, True),
    "as far as the largest loss": (0.03, 0.5, 0.0, 0.0, 50.0, -10.0, np.inf, False),
    "beyond the largest loss": (0.0, 0.5, 0.0, 0.0, 80.0, -10.0, np.inf, False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_charged_what_its_tails_may_hide_and_no_more(name):
    *numbers, lift = CASES[name]
    found = placed(*(jnp.asarray(x) for x in numbers), **({"lift": True} if lift else {}))
    _charged(found, *numbers, lift)
    if name == "tilted":  # cut at an end of a cell beyond the lattice: that cell may still be weighed
        numbers[-1] = float(found[1][0][0][INNER + 6])
        _charged(placed(*(jnp.asarray(x) for x in numbers), **({"lift": True} if lift else {})), *numbers, lift)


@mpmath.workdps(30)
def _charged(found, infinite, theta, normaliser, origin, spacing, lowest, cutoff, lift):
    (step, seen, (chords, sums, widths, tilt)) = jax.tree.map(np.asarray, found)
    edges, tails = seen[0]
    at = [exactly(x) for x in edges[: INNER + 1 : 2]]
    away = [(exactly(lowest) + i) * exactly(spacing) for i in INDEX]
    rounded = [abs(exactly(origin)) + abs(x) for x in away]
    for k, x in enumerate(away):
        assert abs(at[k] - x - origin) <= 2 * EXACT * rounded[k]
    assert float(tilt) == theta
    np.testing.assert_allclose(widths, np.diff(INDEX) * spacing, rtol=1e-14)
    np.testing.assert_allclose(edges[1:INNER:2], [float((a + b) / 2) for a, b in itertools.pairwise(at)], atol=1e-4)
    w = [exactly(x) for x in widths]
    reach = np.cumsum(1.15 ** np.arange(160)) * 0.01 * SIZE * spacing
    np.testing.assert_allclose(edges[INNER + 1 :], np.minimum(edges[INNER] + reach, 650.0), rtol=1e-14)
    pa, pb, qa, qb, e = ([exactly(x) for x in array] for array in tails)
    p, q = cells(pa, pb, e), cells(qa, qb, e)

    weight = [mpmath.exp(min(theta * x - normaliser, 600)) for x in at]
    weight_off = [8 * UNIT * (4 + theta * r + abs(normaliser)) for r in rounded]
    gamma = [mpmath.exp(min(x, 650)) for x in at]
    gamma_off = [4 * UNIT * (1 + r) for r in rounded]
    late = [k > 0 and at[k - 1] > cutoff for k in range(len(at))]
    cut = [late[k] or theta * x - normaliser > 600 or x > 650 for k, x in enumerate(at)]
    kept = [not cut[k + 1] and qa[2 * k] > 1e-290 for k in range(len(w))]

    points, bare, clipped, size = [0] * len(at), [0] * len(at), 0, [0] * len(at)
    expected, sizes = [], []
    points[0] = size[0] = pb[0] if lift else mpmath.mpf(0)
    for k, width in enumerate(w):
        (p1, p1_off), (p2, p2_off) = p[2 * k : 2 * k + 2]
        (q1, q1_off), (q2, q2_off) = q[2 * k : 2 * k + 2]
        share = -mpmath.expm1(-width)
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
        low, high = (weight[j] * (1 + weight_off[j]) for j in (k, k + 1))
        row = (right[0] * low, left[1] * high, sum(right) * low, sum(left) * high, p1 * low, p2 * low)
        expected.append(row if kept[k] else (0,) * 6)
        larger = (all_p + gamma[k + 1] * (q1 + q2)) * kept[k]
        sizes.append((larger * low, larger * high) * 2 + (all_p * low,) * 2)

    argument = 4 * max(float(theta * abs(x) + abs(normaliser)) for x in at)
    points = [x * (1 + e[2 * k] + ROUNDING) for k, x in enumerate(points)]
    above = [0 if c else x * m * (1 + off) for c, x, m, off in zip(cut, points, weight, weight_off, strict=True)]
    size = [x * m for x, m in zip(size, weight, strict=True)]
    off_points = np.delete(step.above, INDEX)
    assert np.all(off_points == 0)
    agree(step.above[INDEX], above, 16 + argument, size)

    # Beyond the top, and below the bottom: at the upper end, or infinite.
    lost, never = mpmath.mpf(0), sum(x for c, x in zip(cut, points, strict=True) if c) + mpmath.mpf(1e-290)
    for h in range(INNER, len(p)):
        mass, end = p[h][0] * (1 + e[h] + ROUNDING), exactly(edges[h + 1])
        if pa[h] > 1e-290 and theta * end - normaliser < 600 and end <= cutoff:
            lost += mass * mpmath.exp(theta * end - normaliser)
        else:
            never += mass
    never += pa[-1] * (1 + e[-1])
    above_top, lost = lost, lost * (1 + mpmath.mpf(1e-9))
    if not lift:
        heights, low = seen[1]
        assert heights[0] == edges[0]
        np.testing.assert_allclose(heights[1:], np.maximum(edges[0] - reach, -650.0), rtol=1e-14)
        under, off = [exactly(x) for x in low.p_below] + [0], [exactly(x) for x in low.error] + [0]
        for j, height in enumerate(heights):
            mass = max(under[j] - under[j + 1], 0) + 2 * under[j] * max(off[j], off[j + 1])
            lost += mass * (1 + ROUNDING) * mpmath.exp(theta * exactly(height) - normaliser) * (1 + mpmath.mpf(1e-9))
    assert lost >= above_top
    agree([step.lost], [lost], 400 + 700 * 2 * theta + abs(normaliser) * 4)
    agree([step.infinite_above], [never * (1 + mpmath.mpf(1e-9))], 100)
    agree([step.infinite_below], [0.9 * exactly(infinite)], 2)

    if kept[-1]:
        bare[-1] += max(pa[INNER] - 0.9 * exactly(infinite), 0)
    room = [1 - e[2 * k] - ROUNDING for k in range(len(at))]
    lower = [x * r * m * (1 - off) for x, r, m, off in zip(bare, room, weight, weight_off, strict=True)]
    agree(chords, lower, 16 + argument, size)
    for name, given, truth, larger in zip(
        sums._fields, sums, zip(*expected, strict=True), zip(*sizes, strict=True), strict=True
    ):
        if "mass" in name:  # they only steer
            np.testing.assert_allclose(given, np.array(truth, float), rtol=1e-12, atol=1e-300)
        else:
            agree(given, truth, 16 + argument, larger)
    agree(step.below[INDEX], [exactly(x) for x in chords], 0)
    assert step.below.sum() == pytest.approx(chords.sum(), rel=1e-14)
    assert step.spurious == SPURIOUS
    agree([step.clipped], [clipped * (1 + mpmath.mpf(1e-9))], 64, clipped)


def test_cells_double_in_width_with_their_distance():
    assert pattern(SIZE, CENTRE, NEAR).tolist() == INDEX
    side = [*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80]
    expected = [0, *(70 - s for s in side[::-1] if s < 70), 70, *(70 + s for s in side if s < 80), 149]
    assert pattern(150, 70, 8).tolist() == expected
    assert pattern(8, 2, 8).tolist() == list(range(8))


class Anchored(Vague):
    def __init__(self, anchor, period=0.0, q=None):
        super().__init__(jnp.asarray(0.0))
        self.anchor, self.period, self.q = anchor, period, q

    def anchors(self):
        return jnp.asarray(self.anchor), jnp.asarray(self.period)

    def tails(self, losses):
        found = super().tails(losses)
        return found if self.q is None else found._replace(q_above=self.q + 0 * losses, q_below=1 - self.q + 0 * losses)


_moved = jax.jit(lambda *given: lattice_origin(Anchored(*given), jnp.asarray(0.3), jnp.asarray(0.25), 8))
_tails = jax.jit(lambda ends: Vague(0.0).tails(ends))


@pytest.mark.parametrize(
    ("anchor", "cell"), [(0.0, 0.25), (2.1, 0.25), (2.5, 0.5), (-3.6, 0.5), (-3.9, 1.0), (8.2, 1.0), (8.4, 2.0)]
)
def test_the_point_in_a_spike_is_its_barycentre(anchor, cell):
    """Three times log(p / r) of the cell around the point, which is as wide as the pattern's cell there."""
    found = float(_moved(anchor, 0.0))
    point = anchor
    for _ in range(3):
        ends = jnp.asarray([point - cell / 2, point + cell / 2])
        tails = _tails(ends)
        right = [np.asarray(x)[0] < np.asarray(y)[1] for x, y in (tails[:2], tails[2:4])]
        p = -np.diff(tails.p_above) if right[0] else np.diff(tails.p_below)
        q = -np.diff(tails.q_above) if right[1] else np.diff(tails.q_below)
        nearer = np.clip(np.log(max(p[0], 0)) - np.log(max(q[0], 0)), *np.asarray(ends)) if p[0] > 0 < q[0] else point
        point = float(nearer)
    assert found == pytest.approx(point, rel=1e-9, abs=1e-9)
    assert float(_moved(anchor, 0.3)) == anchor


def test_a_point_around_which_nothing_lies_stays():
    class Nothing(Anchored):
        def tails(self, losses):
            found = super().tails(losses)
            return found._replace(p_above=0.2 + 0 * losses, p_below=0.8 + 0 * losses)

    assert float(jax.jit(lambda x: lattice_origin(Nothing(1.3, q=x), x, x, 4))(0.3)) == 1.3
