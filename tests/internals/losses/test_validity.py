"""Curves that are one, to the last bit that rounding may bend, and curves that just are none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.losses.curves import checks as validity

GRID = LossGrid(np.log(2.0), -2, 5)
GAMMA = np.exp(GRID.losses)
IDENTITY = np.maximum(0.0, 1.0 - GAMMA)
TINY = 1e-12


def test_grids_at_the_limits_are_good():
    for good in (LossGrid(650.0, -1, 3), LossGrid(1.0, 0, 2), LossGrid(1.0, -1, 2)):
        validity.check_grid(good)
    for bad, message in [
        (LossGrid(0.5, 0, 1), "at least 2 points, got 1"),
        (LossGrid(0.5, 1, 5), "hold loss 0, got losses 0.5 to 2.5"),
        (LossGrid(0.5, -5, 5), "hold loss 0, got losses -2.5 to -0.5"),
        (LossGrid(650.1, 0, 2), "no loss beyond 650, got losses 0 to 650.1"),
        (LossGrid(650.1, -1, 2), "no loss beyond 650, got losses -650.1 to 0"),
    ]:
        with pytest.raises(ValueError, match=f"grid must .*{message}"):
            validity.check_grid(bad)


@pytest.mark.parametrize(
    "values",
    [IDENTITY, np.ones(5), np.array([0.9, 0.8, 0.65, 0.45, 0.35]), IDENTITY + TINY * 1e-3, np.ones(5) + 5e-15],
    ids=["perfect privacy", "none", "a curve", "a little above", "above 1 by rounding"],
)
def test_profiles_on_the_edge_are_good(values):
    validity.check_profile_values(values, GRID)
    validity.check_profile_values(np.stack([values, values]), GRID)
    with jax.enable_x64(True):
        assert bool(validity.is_profile(jnp.asarray(values), jnp.asarray(GRID.losses)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (IDENTITY - 2e-14, r"at least \(1 - gamma\)_\+"),
        (1 - 0.26 * GAMMA, r"at least \(1 - gamma\)_\+, got -0.04 at epsilon 1.386"),
        (np.ones(5) + 2e-14, "at most 1"),
        # Slopes -1/4, -1/4 and so on: a straight line, bent by 4e-9 of itself at a point.
        (1 - GAMMA / 8 + np.array([0, 1e-9, 0, 0, 0]), "convex in gamma, got 0.9375 at epsilon -0.69"),
        (1 - GAMMA / 8 + np.array([0, 0, 0, 4e-9, 0]), "convex in gamma, got 0.75 at epsilon 0.69"),
        (np.array([0.9, 0.8, 0.8, 0.8, 0.8 + 2e-9]), "decreasing"),
        (np.array([1.0, 1.0, 1.0, 1.0, 0.99]), "convex in gamma"),
        (np.array([0.9, np.nan, 0.6, 0.5, 0.4]), "numbers, got nan at epsilon -0.69"),
    ],
)
def test_profiles_just_beyond_are_refused(values, message):
    with pytest.raises(ValueError, match=f"values must be {message}"):
        validity.check_profile_values(values, GRID)
    with pytest.raises(ValueError, match=r"of curve \(1, 0\)"):
        validity.check_profile_values(np.stack([IDENTITY, values])[:, None], GRID)
    with jax.enable_x64(True):
        found = validity.is_profile(jnp.asarray(np.stack([IDENTITY, values])), jnp.asarray(GRID.losses))
    np.testing.assert_array_equal(found, [True, False])


def test_values_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"values must have 5 points on the last axis, as the grid, got shape \(4,\)"):
        validity.check_profile_values(np.ones(4), GRID)


@pytest.mark.parametrize(
    ("alpha", "beta"),
    [
        ([0, 1], [1, 0]),
        ([0, 1], [0, 0]),
        ([0, 0, 1], [1, 0.25, 0]),
        ([0, 0.5, 1], [0.5, 0, 0]),
        ([0, 1e-12, 1], [0.5, 0.5 - 1e-12, 0]),  # neighbours closer than the tolerance
        ([0, 0.25, 0.5, 1], [0.75, 0.5 + 1e-10, 0.25, 0]),  # bent by less than it
        ([0, 0.5, 1], [0.5, 0.25, 5e-15]),
        ([0, 0.2, 0.4, 0.6, 1], [0.8, 0.5, 0.3, 0.2, 0]),
        ([[0, 0.5, 1], [0, 0.5, 1]], [[1, 0.5, 0], [0.5, 0.2, 0]]),
    ],
)
def test_points_of_trade_off_curves_on_the_edge_are_good(alpha, beta):
    validity.check_trade_off_points(np.array(alpha, float), np.array(beta, float))


@pytest.mark.parametrize(
    ("alpha", "beta", "message"),
    [
        ([0, 0.5, 1], [0.5, 0.25, 2e-14], r"be at most 1 - alpha, got 2e-14 at alpha 1 \(point \(2,\)\)"),
        ([0, 0.5, 1], [0.5, 0.5 + 2e-14, 0], r"be at most 1 - alpha, got 0.5 at alpha 0.5 \(point \(1,\)\)"),
        ([0, 0.5, 1], [0.5, 0.25, -1e-300], "be at least 0, got -1e-300 at alpha 1"),
        ([0, 0.5, 1], [0.4, 0.4 + 1e-9, 0], "be decreasing, got 0.4 at alpha 0 "),
        ([0, 0.25, 0.5, 1], [0.75, 0.5 + 1e-8, 0.25, 0], r"be convex, got 0.5 at alpha 0.25 \(point \(1,\)\)"),
        ([0, 0.2, 0.4, 0.6, 1], [0.8, 0.5, 0.3, 0.21, 0], r"be convex, got 0.21 at alpha 0.6 \(point \(3,\)\)"),
        ([0, 0.4, 0.5, 1], [0.5, 1e-8, 1.0001e-8, 0], "be decreasing, got 1e-08"),
        ([0, 0.5, 0.25, 1], [0.75, 0.2, 0.1, 0], "go from alpha 0 to alpha 1 without turning back"),
        ([1e-300, 0.5, 1], [0.5, 0.2, 0], "go from alpha 0"),
        ([0, 0.5, 0.999], [0.5, 0.2, 0], "go from alpha 0"),
        ([0, np.nan, 1], [0.5, 0.2, 0], "be numbers, got 0.2 at alpha nan"),
        ([0, 0.5, 1], [np.nan, 0.2, 0], "be numbers, got nan at alpha 0 "),
    ],
)
def test_points_just_beyond_are_refused(alpha, beta, message):
    alpha, beta = np.array(alpha), np.array(beta)
    with pytest.raises(ValueError, match=f"beta must {message}"):
        validity.check_trade_off_points(alpha, beta)
    good = np.linspace(0, 1, len(alpha))
    with pytest.raises(ValueError, match=r"\(point \(1, "):
        validity.check_trade_off_points(np.stack([good, alpha]), np.stack([1 - good, beta]))


@pytest.mark.parametrize(
    ("alpha", "beta"), [(np.zeros(1), np.ones(1)), (np.array(0.0), np.array(0.0)), (np.zeros(2), np.zeros(3))]
)
def test_points_of_no_curve_at_all_are_refused(alpha, beta):
    with pytest.raises(ValueError, match="alpha and beta must have one shape of 2 or more points"):
        validity.check_trade_off_points(alpha, beta)
