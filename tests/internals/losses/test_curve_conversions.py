"""Curves moved between grids, laws and mechanisms: on their side everywhere, with the digits that they had."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct import PLD, LossGrid, PrivacyProfile, supremum
from jaxacct.losses.compare.enclose import enclose
from jaxacct.losses.compare.gaussian_order import _dominated_one
from jaxacct.losses.curves import conversions
from tests import finite, stored
from tests.losses.test_curve_conversions import GRID, LAW, UNIT, excess

pytestmark = pytest.mark.usefixtures("in_float64")

BETWEEN = np.array([0.2, 0.5, 0.9])[:, None]


def everywhere(values, losses):
    """Losses inside all cells and beyond both ends, and the piecewise linear curve there."""
    at = losses[:-1] + BETWEEN * np.diff(losses)
    share = np.expm1(at - losses[:-1]) / np.expm1(np.diff(losses))
    inner = values[..., None, :-1] * (1 - share) + values[..., None, 1:] * share
    left, right = losses[0] - BETWEEN, losses[-1] + BETWEEN
    ends = [values[..., :1, None] * np.exp(left - losses[0]), values[..., -1:, None] * np.ones_like(right)]
    return np.concatenate([left, at, right], 1), np.concatenate([ends[0], inner, ends[1]], -1)


def _pld(bound):
    masses = np.zeros(9)
    for p, q in LAW:
        if p and q:
            masses[round(np.log(float(p / q)) / UNIT) + 4] += float(p)
    return PLD(masses, np.float64(0.1), GRID, bound)


def test_far_to_the_left_the_last_unit_of_the_identity_is_all_there_is():
    # At gamma = e^-50 the curve of an atom at infinity is 1, as 1 - gamma is in floats; the excess is gamma.
    grid, infinity = LossGrid(1.0, -60, 121), np.array([1.0, 0.5, 1e-9, 0.0])
    masses = np.zeros((4, 121))
    masses[:, 60] = 1.0 - infinity
    truth = infinity[:, None] * np.exp(np.minimum(grid.losses, 0.0))
    for literal in (None, "upper", "lower"):
        for bound in ("upper", "lower"):
            found = np.asarray(conversions.pld_excess(PLD(masses, infinity, grid, bound), grid, literal))
            if (literal or bound) == "upper":
                assert np.all(found >= truth * (1 - 1e-15))
                assert np.all(found <= truth + 2e-13)
            else:
                assert np.all(found <= truth * (1 + 1e-15))
                assert np.all(found[:, 1:] >= truth[:, 1:] - 2e-13)


@pytest.mark.parametrize("to", [LossGrid(UNIT, -6, 13), LossGrid(UNIT, -2, 5)], ids=["longer", "shorter"])
def test_a_law_at_its_word_is_enclosed_on_every_range_of_its_lattice(to):
    below, above = (np.asarray(conversions.pld_excess(_pld("upper"), to, literal=side)) for side in ("lower", "upper"))
    truth = excess(to.losses)
    assert np.all(above >= truth)
    np.testing.assert_allclose(above, truth, atol=2e-15)
    at, curve = everywhere(below, to.losses)
    assert np.all(curve <= excess(at))
    inner = slice(1, -1) if to.size < 9 else slice(0, None)
    np.testing.assert_allclose(below[inner], truth[inner], atol=4e-14)
    if to.size < 9:  # what is below the grid may be any loss down there
        assert below[0] == 0
        assert below[-1] == pytest.approx(0.1, abs=1e-14)
    broken = stored.law(np.full(9, np.nan), np.float64(0.1), GRID)
    np.testing.assert_array_equal(broken.hockey_stick(to.losses), 1.0)  # beyond the lattice as well
    lower = stored.law(broken.masses, broken.infinity_mass, GRID, "lower")
    np.testing.assert_allclose(lower.trade_off(np.array([0.2, 1.0])), [0.8, 0.0], rtol=1e-15)
    line, point, upper = enclose(_pld("lower"), to, "remove")
    for found, known in ((line, below), (point, below), (upper, above)):
        np.testing.assert_array_equal(found, known)


def test_laws_on_other_spacings_are_refused():
    other = LossGrid(1.0, -4, 9)
    profile = PrivacyProfile(np.zeros(9), GRID)
    for refused in (
        lambda: conversions.pld_excess(_pld("upper"), other),
        lambda: conversions.moved(profile.excess, GRID, other, "upper"),
        lambda: PrivacyProfile.from_pld(_pld("upper"), other),
    ):
        with pytest.raises(ValueError, match="spacings must agree, got "):
            refused()


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["upper", "lower"])
def test_moved_curves_keep_their_side_and_their_digits(bound):
    sign, values = (1 if bound == "upper" else -1), excess(GRID.losses)
    for to in (LossGrid(UNIT, -6, 13), LossGrid(UNIT, -2, 5), LossGrid(UNIT, -2, 11), LossGrid(UNIT, -9, 11)):
        found = np.asarray(conversions.moved(jnp.asarray(values), GRID, to, bound))
        at, curve = everywhere(found, to.losses)
        assert np.all(sign * (curve - excess(at)) >= -4e-15 * excess(at))  # of the truth's own gamma
        inside = (to.losses > -3.5 * UNIT) & (to.losses < 3.5 * UNIT) | (to.losses < -3.5 * UNIT)
        inside &= (np.arange(to.size) > 0) & (np.arange(to.size) < to.size - 1)
        np.testing.assert_allclose(found[inside], excess(to.losses)[inside], rtol=3e-14)
        assert np.all((sign * (found - excess(to.losses)) >= 0)[to.losses < -4.5 * UNIT])
    mirrored = np.asarray(conversions.reflected(jnp.asarray(values), GRID, bound))
    truth = excess(GRID.losses, [(q, p) for p, q in LAW])
    assert np.all(sign * (mirrored - truth) >= 0)
    np.testing.assert_allclose(mirrored, truth, rtol=2e-14)


@pytest.mark.slow
@pytest.mark.parametrize("bound", ["upper", "lower"])
def test_masses_of_a_curve_are_those_of_its_law(bound):
    values = jnp.asarray(excess(GRID.losses))
    masses, infinite = (np.asarray(x) for x in conversions.masses_of_excess(values, GRID, bound))
    sign, truth = (1 if bound == "upper" else -1), _pld("upper").masses
    assert np.all(sign * (masses - truth)[1:-1] >= -1e-16)
    np.testing.assert_allclose(masses, truth, atol=1e-14)
    assert sign * (infinite - 0.1) >= -1e-16
    assert infinite == pytest.approx(0.1, abs=1e-14)
    # From below a negative mass is paid for by the next ones, and arrays that cannot pay are no curve at all.
    bent = values.at[3].add(-1e-3)
    paid, rest = (np.asarray(x) for x in conversions.masses_of_excess(bent, GRID, "lower"))
    assert np.all(paid >= 0)
    made = [((paid * -np.expm1(np.minimum(e - GRID.losses, 0))).sum() + rest) for e in GRID.losses]
    assert np.all(np.array(made) - np.maximum(0, -np.expm1(GRID.losses)) <= bent + 1e-15)
    assert paid.sum() < truth.sum()
    none, _ = conversions.masses_of_excess(values.at[-1].set(-1.0), GRID, "lower")
    assert np.all(np.asarray(none) == 0)


def test_a_supremum_from_below_is_below_everywhere():
    rng = np.random.default_rng(0)
    laws = [finite.random_experiment(rng, 4) for _ in range(2)]
    laws += [finite.compose(*[finite.randomized_response(2)] * 2), finite.randomized_response("7/3")]
    family = np.stack([excess(GRID.losses, law) for law in laws])
    found = np.asarray(conversions.supremum_excess(jnp.asarray(family), "lower"))
    _, curve = everywhere(found, GRID.losses)
    _, members = everywhere(family, GRID.losses)
    assert np.all(curve <= members.max(0) + 1e-16)
    np.testing.assert_allclose(found, family.max(0), atol=0.05)
    assert np.any(found < family.max(0) - 1e-3)  # a maximum's chords are above it
    np.testing.assert_array_equal(conversions.supremum_excess(jnp.asarray(family), "upper"), family.max(0))
    # A batch of lower curves is a family like any other.
    batch = supremum(PrivacyProfile(family, GRID, "lower"))
    np.testing.assert_array_equal(batch.excess, found)
    np.testing.assert_array_equal(supremum([PrivacyProfile(row, GRID, "lower") for row in family]).excess, found)
    assert batch.bound == "lower"


def test_a_dominated_gaussian_is_dominated_to_the_last_bits():
    """At the largest loss and a mu of about the root of twice that, where rounding of the loss counts most."""
    losses = jnp.asarray([649.5, 650.0])
    for height in (0.5, 0.47, 0.53):
        found = float(_dominated_one(losses, jnp.asarray([height, 0.9]), jnp.zeros(())))
        with mpmath.workdps(40):
            mu, eps = mpmath.mpf(found), mpmath.mpf(649.5)
            tail = lambda x: mpmath.erfc(x / mpmath.sqrt(2)) / 2  # noqa: E731
            truth = tail(eps / mu - mu / 2) - mpmath.exp(eps) * tail(eps / mu + mu / 2)
            assert height * (1 - 1e-11) <= truth <= height
