"""Curves moved between grids, laws and mechanisms: on their side everywhere, with the digits that they had."""

from fractions import Fraction as F

import jax
import numpy as np
import pytest

from jaxacct import PLD, LossGrid, PrivacyProfile, TradeOff, supremum
from tests import finite

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
    other = finite.compose(*[finite.randomized_response(3)] * 2)
    rows = [np.pad(finite.as_arrays(one), [(0, 0), (0, 16 - len(one))]) for one in (LAW, other)]
    single = supremum([TradeOff(*row) for row in rows])
    batched = supremum([TradeOff(*np.stack(pair, 1)) for pair in (rows, rows[::-1])])
    assert batched.widths.shape == (2, *single.widths.shape)
    for row in range(2):
        alone = TradeOff(batched.widths[row], batched.drops[row])
        np.testing.assert_allclose(alone.points(), single.points(), atol=1e-13)


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


@pytest.mark.parametrize(("loss", "held"), [(1.0, 0.5), (0.5, 0.7), (2.0, 0.3), (1.5, 0.05)])
def test_a_lower_curve_of_a_law_that_leaves_mass_out_is_below_the_truth_between_points(loss, held):
    """What is left out lies at one loss between two points of the grid, where the truth leaves the identity."""
    grid = LossGrid(0.5, -6, 13)
    masses = np.where(grid.losses == loss, held, 0.0)
    lower = PLD.from_masses(masses, grid, bound="lower")
    other = np.log1p(-held) - np.log1p(-held * np.exp(-loss))
    epsilon = np.linspace(-3.0, 3.0, 1201)
    stick = lambda mass, at: mass * np.maximum(-np.expm1(epsilon - at), 0.0)  # noqa: E731
    truth = stick(held, loss) + stick(1.0 - held, other)
    profile = PrivacyProfile.from_pld(lower)
    assert np.all(profile.hockey_stick(epsilon) <= truth)
    assert profile.hockey_stick(0.5) == pytest.approx(lower.hockey_stick(0.5), rel=1e-12)
