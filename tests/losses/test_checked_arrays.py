"""Arrays that are no law and no curve: refused by name where they are known, else read to the safe side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import PLD, Gaussian, LossGrid, PrivacyProfile, TradeOff

GRID = LossGrid(0.5, -2, 5)
HALF = np.full(5, 0.2)
AT = np.array([-1.0, 0.0, 1.0])

BAD_LAWS = {
    "negative": (np.array([-0.1, 0.3, 0.3, 0.3, 0.2]), 0.0, "masses must be between 0 and 1, got -0.1"),
    "nothing but negative": (np.full(5, -0.1), 0.0, "masses must be between 0 and 1, got -0.1"),
    "nan": (np.array([0.2, np.nan, 0.2, 0.2, 0.2]), 0.0, "masses must be between 0 and 1, got nan"),
    "more than 1": (HALF, 0.5, "sum up to at most 1, got 1.5"),
    "less than 1": (0.5 * HALF, 0.0, "sum up to 1, got 0.5"),
    "a negative atom": (HALF, -0.1, "infinity_mass must be between 0 and 1, got -0.1"),
    "an atom that is no number": (HALF, np.nan, "infinity_mass must be between 0 and 1, got nan"),
}


@pytest.mark.parametrize("name", BAD_LAWS)
def test_masses_that_are_no_law_are_refused_or_have_delta_1_and_from_below_bound_nothing(name):
    masses, infinite, message = BAD_LAWS[name]
    with pytest.raises(ValueError, match=message):
        PLD(masses, np.asarray(infinite), GRID)
    read = lambda m, i: PLD(m, i, GRID).hockey_stick(AT)  # noqa: E731
    np.testing.assert_array_equal(jax.jit(read)(jnp.asarray(masses), jnp.asarray(infinite)), 1.0)
    batch = jnp.stack([jnp.asarray(HALF), jnp.asarray(masses)])
    good, bad = jax.vmap(read)(batch, jnp.array([0.0, infinite]))
    assert np.all(np.asarray(good) < 1.0)
    np.testing.assert_array_equal(bad, 1.0)
    if name == "less than 1":  # which from below a law may be
        return
    with pytest.raises(ValueError, match=message):
        PLD(masses, np.asarray(infinite), GRID, "lower")
    found = jax.jit(lambda m, i: PLD(m, i, GRID, "lower").hockey_stick(AT))(jnp.asarray(masses), jnp.asarray(infinite))
    assert np.all(np.asarray(found) <= np.maximum(-np.expm1(AT), 0.0) + 1e-7)


def test_shapes_that_do_not_fit_a_grid_are_refused_traced_or_not():
    with pytest.raises(ValueError, match="masses must have 5 points"):
        PLD(np.full(4, 0.25), np.zeros(()), GRID)
    with pytest.raises(ValueError, match="masses must have 5 points"):
        jax.jit(lambda m: PLD(m, jnp.zeros(()), GRID).hockey_stick(0.0))(jnp.full(4, 0.25))
    with pytest.raises(ValueError, match="excess must have 5 points"):
        PrivacyProfile(np.zeros(4), GRID)
    with pytest.raises(ValueError, match="widths and drops must have one shape"):
        TradeOff(np.ones(1), np.ones(2))


def test_trees_are_rebuilt_without_checks():
    law = PLD.identity(GRID)
    assert jax.tree.map(lambda _: None, law).masses is None
    assert jax.eval_shape(lambda x: x, law).masses.shape == (5,)
    assert jax.tree.map(lambda x: -x, law).masses.min() == -1.0


def test_a_law_from_masses_counts_what_is_missing_as_infinite_from_above_and_leaves_it_out_from_below():
    masses = np.array([0.1, 0.2, 0.3, 0.2, 0.1])
    upper, lower = PLD.from_masses(masses, GRID), PLD.from_masses(masses, GRID, bound="lower")
    assert 0.1 <= upper.infinity_mass <= 0.1 + 1e-13
    assert lower.infinity_mass == 0.0
    assert np.all(upper.hockey_stick(AT) > lower.hockey_stick(AT))
    assert PLD.from_masses(masses, GRID, 0.1).infinity_mass == 0.1
    assert isinstance(PLD.from_masses(jnp.asarray(masses), GRID).infinity_mass, jax.Array)
    assert PLD.from_masses(np.stack([masses, masses]), GRID).infinity_mass.shape == (2,)
    with pytest.raises(ValueError, match="masses must have 5 points"):
        PLD.from_masses(masses[:4], GRID)
    with pytest.raises(ValueError, match=r"sum up to at most 1, got 1\.4"):
        PLD.from_masses(masses, GRID, 0.5)


@pytest.mark.parametrize("bound", ["upper", "lower"])
def test_the_identity_changes_nothing_and_the_infinite_loss_everything(bound):
    law = PLD.from_mechanism(Gaussian(1.0), bound, grid=LossGrid(0.25, -24, 49))
    same, all_ = law.compose(PLD.identity(law.grid, bound)), law.compose(PLD.infinite(law.grid, bound))
    np.testing.assert_allclose(same.hockey_stick(AT), law.hockey_stick(AT), atol=1e-12)
    np.testing.assert_allclose(all_.hockey_stick(AT), 1.0, rtol=1e-11)
    np.testing.assert_allclose(PLD.identity(GRID, bound).hockey_stick(AT), np.maximum(-np.expm1(AT), 0.0), atol=1e-13)
    with pytest.raises(ValueError, match="grid must hold loss 0"):
        PLD.identity(LossGrid(0.5, 1, 5), bound)


@pytest.mark.parametrize(
    ("excess", "message"),
    [
        ([0.0, np.nan, 0.1, 0.0, 0.0], "excess must be between 0 and .* got nan"),
        ([0.0, 0.0, -0.1, 0.0, 0.0], r"excess must be between 0 and min\(gamma, 1\), got -0\.1 at epsilon 0"),
        ([0.0, 0.0, 1.5, 0.0, 0.0], r"excess must be between 0 and min\(gamma, 1\), got 1.5 at epsilon 0"),
        ([0.0, 0.0, 0.1, 0.2, 0.0], "excess must be that of a decreasing curve"),
    ],
)
def test_an_excess_that_is_none_is_refused_or_no_privacy(excess, message):
    with pytest.raises(ValueError, match=message):
        PrivacyProfile(np.array(excess), GRID)
    read = jax.jit(lambda e: PrivacyProfile(e, GRID).hockey_stick(AT))
    np.testing.assert_allclose(read(jnp.array(excess)), 1.0, rtol=1e-6)
    lower = jax.jit(lambda e: PrivacyProfile(e, GRID, "lower").hockey_stick(AT))
    np.testing.assert_allclose(lower(jnp.array(excess)), np.maximum(-np.expm1(AT), 0.0), atol=1e-7)


@pytest.mark.parametrize(
    ("widths", "drops", "message"),
    [
        ([0.5, np.nan], [0.5, 0.5], "widths must be between 0 and 1, got nan"),
        ([0.5, 0.5], [1.1, -0.1], "drops must be between 0 and 1, got"),
        ([0.5, 0.5], [0.25, 0.75], "must be sorted"),
        ([0.5, 0.25], [0.75, 0.25], "must each sum up to 1"),
        ([0.5, 1.0], [0.75, 0.25], "must each sum up to at most 1"),
    ],
)
def test_segments_that_are_no_curve_are_refused_or_no_privacy(widths, drops, message):
    with pytest.raises(ValueError, match=message):
        TradeOff(np.array(widths), np.array(drops))
    read = jax.jit(lambda w, d: TradeOff(w, d).trade_off(0.25))
    np.testing.assert_allclose(read(jnp.array(widths), jnp.array(drops)), 0.0, atol=1e-6)


def test_curves_that_jaxacct_made_pass_their_own_checks():
    grid = LossGrid(0.25, -24, 49)
    for bound in ("upper", "lower"):
        law = PLD.from_mechanism(Gaussian(1.0), bound, grid=grid).self_compose(50)
        PLD(law.masses, law.infinity_mass, law.grid, law.bound)
        PLD(law.masses.astype(np.float32), law.infinity_mass.astype(np.float32), law.grid, law.bound)
        profile = PrivacyProfile.from_mechanism(Gaussian(1.0), bound, grid=grid).symmetrise()
        PrivacyProfile(profile.excess, profile.grid, bound)
        curve = TradeOff.from_profile(profile)
        TradeOff(curve.widths, curve.drops, curve.bound)
        TradeOff(*(np.asarray(x) for x in jax.tree.leaves(curve.compose(curve, 256))), curve.bound)
