"""Convex envelopes: the infimum of privacy profiles and the supremum of trade-off curves need one.

The infimum of profiles is the convex envelope of their pointwise minimum (Proposition 11 of the residue paper). On a
grid it is the envelope of the minima at the points: from below because chords of the minima lie below the minimum, from
above because the true envelope is one of the convex sequences below the minima.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, running_greatest
from jaxacct._numerics.curve_arrays import added, compiled, rows
from jaxacct._numerics.manual_axes import cond, fori_loop
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.grids.hockey_stick import at_lattice_points, discounted, relative_error
from jaxacct.losses.grids.supporting_lines import CellSums, line_errors, signed_below


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


_DEEP = 0.25
_SHARE = 1e-9  # a hundred times the rounding of 10,000 points, so that the check mostly finds nothing


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
