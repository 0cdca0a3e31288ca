"""Privacy profiles: bounds in both tails, conversions, reflections, validity."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jaxacct
from jaxacct import PLD, LossGrid, PrivacyProfile
from tests import finite

GRID = LossGrid(1 / 64, -1024, 2049)
EPSILON = np.array([-15.9, -7.3, -2.0, -0.51, 0.0, 0.013, 0.5, 1.9, 5.03, 8.0, 15.7])


def excess_truth(epsilon, sigma, rate):
    """E(exp(epsilon)) of a sampled Gaussian in the direction `remove`, as float."""
    with mpmath.workdps(330):
        s, q, e = mpmath.mpf(sigma), mpmath.mpf(rate), mpmath.mpf(float(epsilon))
        inside = (mpmath.exp(e) - 1 + q) / q
        if inside <= 0:
            return 0.0 if e < 0 else float(1 - mpmath.exp(e))
        x = mpmath.mpf(1) / 2 + s**2 * mpmath.log(inside)
        tail = lambda z: mpmath.erfc(z / mpmath.sqrt(2)) / 2  # noqa: E731
        p_above = (1 - q) * tail(x / s) + q * tail((x - 1) / s)
        h = p_above - mpmath.exp(e) * tail(x / s)
        return float(h - max(mpmath.mpf(0), 1 - mpmath.exp(e)))


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 1.0), (0.7, 0.2), (3.0, 0.9)])
def test_a_sampled_gaussian_is_bracketed_in_both_tails(sigma, rate):
    mechanism = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    upper, lower = (
        PrivacyProfile.from_mechanism(mechanism, bound, relation="remove", grid=GRID) for bound in ("upper", "lower")
    )
    points = np.arange(0, GRID.size, 41)
    truth = np.array([excess_truth(GRID.losses[k], sigma, rate) for k in points])
    assert np.all(upper.excess[points] >= truth)
    assert np.all(lower.excess[points] <= truth)
    tight = truth > 1e-250
    np.testing.assert_allclose(upper.excess[points][tight], truth[tight], rtol=1e-9)
    inner = (truth > 1e-3) & (np.abs(GRID.losses[points]) < 8)
    np.testing.assert_allclose(lower.excess[points][inner], truth[inner], rtol=5e-3)
    between = np.array([excess_truth(e, sigma, rate) for e in EPSILON]) + np.maximum(0, -np.expm1(EPSILON))
    assert np.all(upper.hockey_stick(EPSILON) >= between)
    assert np.all(lower.hockey_stick(EPSILON) <= between)
    np.testing.assert_allclose(upper.hockey_stick(EPSILON), between, rtol=0.05, atol=1e-14)


def test_the_reflection_is_the_other_direction_with_all_its_digits():
    mechanism = jaxacct.PoissonSampled(jaxacct.Gaussian(0.7), 0.2)
    remove, add = (PrivacyProfile.from_mechanism(mechanism, relation=r, grid=GRID) for r in ("remove", "add"))
    found = remove.reflect()
    seen = add.excess > 1e-200
    np.testing.assert_allclose(found.excess[seen], add.excess[seen], rtol=1e-9)
    twice = found.reflect()
    assert np.all(twice.excess >= remove.excess)
    np.testing.assert_allclose(twice.excess, remove.excess, rtol=1e-12)
    both = PrivacyProfile.from_mechanism(mechanism, grid=GRID)
    np.testing.assert_allclose(remove.symmetrise().excess, both.excess, rtol=1e-9, atol=1e-250)
    gaussian = PrivacyProfile.from_mechanism(jaxacct.Gaussian(1.0), grid=GRID)
    np.testing.assert_allclose(gaussian.reflect().excess, gaussian.excess, rtol=1e-9, atol=1e-280)


@pytest.mark.parametrize("lowest", [-6, -2])
def test_a_symmetric_curve_has_the_longer_side_of_its_grid_twice(lowest):
    excess = 0.1 * np.minimum(np.exp(LossGrid(0.5, lowest, 9).losses), 1.0)
    assert PrivacyProfile(excess, LossGrid(0.5, lowest, 9)).symmetrise().grid == LossGrid(0.5, -6, 13)


def _law(experiment, grid, bound="upper"):
    """A finite experiment whose losses are lattice points of spacing log 2, as a PLD."""
    masses = np.zeros(grid.size)
    for p, q in experiment:
        if p and q:
            masses[round(math.log(p / q) / grid.spacing) - grid.lowest] += float(p)
    return PLD(masses, np.float64(sum(p for p, q in experiment if not q)), grid, bound)


@pytest.mark.parametrize("bound", ["upper", "lower"])
def test_a_law_and_its_curve_are_one_thing(bound):
    """Propositions 4 and 5: H from the masses, the masses from H, for laws with atoms at both infinities."""
    grid = LossGrid(math.log(2), -8, 17)
    experiment = finite.compose(*[finite.randomized_response(2)] * 3, finite.failing("1/10"))
    law = _law(experiment, grid, bound)
    profile = PrivacyProfile.from_pld(law)
    gammas = [0.001, 0.1, 0.125, 0.3, 0.5, 0.75, 1, 1.7, 2, 3.3, 8, 9.1, 1e6]
    truth = np.array([float(finite.hockey_stick(experiment, g)) for g in gammas])
    found = profile.hockey_stick(np.log(gammas))
    sign = 1 if bound == "upper" else -1
    assert np.all(sign * (found - truth) >= -1e-16)
    if bound == "upper":
        np.testing.assert_allclose(found, truth, atol=1e-12)
    else:  # nothing is known of losses below the lattice: the last cell but one goes down to the identity
        np.testing.assert_allclose(found[2:], truth[2:], atol=1e-12)
    back = profile.to_pld()
    assert back.bound == bound
    known = slice(1 if bound == "upper" else 6, None)
    np.testing.assert_allclose(back.masses[known], law.masses[known], atol=1e-12)
    np.testing.assert_allclose(back.infinity_mass, 0.1, atol=1e-14)
    again = PrivacyProfile.from_pld(back)
    assert np.all(sign * (again.excess - profile.excess) >= 0)


def test_curves_compose_as_gaussians_do():
    truth = jaxacct.delta(jaxacct.Gaussian(0.5**0.5), EPSILON)
    grid = LossGrid(1 / 64, -1024, 2049)
    for bound, sign in (("upper", 1), ("lower", -1)):
        one = PrivacyProfile.from_mechanism(jaxacct.Gaussian(1.0), bound, grid=grid)
        two = one.compose(one).hockey_stick(EPSILON)
        assert np.all(sign * (two - (truth.upper if sign < 0 else truth.lower)) >= 0)
        np.testing.assert_allclose(two, truth.upper, rtol=1e-3, atol=1e-9)


VALUES = np.array([0.9, 0.8, 0.65, 0.45, 0.35])
SMALL = LossGrid(math.log(2), -2, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({2: np.nan}, "values must be numbers, got nan at epsilon 0"),
        ({1: 1.2}, "values must be at most 1, got 1.2"),
        ({1: 0.4}, r"values must be at least \(1 - gamma\)_\+, got 0.4 at epsilon -0.693"),
        ({4: 0.5}, "values must be decreasing, got 0.5 at epsilon 1.38"),
        ({3: 0.6}, "values must be convex in gamma, got 0.6 at epsilon 0.693"),
    ],
)
def test_values_that_are_no_curve_are_refused_and_traced_ones_fail_closed(change, message):
    assert np.all(PrivacyProfile.from_values(VALUES, SMALL).values() >= VALUES)
    bad = VALUES.copy()
    for index, value in change.items():
        bad[index] = value
    with pytest.raises(ValueError, match=message):
        PrivacyProfile.from_values(bad, SMALL)
    with pytest.raises(ValueError, match=r"curve \(1,\)"):
        PrivacyProfile.from_values(np.stack([VALUES, bad]), SMALL)
    read = jax.jit(lambda v: PrivacyProfile.from_values(jnp.stack([VALUES.astype("float32"), v]), SMALL).values())
    found = np.asarray(read(bad))
    np.testing.assert_allclose(found[0], VALUES, atol=1e-6)
    np.testing.assert_array_equal(found[1], 1.0)


@pytest.mark.parametrize("relation", ["remove", "add_or_remove", "replace"])
@pytest.mark.parametrize(
    "mechanism",
    [
        jaxacct.TruncatedPoisson(jaxacct.Gaussian(1.0), 0.1, 8, 60),
        jaxacct.Shuffled(jaxacct.Gaussian(1.0), 5),
        jaxacct.RandomAllocation(jaxacct.Gaussian(1.0), 5),
        jaxacct.SampledWithReplacement(jaxacct.Gaussian(1.0), 5, 50),
        jaxacct.SampledWithoutReplacement(jaxacct.Gaussian(1.0), 5, 50),
        jaxacct.UserLevel(jaxacct.Gaussian(2.0), 0.1, 5),
        jaxacct.PoissonSampled(jaxacct.FromTables([1.0, 0.0], [0.0, 1.0]), 1e-20),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
@pytest.mark.filterwarnings("ignore")  # of the gap between a proof and an attack
def test_a_lower_curve_is_below_what_is_known_to_be_attained(mechanism, relation):
    at = np.array([-1.0, 0.0, 0.1, 0.5, 1.0, 2.0])
    known = np.asarray(jaxacct.delta(mechanism, at, relation=relation).lower)
    curve = PrivacyProfile.from_mechanism(mechanism, "lower", relation=relation)
    assert np.all(curve.hockey_stick(at) <= known * (1.0 + 1e-6) + 1e-15)
    if relation != "add_or_remove":
        law = PLD.from_mechanism(mechanism, "lower", relation=relation)
        assert np.all(law.hockey_stick(at) <= known * (1.0 + 1e-6) + 1e-15)


@pytest.mark.parametrize("relation", ["remove", "add"])
def test_a_lower_law_of_no_loss_at_all_has_no_delta(relation):
    nothing = jaxacct.FromTables([0.5, 0.5], [0.5, 0.5])
    for grid in (None, LossGrid(0.00012155062500000002, -5, 9), LossGrid(0.0015106790463963685, -2, 2000)):
        assert PLD.from_mechanism(nothing, "lower", relation=relation, grid=grid).hockey_stick(0.0) <= 1e-18


TABLES = [([0.03, 0.27, 0.7], [0.0, 0.0, 1.0]), ([0.25, 0.75], [1.0, 0.0]), ([0.9, 0.0, 0.1], [0.8, 0.2, 0.0])]


@pytest.mark.parametrize("bound", ["upper", "lower"])
@pytest.mark.parametrize("grid", [LossGrid(2.3, -1, 2), LossGrid(0.5, -4, 5), LossGrid(1.0, -9, 20)])
@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize(("p", "q"), TABLES)
def test_curves_on_short_grids_are_bounds_between_their_points_and_beyond_them(p, q, rate, grid, bound):
    with_record = rate * np.array(p) + (1.0 - rate) * np.array(q)
    at = np.concatenate([np.linspace(-2.6, 2.6, 105), [-9.0, 9.0]])
    truth = np.maximum(with_record - np.exp(at)[:, None] * q, 0.0).sum(-1)
    mechanism = jaxacct.PoissonSampled(jaxacct.FromTables(p, q), rate)
    law = PLD.from_mechanism(mechanism, bound, relation="remove", grid=grid)
    own = PrivacyProfile.from_mechanism(mechanism, bound, relation="remove", grid=grid)
    short = LossGrid(grid.spacing, -1, 2)
    sign = 1.0 if bound == "upper" else -1.0
    longer = own.on(LossGrid(grid.spacing, -30, 61)).hockey_stick(at)
    np.testing.assert_allclose(longer, own.hockey_stick(at), rtol=1e-12, atol=1e-14)
    for whole in (own, own.to_pld(), PrivacyProfile.from_pld(law), PrivacyProfile.from_pld(law, short)):
        curve = whole if isinstance(whole, PrivacyProfile) else PrivacyProfile.from_pld(whole)
        cut = curve.on(short)
        for found in (whole, cut, cut.on(grid), cut.to_pld(), jaxacct.supremum([cut, curve.on(short)])):
            assert np.all(sign * (found.hockey_stick(at) - truth) >= -1e-15)
