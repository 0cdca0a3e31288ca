"""Fewer segments, group by group, with roundings that are large enough to be seen."""

import math

import jax
import numpy as np
import pytest

from jaxacct.losses.curves import segments
from jaxacct.losses.curves.segments import Segments, product, sort

UNIT = 1e-7
_reduce = jax.jit(lambda given, size, leakier: segments.reduce.__wrapped__(given, size, leakier), static_argnums=(1, 2))


@pytest.fixture(autouse=True)
def _large_roundings(in_float64, monkeypatch):
    monkeypatch.setattr(segments, "EPS", UNIT)


def grouped(widths, drops, leakier, size):
    """Sorted segments and the group of each: so much mass and so many slopes at most, never on both sides of 1."""
    slope = [
        math.inf if not w else (-math.inf if not d else math.log(d / w)) for w, d in zip(widths, drops, strict=True)
    ]
    order = sorted(range(len(slope)), key=lambda i: -slope[i])
    rows = [(slope[i], widths[i], drops[i]) for i in order]
    inner = [s for s, *_ in rows if math.isfinite(s)]
    groups = (size // 2 if leakier else size) - 4
    by_mass = groups // 4
    by_slope = groups - by_mass - 1
    total, mass, found = sum(w + d for _, w, d in rows), 0.0, []
    for s, w, d in rows:
        mass += w + d
        if s == math.inf:
            key = 0
        elif s == -math.inf:
            key = by_mass + by_slope + 2
        else:
            position = (inner[0] - s) / ((inner[0] - inner[-1]) or 1.0)
            key = (
                1 + math.floor(min(mass / total, 1.0) * by_mass) + math.floor(position * (by_slope - 1) + 0.5) + (s < 0)
            )
        found.append((key, w, d))
    return found, by_mass + by_slope + 3


def experiment(seed, n=40):
    if not seed:  # all of one slope, and a flat one
        widths = np.repeat([1 / n, 0.1, 0.0], [n - 4, 1, 3])
        return widths, np.where(np.arange(n) < n - 4, widths / 2, 0.0)
    rng = np.random.default_rng(seed)
    widths, drops = rng.random(n) ** 3, rng.random(n) ** 3
    widths[3:5], drops[7] = 0.0, 0.0
    return widths / widths.sum(), drops / drops.sum()


@pytest.mark.parametrize("size", [16, 24])
def test_a_group_becomes_its_sum_rounded_down(size):
    for seed in range(4):
        widths, drops = experiment(seed)
        rows, total = grouped(widths, drops, False, size)
        expected = np.zeros((2, size))
        for key, w, d in rows:
            expected[:, key] += (w, d)
        assert total <= size
        found = _reduce(Segments(widths, drops), size, False)
        np.testing.assert_allclose(found, expected * (1 - 4 * 40 * UNIT), rtol=1e-12)


@pytest.mark.parametrize("size", [16, 30])
def test_a_group_becomes_the_tangents_at_its_ends(size):
    """Weight that rounding may have moved goes to the side that the hockey stick sees."""
    rounding, sides = 4 * 40 * UNIT, set()
    for seed in range(4):
        widths, drops = experiment(seed)
        rows, total = grouped(widths, drops, True, size)
        expected = [(0.0, sum(d for key, _, d in rows if key == 0) * (1 + rounding))]
        for key in range(1, total - 1):
            inside = [(w, d) for k, w, d in rows if k == key]
            if not inside:
                expected += [(0.0, 0.0)] * 2
                continue
            high = max(d / w for w, d in inside) * (1 + 2 * UNIT)
            low = min(d / w for w, d in inside) * (1 - 2 * UNIT)
            width, drop = (sum(x) * (1 + rounding) for x in zip(*inside, strict=True))
            shift = (2 * rounding * width + 16 * UNIT * (drop + low * width)) / (high - low)
            sides.add(high <= 1)
            if high <= 1:
                gentle = sum(max(high * w - d, 0.0) for w, d in inside) / (high - low)
                flat = min(gentle + shift, width)
                expected += [(width - flat, (width - flat) * high), (flat, flat * low)]
            else:
                steep = sum(max(d - low * w, 0.0) for w, d in inside) / (high - low)
                deep = min((steep + shift) * high, drop)
                expected += [(deep / high, deep), ((drop - deep) / low, drop - deep)]
        expected.append((sum(w for key, w, _ in rows if key == total - 1) * (1 + rounding), 0.0))
        found = np.asarray(_reduce(Segments(widths, drops), size, True)).T
        assert len(found) == size
        np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-9, atol=1e-12)
        assert not found[len(expected) :].any()
    assert sides == {True, False}


def test_few_segments_stay_as_they_are_but_for_their_order():
    widths, drops = np.array([0.2, 0.3, 0.0, 0.5, 0.0]), np.array([0.5, 0.3, 0.0, 0.1, 0.1])
    for leakier in (True, False):
        found = np.asarray(_reduce(Segments(widths, drops), 16, leakier))
        np.testing.assert_array_equal(found[:, :5], [[0.0, 0.2, 0.3, 0.5, 0.0], [0.1, 0.5, 0.3, 0.1, 0.0]])
        assert not found[:, 5:].any()
    ordered = sort(Segments(widths, drops))
    np.testing.assert_array_equal(ordered.widths, [0.0, 0.2, 0.3, 0.5, 0.0])


@pytest.mark.parametrize("leakier", [True, False])
def test_products_are_rounded_to_their_side_and_pay_for_underflow_alone(leakier):
    one, other = (
        (np.array([0.2, 0.8, 0.0]), np.array([0.7, 0.3, 0.0])),
        (np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0, 0.0])),
    )
    factor = 1 + (4 if leakier else -4) * UNIT
    widths, drops = (np.outer(a, b).ravel() * factor for a, b in zip(one, other, strict=True))
    found = product(Segments(*one), Segments(*other), leakier)
    if leakier:  # nothing has underflowed
        widths, drops = np.pad(widths, 1), np.pad(drops, 1)
    np.testing.assert_allclose(found, [widths, drops], rtol=1e-14, atol=0)
    if not leakier:
        return
    for k in range(2):  # a product of two masses below 1e-300 is charged at both ends
        tiny = [np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.5, 0.0])]
        tiny[k][0] = 1e-299
        small = (np.full(2, 1e-3), np.full(2, 1e-3))
        found = product(Segments(*tiny), Segments(*small), True)
        assert (found.widths[0], found.drops[0]) == (0.0, 1e-290)
        assert (found.widths[-1], found.drops[-1]) == (1e-290, 0.0)
