"""Pieces of trade-off curves, on small numbers that a loop can follow."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.losses.curves import conversions

pytestmark = pytest.mark.usefixtures("in_float64")


def test_a_row_of_a_law_that_is_no_number_is_one_row():
    grid = LossGrid(1.0, -1, 3)
    masses = conversions.masses_of_excess(jnp.array([[0.1, 0.2, 0.1], [math.nan, 0.2, 0.1]]), grid, "upper")[0]
    assert np.isfinite(np.asarray(masses[0])).all()
    assert np.isnan(np.asarray(masses[1])).any()
