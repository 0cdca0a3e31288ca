"""Convex curves below others: envelopes of minima, and supporting lines of one privacy loss on grid points.

*Envelopes.* The infimum of profiles is the convex envelope of their pointwise minimum (Proposition 11 of the residue
paper), and the supremum of trade-off curves is one too. On a grid it is the envelope of the minima at the points: from
below because chords of the minima lie below the minimum, from above because the true envelope is one of the convex
sequences below the minima.

*Supporting lines* (docs/proofs/curves.md). With H the hockey-stick curve, lattice points gamma_k = exp(l_k) and
l_k+1 - l_k = h, each cell takes a supporting line of H: the one at its middle, or, where the density jumps and that
would make h non-convex, at the end towards the emptier neighbour (:class:`CellSums` has both). A spike at a lattice
point is no such jump. With

    x+_k = sum over the cell right of l_k, up to where its line touches H, of (p - gamma_k r),
    x-_k = sum over the cell left of l_k, from where its line touches H, of  (gamma_k r - p),

and e_k = max(x+_k, x-_k), the smaller of both lines at gamma_k is h_k = H(gamma_k) - e_k. The masses of h are those of
the chords of H minus the second difference of e. Nothing cancels, so rounding is a relative error of a few units, which
callers cover with :data:`ROUNDING`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, running_greatest
from jaxacct._numerics.curve_arrays import added, compiled, put, rows
from jaxacct._numerics.manual_axes import cond, fori_loop
from jaxacct._numerics.rounding import EPS, UNIT, deflated, inflated
from jaxacct.losses.grids.hockey_stick import at_lattice_points, discounted, relative_error

ROUNDING = 64.0 * UNIT
"""Relative margin that covers the dozen roundings between a mass and its place on the lattice."""

_JUMP = 4.0  # ratio of neighbouring densities that counts as a jump
_DEEP = 0.25
_SHARE = 1e-9  # a hundred times the rounding of 10,000 points, so that the check mostly finds nothing


@compiled("bound")
def infimum_excess(family: Any, losses: Array, bound: str) -> Array:
    """Excess of the infimum over the first axis, ``(members, ..., size)`` to ``(..., size)``, rounded to ``bound``."""
    return rows(lambda row: _envelope(row, losses, bound), family.min(0))


def _envelope(excess: Array, losses: Array, bound: str) -> Array:
    xp = array_module(excess, losses)
    gamma = xp.concatenate([xp.zeros(1), xp.exp(losses)])
    y = xp.concatenate([xp.zeros(1), excess])
    # H = 1 + E - min(gamma, 1) is what is convex.
    kept = lower_hull(gamma, y, xp.minimum(gamma, 1.0))
    n = losses.shape[0] + 1
    index = np.arange(n)
    before, after = _between(kept)
    at = xp.concatenate([xp.full(1, -np.inf), losses])
    a, c = at[before], at[after]
    # (gamma - gamma_a) / (gamma_c - gamma_a) from differences of losses; nothing overflows.
    inside = (before < index) & (index < after)
    back = xp.where(inside, at - a, 1.0)
    whole = xp.where(inside, c - a, 2.0)
    t = xp.exp(xp.where(inside, at - c, 0.0)) * xp.expm1(-back) / xp.expm1(-whole)
    low, high = y[before], y[after]
    straddles = inside & (a < 0) & (c > 0)
    under, over = xp.minimum(gamma, 1.0) - xp.minimum(gamma[before], 1.0), 1.0 - xp.minimum(gamma[before], 1.0)
    kink = xp.where(straddles, under - t * over, 0.0)
    value = low * (1.0 - t) + high * t + kink
    units = 16.0 * EPS * (1.0 + xp.where(inside, xp.abs(at - c), 0.0))
    error = units * (xp.maximum(low, high) + xp.where(straddles, 1.0, 0.0))
    if bound == "upper":
        found = xp.where(inside, value + error, y)
    else:
        found = xp.where(inside, xp.minimum(value - error, y), y)
    return xp.maximum(found[1:], 0.0)


def _between(kept: Any) -> tuple[Array, Array]:
    """The last kept index up to each one, and the first from there on."""
    xp, n = array_module(kept), kept.shape[0]
    index = np.arange(n)
    before = running_greatest(xp.where(kept, index, 0))
    return before, n - 1 - running_greatest(xp.where(kept, n - 1 - index, 0), reverse=True)


def lower_hull(x: Array, y: Array, kinks: Any = None) -> Array:
    """Which points are vertices of the lower convex hull; boolean, shape ``(n,)``, by Andrew's monotone chain.

    In JAX a loop of 2n steps, each one look at three points (vmaps without copying the stack). Rounding in a comparison
    can keep or drop a point that is within a few units of a line; callers leave room for that.

    Args:
        x: non-decreasing, shape ``(n,)``; among equal ones the smallest ``y`` comes first.
        y: values, shape ``(n,)``.
        kinks: values of a function that is taken off before comparing slopes, shape ``(n,)``: the hull is that of
            ``y - kinks``, without losing the digits of ``y`` where the function is linear.
    """
    n = x.shape[0]
    xp = array_module(x, y, 0.0 if kinks is None else kinks)
    bend = xp.zeros_like(y) if kinks is None else xp.asarray(kinks)

    def above(a: Array, b: Array, c: Array) -> Array:
        first, second = x[b] - x[a], x[c] - x[b]
        turn = (y[b] - y[a]) * second - (y[c] - y[b]) * first
        return turn - ((bend[b] - bend[a]) * second - (bend[c] - bend[b]) * first) >= 0

    if xp is np:
        return _chain(*(v.tolist() for v in (x, y, bend)))

    def step(_: Any, state: tuple[Any, Any, Any]) -> tuple[Array, Array, Array]:
        stack, top, index = state  # `top` points on the stack, `index` the next point
        here = jnp.minimum(index, n - 1)
        drop = (index < n) & (top >= 2) & above(stack[jnp.maximum(top - 2, 0)], stack[jnp.maximum(top - 1, 0)], here)
        push = (index < n) & ~drop
        place = jnp.minimum(top, n - 1)
        stack = stack.at[place].set(jnp.where(push, here, stack[place]))
        return stack, jnp.where(drop, top - 1, jnp.where(push, top + 1, top)), jnp.where(push, index + 1, index)

    zero = jnp.zeros((), jnp.int32)
    stack, top, _ = fori_loop(0, 2 * n, step, (jnp.zeros(n, jnp.int32), zero, zero))
    kept = jnp.where(jnp.arange(n) < top, stack, n)
    return jnp.zeros(n, bool).at[kept].set(True, mode="drop")


def _chain(x: list[float], y: list[float], bend: list[float]) -> np.ndarray:
    """The same loop over Python's floats, which are faster one by one than NumPy's."""
    stack: list[int] = []
    for c in range(len(x)):
        while len(stack) > 1:
            a, b = stack[-2:]
            first, second = x[b] - x[a], x[c] - x[b]
            turn = (y[b] - y[a]) * second - (y[c] - y[b]) * first
            if not turn - ((bend[b] - bend[a]) * second - (bend[c] - bend[b]) * first) >= 0:
                break
            stack.pop()
        stack.append(c)
    kept = np.zeros(len(x), bool)
    kept[stack] = True
    return kept


class CellSums(NamedTuple):
    """Sums of p - gamma_k r (right) and gamma_k+1 r - p (left) over each cell (l_k, l_k+1], shape ``(k,)``.

    ``left_mass`` and ``right_mass`` are the masses of the two halves of the cell, to see jumps and spikes.
    """

    right_half: Any
    left_half: Any
    right_whole: Any
    left_whole: Any
    left_mass: Any
    right_mass: Any


def line_errors(sums: CellSums, from_right: Any = False) -> tuple[Array, Array]:
    """x- and x+ of the module's docstring at the k + 1 lattice points, rounded up: how the cells' lines are chosen.

    Cells ``from_right`` have a line that touches at the right end, whatever speaks against it.
    """
    xp = array_module(*sums)
    held = sums.left_mass + sums.right_mass
    # The last cell's line touches at its right end, so that nothing is claimed beyond the lattice.
    empty_right = xp.pad(held[1:] < held[:-1] / _JUMP, (0, 1), constant_values=True)
    empty_left = xp.pad(held[:-1] < held[1:] / _JUMP, (1, 0))
    # The cell before a jump follows suit: its line's error must not exceed what the jump's cell can carry.
    near_left = empty_left | xp.pad(empty_left[:-1], (1, 0))
    near_right = empty_right | xp.pad(empty_right[1:], (0, 1))
    # A spike: next to all mass of the two cells around a point is in their halves next to it.
    inner = xp.pad(sums.left_mass, (0, 1)) + xp.pad(sums.right_mass, (1, 0))
    outer = xp.pad(sums.right_mass, (0, 1)) + xp.pad(sums.left_mass, (1, 0))
    spike = inner > _JUMP * outer
    spike = put(spike[1:] | spike[:-1], -1, False)
    touch_right = ((empty_right | (near_right & ~near_left)) & ~spike) | from_right
    touch_left = near_left & ~touch_right & ~spike
    right = xp.where(touch_right, sums.right_whole, xp.where(touch_left, 0.0, sums.right_half))
    left = xp.where(touch_right, 0.0, xp.where(touch_left, sums.left_whole, sums.left_half))
    return inflated(xp.pad(left, (1, 0)), ROUNDING), inflated(xp.pad(right, (0, 1)), ROUNDING)


def signed_below(chords: Any, error: Array, spacing: Any) -> Array:
    """Masses of the curve h of the module's docstring, ``(k + 1,)``, rounded down; negative where h is not convex.

    ``chords`` are the masses of the chords of H, ``error`` is e.
    """
    xp = array_module(chords, error, spacing)
    up, down = xp.expm1(spacing), -xp.expm1(-spacing)
    change, size = error[1:] - error[:-1], error[1:] + error[:-1]
    # Left of the first point h is the line through the origin's H, whose error falls to 0 at gamma = 0.
    moved = xp.concatenate([error[:1], change / down]) - xp.pad(change / up, (0, 1))
    size = chords + xp.concatenate([error[:1], size / down]) + xp.pad(size / up, (0, 1))
    return chords + moved - ROUNDING * size


def convex_below(chords: Array, sums: CellSums, spacing: Array) -> Array:
    """Masses below a curve, shape ``(k + 1,)``: where signed ones are negative, of their curve's convex envelope.

    The envelope is checked at every point.
    """
    xp = array_module(chords, *sums, spacing)
    masses = signed_below(chords, xp.maximum(*line_errors(sums)), spacing)

    def mended() -> Array:
        # A spike inside a cell: the line that passes under it goes through H = 0 near the cell's right end, and the
        # envelope would lose all that is above. From the right end it loses a part of the cell's width instead.
        _, curve = at_lattice_points(chords, spacing)
        error = 2.0 * relative_error(chords.shape[0])  # with room for the few operations that follow
        curve = deflated(curve, error)
        deep = sums.left_half > _DEEP * curve[1:]
        left, right = line_errors(sums, deep)
        # A line that has come down to 0 may as well stay there.
        below = xp.minimum(curve - left, xp.maximum(curve - right, 0.0))
        made = deflated(_pooled(signed_below(chords, curve - below, spacing), spacing), _SHARE)
        # Where rounding chose the wrong vertices the curve may be above the one that was meant. It is lowered by that.
        gap = inflated(at_lattice_points(made, spacing)[1], error) - below
        return lowered(made, spacing, xp.maximum(gap.max(), 0.0))

    if xp is np:
        return mended() if np.any(masses < 0) else masses
    return cond(jnp.any(masses < 0), mended, lambda: masses)


def _pooled(masses: Array, spacing: Array) -> Array:
    """Non-negative masses whose curve is the lower convex envelope of the one of signed ``masses``, up to rounding."""
    xp = array_module(masses, spacing)
    n = masses.shape[0]
    index = np.arange(n + 1)
    # gamma in units of the first lattice point's; an origin with gamma 0 stands before it. Where exp overflows no
    # point is dropped.
    gamma = xp.concatenate([xp.zeros(1), xp.exp(np.arange(n) * spacing)])
    curve = xp.concatenate([masses.sum()[None], at_lattice_points(masses, spacing)[1]])
    kept = lower_hull(gamma, curve) | ~xp.isfinite(gamma)
    before, after = _between(kept)
    # A point between two vertices gives its mass to both, P- and Q-mass kept. Next to the origin all goes up.
    inside = (before < index) & (index < after)
    back = xp.where(inside, (index - before) * spacing, 0.0)
    whole = xp.where(inside, (after - before) * spacing, 1.0)
    up = xp.where(before == 0, 1.0, xp.expm1(-back) / xp.expm1(-whole))
    every = xp.concatenate([xp.zeros(1), masses])
    made = xp.where(inside, 0.0, every)
    made = added(made, before, xp.where(inside, every * (1.0 - up), 0.0))
    made = added(made, after, xp.where(inside, every * up, 0.0))
    return xp.maximum(made[1:], 0.0)


def lowered(masses: Array, spacing: Array, by: Array) -> Array:
    """Masses of a law whose hockey stick is at most max(H - by, 0), H being that of ``masses``, shape ``(n,)``.

    Up to the last lattice point where H is at least ``by``, its curve is H minus its value there: what lies above that
    point becomes an atom there with the same Q-mass.
    """
    xp = array_module(masses, spacing, by)
    _, curve = at_lattice_points(masses, spacing)
    # Q-mass above each point, times exp of its loss: sum of m_i exp(l_k - l_i).
    factor = xp.exp(-spacing)
    weighed = discounted(factor * xp.concatenate([masses[1:], xp.zeros(1)]), factor)
    good = deflated(curve, 1e-9) >= by
    # The curve falls: the good points are the first ones. Where none is, nothing is left.
    index = np.arange(masses.shape[0])
    last = good.sum() - 1
    return xp.where(index < last, masses, xp.where(index == last, masses + deflated(weighed, 1e-9), 0.0))
