"""What curves on grids add for their rounding is what they say, no less and no more.

The truth has 64 bits (NumPy's long double) or more; see `test_allowances.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import PLD, LossGrid
from jaxacct._numerics.rows import Row
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.curves.profile import excess_at
from jaxacct.losses.engines import one_run as single
from jaxacct.mechanisms import laplace
from jaxacct.mechanisms.pairs.base import Tails
from jaxacct.mechanisms.pairs.one_parameter import delta_of, epsilon_of
from jaxacct.mechanisms.pairs.table import TablePair
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
def test_moments_tilts_and_mirrors(bound, sign):
    rng = np.random.default_rng(6)
    for grid in (LossGrid(3.0, -6, 13),):
        n, masses = grid.size, rng.dirichlet(np.full(grid.size, 0.3))
        masses[rng.integers(n)] = 0.0
        law = PLD.from_masses(masses, grid, bound=bound)  # moments are of the finite losses
        losses, held = (grid.lowest + np.arange(n)) * Long(grid.spacing), masses > 0
        log_masses = np.log(Long(np.where(held, masses, 1.0)))
        for theta in (0.0, 0.5, 7.0, 30.0):
            terms = np.where(held, theta * losses + log_masses, -np.inf)
            truth = np.log(np.exp(terms - terms.max()).sum()) + terms.max()
            size = np.max(4 * UNIT * (4 + np.where(held, np.abs(terms), 0.0)))
            room = size + 8 * UNIT * theta * np.abs(losses).max() + UNIT * (4 * n + 16) + 4 * UNIT * np.abs(truth)
            allowed(sign * (law.log_moment(theta) - truth), room, 0.9, 1.1)
            made = Long(law.tilt(theta).masses)
            exponent = terms - truth
            seen = held & (exponent > -600)
            error = 4 * UNIT * (4 + theta * np.abs(losses) + np.abs(log_masses) + np.abs(truth) + np.abs(exponent))
            allowed((sign * (made[seen] / np.exp(exponent[seen]) - 1)), (error + room)[seen], 0.9, 1.1)
            assert np.all(made[~held] == 0)
        height = rng.random(n) * np.exp(np.minimum(grid.losses, 0.0))
        mirrored = np.asarray(conversions.reflected(jnp.asarray(height), grid, bound))
        truth = (height * np.exp(-losses))[::-1]
        allowed(sign * (mirrored / truth - 1), (4 * UNIT * (1 + np.abs(losses)))[::-1], 0.6, 1.4)
        to = LossGrid(grid.spacing, grid.lowest - 3, n + 3)
        longer = np.asarray(conversions.moved(jnp.asarray(height), grid, to, bound))
        truth = height[0] * np.exp(Long(grid.spacing) * np.arange(-3, 0))
        allowed(sign * (longer[:3] / truth - 1), 8 * UNIT * (1 + np.abs(to.losses[:3])), 0.8, 1.2)
        np.testing.assert_array_equal(longer[3:], height)
        # A shorter range keeps the slope at 0 and the height at infinity, from below.
        shorter = np.asarray(conversions.moved(jnp.asarray(height), grid, LossGrid(grid.spacing, -4, 9), bound))
        np.testing.assert_array_equal(shorter[1:-1], height[3:-3])
        slope = height[0] * np.exp(2 * Long(grid.spacing))
        ends = (height[2], height[-3]) if bound == "upper" else (min(height[2], slope), height[-1])
        assert shorter[-1] == ends[1]
        assert abs(shorter[0] / ends[0] - 1) <= 9 * UNIT * (1 + 2 * grid.spacing)
        assert sign * (shorter[0] - ends[0]) >= 0


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


def test_one_run_is_charged_the_rounding_of_its_exponential():
    """A single outcome of loss 1e-9 beyond epsilon, or 5: what is left of P's mass is a difference."""
    for beyond in (1e-3, 5.0):
        for epsilon in (0.3, 20.0, 400.0, 660.0):
            loss = epsilon + beyond
            q = float(np.exp(-Long(loss)) * 0.5)
            pair = TablePair(Row(np.array([-1.0, loss])), Row(np.array([0.5, 0.5])), Row(np.array([0.9, q])),
                             np.float64(0.0), np.float64(0.0))  # fmt: skip
            found = single._from_tails(pair, np.array([epsilon]), np.array(np.inf), np.zeros(()))
            (lower,), (upper,) = (x.tolist() for x in found)
            scaled = np.exp(Long(epsilon) + np.log(Long(q)))
            truth, error = 0.5 - scaled, UNIT / 2 * 6  # of two outcomes
            slack = 2 * (error + 2.0**-50 * (1 + epsilon - np.log(q))) * (0.5 + scaled)
            moved = 2 * np.expm1(2.0**-50 * epsilon) * 0.5
            allowed(truth - lower, slack, 0.8, 1.2)
            allowed(upper - truth, slack + moved, 0.8, 1.2)


def test_the_largest_loss_of_laplace_noise_is_rounded_up():
    """At an order of 1e18 the divergence is the ratio itself, but for 1e-18."""
    rng = np.random.default_rng(10)
    scale, shift = rng.uniform(0.5, 2.0, (2, 300))
    found = np.asarray(laplace._divergence(scale, shift, 1e18))
    units = np.asarray((found / (Long(shift) / scale) - 1) / UNIT, float)
    assert units.min() >= 2
    assert units.max() <= 6


def test_parameters_that_are_none_give_no_guarantee():
    """Of every one-parameter family: 0 is perfect privacy; what is negative, infinite or no number is none."""
    bad = [-1.0, np.nan, np.inf]
    delta = jax.jit(lambda p, e: delta_of(p, e, lambda p, e: -p - e))
    rows = [(p, e, 1.0) for p in bad for e in (0.0, 1.0, np.inf)]
    rows += [(p, e, 1.0) for p in (0.0, 2.0) for e in (-1.0, np.nan)]
    rows += [(0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, np.inf, 0.0), (2.0, np.inf, 0.0)]
    rows += [(1.0, 0.0, np.exp(-1)), (1.0, 1.0, np.exp(-2)), (2.0, 1e3, np.finfo(float).tiny)]
    p, e, truth = np.array(rows).T
    np.testing.assert_allclose(delta(p, e), truth, rtol=1e-14)
    assert np.all(np.asarray(delta(p, e))[-3:-1] >= np.exp(-Long([1.0, 2.0])))
    epsilon = jax.jit(lambda p, d: epsilon_of(p, d, lambda p, log: p - log))
    rows = [(p, d, np.inf) for p in bad[:2] for d in (0.0, 0.5, 1.0, np.nan)] + [(np.inf, 0.5, np.inf)]
    rows += [(2.0, d, np.inf) for d in (0.0, -0.5, np.nan)] + [(0.0, d, np.inf) for d in (-0.5, np.nan)]
    rows += [(0.0, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 1.0, 0.0), (2.0, 1.0, 0.0), (0.5, 1.5, 0.0)]
    rows += [(1.0, 0.5, 1 - np.log(0.5)), (1.0, 1 - 2.0**-53, 1.0)]
    p, d, truth = np.array(rows).T
    np.testing.assert_allclose(epsilon(p, d), truth, rtol=1e-14)
