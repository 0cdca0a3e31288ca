"""Room for rounding goes to the side that its name says, by as much as was asked."""

from fractions import Fraction

import pytest

from jaxacct._numerics.rounding import EPS, deflated, inflated


@pytest.mark.parametrize("share", [2 * EPS, 1e-9, 0.25])
@pytest.mark.parametrize("value", [3.7, -3.7, 1e-300, 1e300])
def test_shares_are_given_and_taken_to_two_roundings(value, share):
    for moved, exact in (
        (inflated(value, share), Fraction(value) * (1 + Fraction(share))),
        (deflated(value, share), Fraction(value) * (1 - Fraction(share))),
    ):
        assert abs(Fraction(moved) / exact - 1) <= 2 * Fraction(EPS)
    assert abs(inflated(value, share)) > abs(value) > abs(deflated(value, share))
