"""Curves moved between grids, laws and mechanisms: on their side everywhere, with the digits that they had."""

from fractions import Fraction as F

import jax
import numpy as np
import pytest

from jaxacct import PLD, LossGrid, PrivacyProfile, TradeOff, supremum
from jaxacct.losses.curves import trade_off as tradeoff
from tests import finite, stored

pytestmark = pytest.mark.usefixtures("in_float64")

UNIT = np.log(2.0)
LAW = finite.compose(finite.randomized_response(2), finite.randomized_response(4), finite.failing("1/10"))
GRID = LossGrid(UNIT, -4, 9)


def excess(losses, law=LAW):
    """H - (1 - gamma)_+ from positive terms."""
    gammas = [F(float(np.exp(e))) for e in np.ravel(losses)]
    found = [sum(max(g * q - p if g < 1 else p - g * q, 0) for p, q in law) for g in gammas]
    return np.reshape(np.array(found, float), np.shape(losses))


def test_suprema_of_batches_of_trade_off_curves_are_those_of_their_rows():
    rows = [
        finite.as_arrays(one)
        for one in (LAW, finite.compose(finite.randomized_response(3), finite.randomized_response(3)))
    ]
    size = max(len(w) for w, _ in rows)
    pad = lambda x: np.pad(x, (0, size - len(x)))  # noqa: E731
    one, other = (TradeOff(pad(w), pad(d)) for w, d in rows)
    single = supremum([one, other])
    batched = supremum(
        [
            TradeOff(*(np.stack([a, b]) for a, b in zip((x.widths, x.drops), (y.widths, y.drops), strict=True)))
            for x, y in ((one, other), (other, one))
        ]
    )
    assert batched.widths.shape == (2, *single.widths.shape)
    for row in range(2):
        alone = TradeOff(batched.widths[row], batched.drops[row])
        np.testing.assert_allclose(alone.points(), single.points(), atol=1e-13)


def test_what_is_not_a_number_is_read_to_the_safe_side():
    for bound, first in (("lower", [1.0, 0.0]), ("upper", [0.0, 1.0])):
        for broken in ([np.nan, 0.5], [0.5, np.nan]):
            widths, drops = tradeoff.arrays(stored.trade_off(np.array(broken), np.array([0.5, 0.5]), bound))
            again = tradeoff.arrays(stored.trade_off(np.array([0.5, 0.5]), np.array(broken), bound))
            for w, d in ((widths, drops), again):
                np.testing.assert_array_equal(w, [0.0, 1.0])
                np.testing.assert_array_equal(d, first)
    batch = stored.trade_off(np.array([[0.5, 0.5], [np.nan, 1.0]]), np.full((2, 2), 0.5))
    widths, drops = tradeoff.arrays(batch)
    np.testing.assert_array_equal(widths, [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_array_equal(drops, [[0.5, 0.5], [1.0, 0.0]])


def test_a_lower_curve_claims_nothing_at_what_is_no_epsilon():
    curve = PrivacyProfile(excess(GRID.losses), GRID, "lower")
    found = jax.jit(lambda at: curve.hockey_stick(at))(np.array([np.nan, 0.0]))
    assert found[0] == 0
    assert found[1] > 0.6


def test_laws_of_two_points_compose_to_three_and_infinity_stays_below_1():
    grid = LossGrid(1.0, 0, 2)
    for bound, sign in (("upper", 1), ("lower", -1)):
        one, other = (
            PLD(np.array([0.2, 0.7]), np.array(0.1), grid, bound),
            PLD(np.array([0.5, 0.3]), np.array(0.2), grid, bound),
        )
        found = one.compose(other)
        truth = np.array([0.1, 0.41, 0.21])
        assert np.all(sign * (found.masses[:3] - truth) >= -1e-16)
        np.testing.assert_allclose(found.masses, np.append(truth, np.zeros(found.grid.size - 3)), atol=1e-13)
        assert found.grid == LossGrid(1.0, 0, 4)
        assert 0 <= sign * (found.infinity_mass - 0.28) <= 1e-12
        assert PLD(np.zeros(2), np.array(1.0), grid, bound).compose(other).infinity_mass <= 1


def test_float32_arrays_are_widened_to_their_side():
    given = np.array([0.1, 0.3, 0.6]), np.array([0.6, 0.3, 0.1])
    for bound, sign in (("lower", 1), ("upper", -1)):
        w, d = (np.asarray(x) for x in tradeoff.arrays(TradeOff(*(x.astype(np.float32) for x in given), bound)))
        for gamma in (0.25, 0.5, 0.99):
            found, truth = (np.maximum(gamma * b - a, 0).sum() for a, b in ((w, d), given))
            assert sign * (found - truth) >= 0
        for gamma in (1.0, 1.01, 2.0, 4.0):
            found, truth = (np.maximum(a - gamma * b, 0).sum() for a, b in ((w[1:], d[1:]), [x[1:] for x in given]))
            assert sign * (found - truth) >= 0
        np.testing.assert_allclose([w[-3:], d[-3:]], given, rtol=3e-7)
        # What the drop of the middle one may have had more, in a segment of its own.
        np.testing.assert_allclose([w[:-3], d[:-3]], [[0.0], [0.3 * 2.0**-22]] if sign > 0 else [[], []], rtol=1e-6)
    exact = tradeoff.arrays(TradeOff(*given))
    np.testing.assert_array_equal(exact, given)
    padded = tradeoff.padded(TradeOff(np.ones((2, 33)) / 33, np.ones((2, 33)) / 33))
    assert padded[0].shape == padded[1].shape == (2, 64)
    assert tradeoff.padded(TradeOff(*given))[0].shape == (32,)
    assert float(padded[0].sum()) == pytest.approx(2.0)
