"""Moves between grids and kinds of curves, on small numbers that a loop can follow."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.losses.curves import conversions
from jaxacct.mechanisms.pairs.one_parameter import delta_of

pytestmark = pytest.mark.usefixtures("in_float64")

EPS = 2.0**-52
GRID = LossGrid(0.5, -3, 7)
EXCESS = np.array([0.02, 0.05, 0.1, 0.2, 0.15, 0.12, 0.1])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
@pytest.mark.parametrize("to", [(-6, 12), (-2, 4), (-3, 7), (-5, 7), (0, 7), (-8, 9)])
def test_a_moved_curve_is_the_old_one_a_line_and_a_constant(bound, sign, to):
    to = LossGrid(0.5, *to)
    found = np.asarray(conversions.moved(jnp.asarray(EXCESS), GRID, to, bound))
    for value, k in zip(found, range(to.lowest, to.highest + 1), strict=True):
        truth = EXCESS[min(max(k, -3), 3) + 3]
        if k < -3:
            truth *= math.exp((k + 3) * 0.5)
            assert 6 * EPS <= sign * (value / truth - 1) / (1 + abs(k) * 0.5) <= 10 * EPS
            continue
        if bound == "lower" and k == to.lowest and to.lowest > -3:
            # Left of it the curve is a line to (0, 1), and the old one's slope at 0 is what is known.
            growth = (to.lowest + 3) * 0.5
            truth = min(truth, EXCESS[0] * math.exp(growth) * (1 - 8 * EPS * (1 + growth)))
        if bound == "lower" and k == to.highest and to.highest < 3:
            truth = min(EXCESS[-1], truth) if to.size > 1 else truth
        assert value == pytest.approx(truth, rel=2e-16)


def test_a_supremum_from_below_takes_the_piece_that_is_largest_in_the_middle():
    rng = np.random.default_rng(0)
    for members in (2, 3):
        family = rng.integers(0, 16, (members, 2, 6)) / 16
        found = np.asarray(conversions.supremum_excess(jnp.asarray(family), "lower"))
        np.testing.assert_array_equal(conversions.supremum_excess(jnp.asarray(family), "upper"), family.max(0))
        np.testing.assert_array_equal(conversions.supremum_excess(jnp.asarray(family), "point"), family.max(0))
        for row in range(2):
            best = [int(np.argmax(family[:, row, k] + family[:, row, k + 1])) for k in range(5)]
            for k in range(6):
                pieces = [family[best[c], row, k] for c in (k - 1, k) if 0 <= c < 5]
                assert found[row, k] == min(pieces)


def test_debts_of_masses_are_paid_by_larger_losses_in_turn():
    """Masses from below that came out negative: the next larger ones pay until nothing is owed."""
    grid = LossGrid(math.log(2), -2, 6)

    def excess_of(masses, infinite):
        return np.array([
            sum(m * max(1 - 2.0 ** (k - j), 0) for j, m in enumerate(masses)) + infinite
            - max(1 - 2.0 ** (k - 2), 0) for k in range(6)
        ])  # fmt: skip

    cases = [
        ([0.1, 0.2, 0.3, 0.2, 0.1, 0.05], 0.05),
        ([0.1, -0.05, 0.3, 0.2, 0.2, 0.15], 0.1),
        ([0.1, 0.3, -0.3, 0.2, 0.2, 0.3], 0.2),
        ([0.2, 0.2, 0.3, 0.3, -0.2, 0.1], 0.1),
    ]
    for masses, infinite in cases:
        curve = jnp.asarray(excess_of(masses, infinite))
        debt, paid = 0.0, []
        # The lowest mass is what makes the line to the left; that of the law itself is not known from a curve.
        made, above = (np.asarray(x) for x in conversions.masses_of_excess(curve, grid, "lower"))
        upper, same = (np.asarray(x) for x in conversions.masses_of_excess(curve, grid, "upper"))
        assert float(same) == float(curve[-1])
        np.testing.assert_allclose(upper[1:], np.maximum(masses[1:], 0), atol=1e-14)
        first = float(made[0])
        for m in masses[1:]:
            rest = m - debt
            debt = max(-rest, 0.0)
            paid.append(max(rest, 0.0))
        if first == 0 and all(p == 0 for p in made):
            assert infinite - debt < 0
            continue
        np.testing.assert_allclose(made[1:], paid, atol=1e-13)
        assert float(above) == pytest.approx(infinite - debt, abs=1e-13)


def test_arrays_that_cannot_pay_are_no_curve():
    """A debt of 1e-12 at most is rounding; beyond it nothing is known of the law."""
    grid = LossGrid(math.log(2), -2, 6)
    losses = np.arange(-2, 4)
    good = np.array([0.1, 0.2, 0.5, 0.25, 0.15, 0.1]) * np.array([0.25, 0.5, 1.0, 1.0, 1.0, 1.0])
    assert losses.size == good.size
    masses, infinite = conversions.masses_of_excess(jnp.asarray(good), grid, "lower")
    assert float(infinite) == pytest.approx(0.1, abs=1e-13)
    assert np.asarray(masses).max() > 0.1
    for below, known in ((-0.5e-12, True), (-2e-12, False), (-1.0, False)):
        # The curve ends below 0 by that much.
        masses, infinite = conversions.masses_of_excess(
            jnp.asarray(good - 0.1 * (np.arange(6) == 5) + below * (np.arange(6) == 5)), grid, "lower"
        )
        assert float(infinite) == 0.0
        assert bool(np.any(np.asarray(masses))) == known


def test_a_curve_of_one_parameter_is_rounded_up_by_its_exponential():
    found = np.asarray(delta_of(np.array([1.0, 3.0, 8.0]), 0.5, lambda p, e: -p - e))
    units = (found / np.exp(-np.array([1.5, 3.5, 8.5])) - 1) / EPS
    assert np.all((units >= 3) & (units <= 5.5))
