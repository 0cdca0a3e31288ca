"""A printed bound is a bound."""

import math

import hypothesis
import hypothesis.strategies as st

from jaxacct._printing import rounded_down, rounded_up


@hypothesis.given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.integers(1, 12))
def test_rounding_never_crosses_the_value_and_stays_close(value, digits):
    up, down = float(rounded_up(value, digits)), float(rounded_down(value, digits))
    assert down <= value <= up
    if math.isfinite(up - down) and abs(value) > 1e-300:
        assert up - down <= abs(value) * 10.0 ** (1 - digits) * 1.01


def test_infinity_prints():
    assert rounded_up(math.inf) == "inf"
