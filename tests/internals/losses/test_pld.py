"""The public lattice law: it brackets the certified numbers, composes, and keeps its side."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct._numerics.rows import Row
from jaxacct.losses.curves.pld import _single, _within
from jaxacct.losses.grids.convex_envelope import lowered
from jaxacct.mechanisms.pairs.table import TablePair
from tests import stored


@pytest.mark.slow
def test_losses_that_are_off_move_up_by_twice_as_much_exactly():
    """L + eta is laid on the lattice so that hockey sticks at its points are those of L + eta, and not less."""
    grid, slack = LossGrid(math.log(2), -3, 16), 1e-3
    losses, p = np.array([-1.0, 1.0]) * math.log(2), np.array([1 / 3, 2 / 3])
    for off, room in ((slack, 2e-8), (0.0, 1e-12)):
        table = TablePair(Row(losses), Row(p), Row(p[::-1]), np.float64(2.0**-52), np.float64(off))
        with jax.enable_x64(True):
            law = stored.law(**_single(table, grid.spacing, float(grid.lowest), grid.size, "upper"), grid=grid)
        at = grid.losses[2:5]
        truth = (p[:, None] * -np.expm1(np.minimum(at - (losses[:, None] + 2 * off), 0.0))).sum(0)
        found = law.hockey_stick(at)
        assert np.all(found >= truth * (1 + 2.0**-50))
        np.testing.assert_allclose(found, truth, rtol=room, atol=1e-14)
        assert law.infinity_mass == 0  # no loss is infinite: what may underflow lies above the largest
        assert np.count_nonzero(law.masses > 1e-12) == (4 if off else 2)


def test_what_may_underflow_is_put_above_the_largest_loss():
    grid = LossGrid(0.5, -2, 8)
    at = np.array([-1.0, 0.3, 1.1])
    with jax.enable_x64(True):
        nothing = jnp.zeros(8)
        for mass in (1e-260, 1e-250):
            masses, infinite = (np.asarray(x) for x in _within(nothing, jnp.asarray(mass), jnp.asarray(1.1), 0.5, -2))
            assert infinite == 0
            held = (masses * -np.expm1(np.minimum(at[:, None] - grid.losses, 0.0))).sum(-1)
            assert np.all(held >= mass)
            assert masses.sum() <= 3 * mass
        for mass, largest in ((1e-249, 1.1), (1e-260, 9.0), (1e-260, math.inf), (1e-260, -9.0)):
            masses, infinite = (
                np.asarray(x) for x in _within(nothing, jnp.asarray(mass), jnp.asarray(largest), 0.5, -2)
            )
            assert infinite == mass
            assert not masses.any()


def test_a_lowered_law_is_lower_by_no_less_than_asked():
    spacing = math.log(2)
    masses = np.array([0.1, 0.2, 0.3, 0.05, 0.2, 0.1])

    def curve(masses):
        exact = [Fraction(float(m)) for m in masses]
        return [sum(m * (1 - Fraction(1, 2 ** (i - k))) for i, m in enumerate(exact) if i > k) for k in range(6)]

    given = curve(masses)
    with jax.enable_x64(True):
        for by in [0.0, 1.0, *(float(x) * (1 + d) for x in given for d in (-1e-3, -5e-10, 0.0, 5e-10, 1e-3))]:
            found = np.asarray(lowered(jnp.asarray(masses), spacing, jnp.asarray(by)))
            assert np.all(found >= 0)
            lower = curve(found)
            assert all(b <= max(a - Fraction(by), 0) + Fraction(1, 10**15) for a, b in zip(given, lower, strict=True))
            # And no lower than the curve minus its last value that is at least that much.
            last = min([x for x in given if x >= Fraction(by) * (1 + Fraction(1, 10**8))], default=1)
            assert all(b >= a - last - Fraction(1, 10**8) for a, b in zip(given, lower, strict=True))
