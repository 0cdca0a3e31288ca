"""What curves on grids add for their rounding is what they say, no less and no more.

The truth has 64 bits (NumPy's long double) or more; see `test_allowances.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.curves.profile import excess_at
from jaxacct.mechanisms.pairs.base import Tails
from tests.allowances import Long, allowed, needs_long_double
from tests.losses.test_grid_allowances import GRIDS, UNIT, around

pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_excess_between_the_points_of_a_grid(bound, sign):
    rng = np.random.default_rng(5)
    for grid in GRIDS:
        h, low, n = grid.spacing, grid.lowest, grid.size
        law = 0.99 * rng.dirichlet(np.full(n, 0.3))
        losses = (low + np.arange(n)) * Long(h)
        # A curve: sums of wedges, with gamma times them on the left.
        heights = (law * -np.expm1(np.minimum(losses[:, None] - losses, 0))).sum(-1) * np.exp(np.minimum(losses, 0))
        e = np.asarray(heights + 0.01 * np.exp(np.minimum(losses, 0)), float)
        at, near = around(grid, rng, 900)
        found = np.asarray(excess_at(jnp.asarray(e), grid, bound, jnp.asarray(at)))
        cell = np.floor(Long(at) / Long(h)).astype(int) - low
        c = np.clip(cell, 0, n - 2)
        t = np.expm1(Long(at) - (c + low) * Long(h)) / np.expm1(Long(h))
        under = e[0] * np.exp(Long(at) - low * Long(h))
        truth = np.where(cell < 0, under, np.where(cell >= n - 1, e[-1], e[c] * (1 - t) + e[c + 1] * t))
        gap = sign * (found - truth)
        assert np.all(gap >= -1e-19 * truth)
        moved = 4 * UNIT * (np.abs(at) + h) * np.exp(h) / np.expm1(h) + 8 * UNIT
        room = np.abs(e[c + 1] - e[c]) * moved + 8 * UNIT * np.maximum(e[c], e[c + 1])
        inner, left = ~near & (cell >= 0) & (cell < n - 1), ~near & (cell < 0)
        allowed(gap[inner], room[inner], 0.8, 1.15)
        allowed(gap[left], (8 * UNIT * (1 + np.abs(at)) * under)[left])
        assert np.all(gap[~near & (cell >= n - 1)] == 0)
        # Which cell a point belongs to is not known: neighbours' slopes count.
        wide = np.abs(np.diff(np.concatenate([[e[0] * np.exp(-h)], e, e[-1:]])))
        steep = np.maximum(np.maximum(wide[c], wide[c + 1]), wide[c + 2])
        assert np.all((gap <= 1.15 * (steep * moved + 8 * UNIT * np.maximum(e[c], e[c + 1])))[near])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_masses_of_a_curve_are_differences_of_slopes(bound, sign):
    for h, lowest, n in ((0.5, -6, 13), (1e-3, -20, 41), (3.0, -4, 9)):
        grid = LossGrid(h, lowest, n)
        p = np.exp(grid.losses / 2) * np.random.default_rng(8).uniform(0.5, 1.5, n)
        p *= 0.9 / (p * np.maximum(1.0, np.exp(-grid.losses))).sum()
        losses = Long(h) * (lowest + np.arange(n))
        curve = (p * -np.expm1(np.minimum(losses[:, None] - losses, 0))).sum(-1) + 0.02
        e = np.asarray(np.maximum(curve + np.expm1(np.minimum(losses, 0)), 1e-3 * np.exp(np.minimum(losses, 0))), float)
        masses, infinite = (np.asarray(x) for x in conversions.masses_of_excess(jnp.asarray(e), grid, bound))
        steps = np.diff(Long(e))
        right = np.append(steps / np.expm1(Long(h)), 0)
        left = np.append(Long(e[0]), steps / -np.expm1(-Long(h)))
        kink = np.arange(n) == -lowest
        truth, room = right - left + kink, 16 * UNIT * (np.abs(right) + np.abs(left) + kink)
        free = truth > 10 * room
        assert free.sum() >= 5
        if sign > 0:
            allowed((masses - truth)[free], room[free], 0.8, 1.2)
            assert infinite == e[-1]
        elif np.all(free):
            allowed((truth - masses), room + 8 * UNIT * truth, 0.8, 1.2)


def test_nodes_of_curves_are_charged_the_errors_of_their_tails():
    rng, n = np.random.default_rng(9), 9
    for spacing in (0.5, 30.0):
        losses = spacing * np.arange(-4.0, 5.0)
        gamma = np.exp(Long(losses))
        for off in (0.0, 1e-9):

            def tails(count, off=off, ends=(losses[0] - spacing, losses[-1] + spacing)):
                p_above, q_above = np.sort(rng.uniform(0.1, 1, (2, count)))[:, ::-1]
                p_below, q_below = np.sort(rng.uniform(0.1, 1, (2, count)))
                sizes = np.exp(-np.abs(np.linspace(*ends, count)))
                return Tails(p_above, p_below * 1e-3 * sizes, q_above * 1e-3 * sizes, q_below, np.full(count, off))

            t, eta = tails(n + 2), 3e-13
            found = np.asarray(
                jax.jit(nodes.nodes_above)(jnp.asarray(losses), Tails(*map(jnp.asarray, t)), jnp.asarray(eta))
            )
            here, units = slice(1, -1), 2.0**-50 * (1 + np.abs(losses))
            high, low = t.p_above[here] - gamma * t.q_above[here], gamma * t.q_below[here] - t.p_below[here]
            size = np.where(
                losses >= 0, t.p_above[here] + gamma * t.q_above[here], gamma * t.q_below[here] + t.p_below[here]
            )
            missed = np.where(losses >= 0, t.p_above[:-2], gamma * t.q_below[2:]) * np.expm1(eta + units)
            allowed(found - np.where(losses >= 0, high, low), 2 * (off + units) * size + missed, 0.85, 1.15)
            t = tails(n)
            found = np.asarray(jax.jit(nodes.points_below)(jnp.asarray(losses), Tails(*map(jnp.asarray, t))))
            high, low = t.p_above - gamma * t.q_above, gamma * t.q_below - t.p_below
            size = np.where(losses >= 0, t.p_above + gamma * t.q_above, gamma * t.q_below + t.p_below)
            allowed(np.where(losses >= 0, high, low) - found, 2 * (off + units) * size, 0.85, 1.15)
            t = tails(n - 1)
            found = np.asarray(
                jax.jit(nodes.nodes_below)(jnp.asarray(losses), Tails(*map(jnp.asarray, t)), jnp.ones(()), jnp.ones(()))
            )
            right = losses[:-1] >= 0
            at_ends, rooms = [], []
            for end in (losses[:-1], losses[1:]):
                g, slack = np.exp(Long(end)), 2 * (off + 2.0**-50 * (1 + np.abs(end)))
                at_ends.append(np.where(right, t.p_above - g * t.q_above, g * t.q_below - t.p_below))
                rooms.append(slack * np.where(right, t.p_above + g * t.q_above, g * t.q_below + t.p_below))
            used = (at_ends[0] > 0) & (at_ends[1] > 0)
            assert used.sum() >= 5
            ends = [np.where(used, x, 0) for x in at_ends]
            chosen = np.where(ends[1][:-1] < ends[0][1:], ends[1][:-1], ends[0][1:])
            room = np.where(ends[1][:-1] < ends[0][1:], rooms[1][:-1], rooms[0][1:])
            seen = chosen > 0
            allowed((chosen - found[1:-1])[seen], room[seen], 0.85, 1.15)
            assert np.all(found[1:-1][~seen] == 0)
