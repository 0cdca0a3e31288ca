"""Pieces of trade-off curves, on small numbers that a loop can follow."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.losses.curves import conversions, trade_off

pytestmark = pytest.mark.usefixtures("in_float64")


def test_a_row_of_a_law_that_is_no_number_is_one_row():
    grid = LossGrid(1.0, -1, 3)
    masses = conversions.masses_of_excess(jnp.array([[0.1, 0.2, 0.1], [math.nan, 0.2, 0.1]]), grid, "upper")[0]
    assert np.isfinite(np.asarray(masses[0])).all()
    assert np.isnan(np.asarray(masses[1])).any()


def test_tails_of_segments_are_sums_over_their_losses():
    widths = np.array([0.0, 0.0, 0.125, 0.25, 0.5, 0.125, 0.0, 0.0])
    drops = np.array([0.25, 0.0, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0])
    each = [-math.inf, None, math.log(0.5), 0.0, math.log(2), math.inf, None, None]
    losses = np.array([-50.0, math.log(0.5) + 1e-12, -0.5, 0.0, 0.1, math.log(2) - 1e-12, 3.0])
    found = trade_off._tails(*map(jnp.asarray, (widths, drops, losses)))
    for k, at in enumerate(losses):
        above = [i for i, x in enumerate(each) if x is not None and x > at]
        below = [i for i, x in enumerate(each) if x is not None and x <= at]
        assert found.p_above[k] == sum(widths[above])
        assert found.p_below[k] == sum(widths[below])
        assert found.q_above[k] == sum(drops[above])
        assert found.q_below[k] == sum(drops[below])
    np.testing.assert_allclose(found.error, 16 * 2.0**-52, rtol=1e-12)
