"""Room for rounding goes to the side that its name says, by as much as was asked."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct._numerics.rounding import EPS, UNIT, deflated, inflated


def test_units_are_those_of_float64():
    assert np.spacing(1.0) == EPS == 2 * UNIT
    assert 1.0 + EPS > 1.0
    assert 1.0 + UNIT == 1.0


@pytest.mark.parametrize("share", [2 * EPS, 1e-9, 0.25])
@pytest.mark.parametrize("value", [3.7, -3.7, 1e-300, 1e300])
def test_shares_are_given_and_taken_to_two_roundings(value, share):
    for moved, exact in (
        (inflated(value, share), Fraction(value) * (1 + Fraction(share))),
        (deflated(value, share), Fraction(value) * (1 - Fraction(share))),
    ):
        assert abs(Fraction(moved) / exact - 1) <= 2 * Fraction(EPS)
    assert abs(inflated(value, share)) > abs(value) > abs(deflated(value, share))


def test_a_negative_share_goes_the_other_way():
    assert inflated(2.0, -0.25) == deflated(2.0, 0.25) == 1.5


def test_arrays_keep_their_kind_and_precision():
    assert isinstance(inflated(np.ones(3), 1e-9), np.ndarray)
    for move in (inflated, deflated):
        assert jax.jit(move)(jnp.ones(3, jnp.float32), 1e-3).dtype == jnp.float32
    np.testing.assert_array_equal(inflated(np.array([1.0, -2.0, 0.0]), np.array([0.5, 0.5, 0.5])), [1.5, -3.0, 0.0])
