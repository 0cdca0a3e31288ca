"""How tests hold a bound to the room that it says it leaves for rounding."""

import numpy as np
import pytest

UNIT = 2.0**-52

Long = np.longdouble
needs_long_double = pytest.mark.skipif(
    np.finfo(Long).nmant < 63, reason="long double has no more digits than double here"
)


def allowed(gap, room, low=0.75, high=1.25):
    """``gap`` is ``room``, but for the rounding that ``room`` is for."""
    share = np.asarray(gap / room, float)
    assert share.size > 0
    assert low <= share.min()
    assert share.max() <= high


def spread(rng, low, high, count):
    """Numbers that are log-uniform."""
    return np.exp(rng.uniform(np.log(low), np.log(high), count))
