"""Pieces of trade-off curves, on small numbers that a loop can follow."""

import math
from fractions import Fraction as F

import jax
import numpy as np
import pytest

from jaxacct import LossGrid, PrivacyProfile, TradeOff
from jaxacct.losses.curves import trade_off as tradeoff

pytestmark = pytest.mark.usefixtures("in_float64")

EPS = 2.0**-52
ALPHA, BETA = np.array([0.0, 0.1, 0.3, 0.6, 1.0]), np.array([0.8, 0.5, 0.2, 0.05, 0.0])


@pytest.fixture(scope="module")
def read():
    """A traced curve through points, by its segments: what fails closed is one outcome, or two disjoint ones."""
    return jax.jit(lambda a, b, bound: TradeOff.from_points(a, b, bound), static_argnums=2)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_traced_points_with_one_mistake_anywhere_fail_closed(read, bound):
    good = read(ALPHA, BETA, bound)
    np.testing.assert_allclose(good.widths, [0.0, 0.1, 0.2, 0.3, 0.4], atol=1e-15)
    np.testing.assert_allclose(good.drops, [0.2, 0.3, 0.3, 0.15, 0.05], atol=1e-15)
    mistakes = []
    for k in range(1, 4):
        # A vertex above the line between its neighbours, below the next one, or left of the one before.
        line = np.interp(ALPHA[k], ALPHA[[k - 1, k + 1]], BETA[[k - 1, k + 1]])
        mistakes.append((ALPHA, np.where(np.arange(5) == k, line + 1e-3, BETA)))
        mistakes.append((ALPHA, np.where(np.arange(5) == k, BETA[k + 1] - 1e-3, BETA)))
        mistakes.append((np.where(np.arange(5) == k, ALPHA[k - 1] - 1e-3, ALPHA), BETA))
        mistakes.append((np.where(np.arange(5) == k, math.nan, ALPHA), BETA))
        mistakes.append((ALPHA, np.where(np.arange(5) == k, math.nan, BETA)))
    first, last = np.array([1.0, 0, 0, 0, 0]), np.array([0, 0, 0, 0, 1.0])
    mistakes += [(ALPHA, BETA + 0.3 * first), (ALPHA, BETA + 1e-8 * last), (ALPHA * (1 - 1e-8), BETA)]
    mistakes += [(ALPHA * (1 - 0.7e-9), BETA + 0.7e-9 * last)]
    for alpha, beta in mistakes:
        found = read(alpha, beta, bound)
        nothing = ([0, 0, 0, 0, 1], [1, 0, 0, 0, 0]) if bound == "lower" else ([1, 0, 0, 0, 0],) * 2
        np.testing.assert_array_equal([found.widths, found.drops], nothing)


def test_traced_points_may_be_off_by_rounding(read):
    """A bend by 1e-9 of a product of two pieces, ends off by 1e-9 together, a rise by 1e-14."""
    for bend, refused in ((0.4e-9, False), (0.6e-9, True)):
        # Equal pieces of 1/4: the cross product is off by a quarter of twice the bend.
        beta = np.linspace(0.5, 0.0, 5)
        beta[2] += bend * 4
        found = read(np.linspace(0.0, 1.0, 5), beta, "lower")
        assert (found.widths[0] == 0 and found.widths[-1] == 1) == refused
    for off, refused in ((0.4e-9, False), (0.6e-9, True)):
        found = read(ALPHA * (1 - off), BETA + off * (np.arange(5) == 4), "lower")
        assert (found.widths[-1] == 1) == refused
    for rise, refused in ((0.5e-14, False), (1e-13, True)):
        beta = np.array([0.5, 0.25, 0.0, rise, 0.0])
        found = read(np.array([0.0, 0.25, 0.5, 0.75, 1.0]), beta, "lower")
        assert (found.widths[-1] == 1) == refused
        assert np.all(np.asarray(found.drops) >= 0)


def test_a_batch_of_points_is_judged_row_by_row(read):
    bad = np.where(np.arange(5) == 2, 0.9, BETA)
    found = read(np.stack([ALPHA, ALPHA, ALPHA]), np.stack([BETA, bad, BETA + 1e-8 * (np.arange(5) == 4)]), "lower")
    np.testing.assert_allclose(found.widths[0], [0.0, 0.1, 0.2, 0.3, 0.4], atol=1e-15)
    np.testing.assert_array_equal(found.widths[1:], [[0, 0, 0, 0, 1]] * 2)


def test_sizes_of_products():
    one = TradeOff(np.full(3, 1 / 3), np.full(3, 1 / 3))
    assert one.compose(one).widths.shape == (11,)
    for bound, room in (("lower", 11), ("upper", 9)):
        curve = TradeOff(one.widths, one.drops, bound)
        with pytest.raises(ValueError, match="size must be at least 16"):
            curve.compose(curve, size=room - 1)
        with pytest.raises(ValueError, match=f"size must be at most {2**24} or the {room}"):
            curve.compose(curve, size=2**24 + 1)
    long = TradeOff(np.full(40, 1 / 40), np.full(40, 1 / 40))
    with pytest.raises(ValueError, match="size must be at least 16, got 15"):
        long.compose(one, size=15)


def test_curves_of_many_sizes_share_a_few():
    for n, size in ((32, 32), (33, 64)):
        widths, drops = tradeoff.padded(TradeOff(np.full((2, n), 1 / n), np.full((2, n), 1 / n)))
        assert widths.shape == drops.shape == (2, size)
        np.testing.assert_array_equal(widths[:, n:], 0.0)
        np.testing.assert_array_equal(drops[:, :n], 1 / n)


def test_vertices_are_sums_of_segments():
    curve = TradeOff(np.array([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0]]), np.array([[0.5, 0.375, 0.125], [0.75, 0.25, 0.0]]))
    alpha, beta = curve.points()
    np.testing.assert_array_equal(alpha, [[0.0, 0.25, 1.0], [0.5, 1.0, 1.0]])
    np.testing.assert_array_equal(beta, [[0.5, 0.125, 0.0], [0.25, 0.0, 0.0]])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_a_profiles_atoms_become_segments_that_are_rounded_to_its_side(bound, sign):
    grid = LossGrid(20.0, -3, 7)
    losses = grid.losses
    masses = np.array([0.05, 0.1, 0.2, 0.2, 0.2, 0.1, 0.05])
    excess = np.array(
        [sum(m * max(-math.expm1(e - x), 0) for m, x in zip(masses, losses, strict=True)) + 0.1 for e in losses]
    )
    excess = excess - np.maximum(-np.expm1(losses), 0)
    excess = np.maximum(excess, 1e-30) * np.exp(np.minimum(losses, 0)) ** 0
    profile = PrivacyProfile(excess, grid, bound)
    found, law = TradeOff.from_profile(profile), profile.to_pld()
    assert found.bound == ("lower" if bound == "upper" else "upper")
    assert found.widths.shape == (9,)
    assert found.widths[0] == found.drops[-1] == 0.0
    assert found.widths[-1] == law.infinity_mass
    units = lambda value, truth, x: (F(float(value)) / F(float(truth)) - 1) / F(EPS) / F(float(1 + abs(x)))  # noqa: E731
    for k, x in enumerate(losses):
        if law.masses[k] > 1e-300:
            assert 7 <= sign * units(found.widths[k + 1], law.masses[k], x) <= 9
            assert 6.5 <= sign * units(found.drops[k + 1], law.masses[k] * math.exp(-x), x) <= 9.5
    assert 6.5 <= sign * units(found.drops[0], excess[0] * math.exp(60.0), 60.0) <= 9.5
