"""Convex curves below others, and the laws whose curves they are.

The infimum of profiles is the convex envelope of their pointwise minimum (Proposition 11 of the residue paper), and the
supremum of trade-off curves is one too. On a grid it is the envelope of the minima at the points: from below because
chords of the minima lie below the minimum, from above because the true envelope is one of the convex sequences below
the minima.

A convex curve on a grid is that of a law, P(L = log g) = g (H'(g+) - H'(g-)) (Proposition 5 of the residue paper). Its
masses are differences of slopes, each good to a few units of both. From above that much is added, negative masses are
called 0, which lifts H, and points at which the slope hardly changes are left out. From below the curve's envelope
takes its place, that much is taken away, and the law is scaled down by what rounding may have lifted it:
docs/proofs/curves.md, lemmas 1 and 2.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, running_greatest, running_least, take, xp
from jaxacct._numerics.curve_arrays import compiled, put, rows
from jaxacct._numerics.manual_axes import fori_loop
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.losses.grids.grid import LossGrid

_TINY = 1e-300  # what underflow may hide


@compiled("bound")
def infimum_excess(family: Array, losses: Array, bound: str) -> Array:
    """Excess of the infimum over the first axis, ``(members, ..., size)`` to ``(..., size)``, rounded to ``bound``."""

    def envelope(excess: Array) -> Array:
        value, error = _between_vertices(excess, losses, _vertices(excess, losses))
        found = value + error if bound == "upper" else xp.minimum(value - error, excess)
        return xp.maximum(found, 0.0)

    return rows(envelope, family.min(0))


def masses_of_excess(excess: Array, grid: LossGrid, bound: str) -> tuple[Array, Array]:
    """``(masses, infinity_mass)`` of the law whose curve has this excess, rounded to the side of ``bound``."""
    return _masses(excess, np.asarray(grid.spacing), np.asarray(-grid.lowest), bound)


# Grids are passed as arrays: a compiled program for every spacing would cost seconds each.
@compiled("bound")
def _masses(excess: Array, spacing: Array, zero: Array, bound: str) -> tuple[Array, Array]:
    size = excess.shape[-1]
    losses = (np.arange(size) - zero) * spacing

    def above(excess: Array) -> tuple[Array, Array]:
        masses, _, noise = _changes_of_slope(excess, losses, spacing, np.ones(size, bool))
        kept = put(masses > noise, -1, True)
        masses, error, _ = _changes_of_slope(excess, losses, spacing, kept)
        return xp.where(kept, xp.maximum(masses + error, 0.0), 0.0), excess[-1]

    def below(excess: Array) -> tuple[Array, Array]:
        # No curve rises, whatever its bounds do.
        excess = xp.where(losses >= 0, running_least(xp.where(losses >= 0, excess, np.inf)), excess)
        kept = _vertices(excess, losses)
        masses, error, _ = _changes_of_slope(excess, losses, spacing, kept)
        signed = xp.where(kept, masses - error - xp.where(masses > 0, _TINY, 0.0), 0.0)
        infinite = xp.maximum(excess[-1], 0.0)
        masses = xp.maximum(signed, 0.0)
        # What is lifted, as a share of the law: by masses that were negative, and by points that rounding left out.
        lifted, held = (xp.cumsum(x[::-1])[::-1] for x in (masses - signed, masses))
        lifted = lifted + (infinite - excess[-1])
        shares = xp.where(lifted > 0, lifted / (held + infinite), 0.0)
        value, off = _between_vertices(excess, losses, kept)
        gap = value + off - excess
        height = value - xp.expm1(xp.minimum(losses, 0.0))
        missed = xp.where(gap > 0, xp.where(height > 0, gap / height, 1.0), 0.0)
        share = inflated(shares.max() + missed.max(), 8.0 * size * EPS) + 8.0 * EPS
        whole = xp.where(share < 1.0, 1.0 - share, 0.0)  # NaN is nothing
        return masses * whole, infinite * whole

    return rows(above if bound == "upper" else below, excess)


def _changes_of_slope(excess: Array, losses: Array, spacing: Array, kept: Array) -> tuple[Array, Array, Array]:
    """gamma times the change of slope at the points that are ``kept``, the last among them; and its rounding error.

    The third is what a few units of gamma and of the excess make of it.
    """
    n = excess.shape[0]
    gamma, index = xp.exp(losses), np.arange(1, n + 1)
    # Point 0 is the origin, where H is 1.
    before, after = _beside(xp.concatenate([xp.ones(1, bool), kept]))
    before, after = before[:-1], xp.concatenate([after[2:], after[-1:]])
    values, at = xp.concatenate([xp.zeros(1), excess]), xp.concatenate([xp.full(1, -np.inf), losses])
    ahead, back = xp.maximum(after - index, 1) * spacing, xp.where(before > 0, (index - before) * spacing, np.inf)
    up, down = xp.expm1(ahead), -xp.expm1(-back)
    right, left = (values[after] - excess) / up, (excess - values[before]) / down
    # The same of 1 - min(gamma, 1); on both sides of a point that is not at loss 0 it is one number.
    fall = xp.where(losses >= 0, 0.0, xp.where(take(at, after) <= 0, gamma, -xp.expm1(losses) / up))
    behind = take(at, before)
    fallen = xp.where(behind >= 0, 0.0, xp.where(losses <= 0, gamma, -xp.expm1(behind) / down))
    kink = xp.where(fallen == fall, 0.0, fallen + fall)
    sizes = (values[after] + excess) / up + (values[before] + excess) / down + kink
    # An exponential is off by as many units as its argument is nats; exp(-back) is as much smaller.
    error = 16.0 * EPS * (xp.abs(right) * (1.0 + ahead) + xp.abs(left) + kink)
    return (right - left) + (fallen - fall), error, 4.0 * EPS * sizes * (1.0 + xp.abs(losses))


def _vertices(excess: Array, losses: Array) -> Array:
    """Which points are vertices of the convex envelope of the curve, H = 1 + E - min(gamma, 1)."""
    gamma = xp.concatenate([xp.zeros(1), xp.exp(losses)])
    return lower_hull(gamma, xp.concatenate([xp.zeros(1), excess]), xp.minimum(gamma, 1.0))[1:]


def _between_vertices(excess: Array, losses: Array, kept: Array) -> tuple[Array, Array]:
    """The excess at all points of the curve that is linear between those that are ``kept``, and its rounding error."""
    gamma = xp.concatenate([xp.zeros(1), xp.exp(losses)])
    y, at = xp.concatenate([xp.zeros(1), excess]), xp.concatenate([xp.full(1, -np.inf), losses])
    index = np.arange(y.shape[0])
    before, after = _beside(xp.concatenate([xp.ones(1, bool), kept]))
    a, c = take(at, before), take(at, after)
    # (gamma - gamma_a) / (gamma_c - gamma_a) from differences of losses; nothing overflows.
    inside = (before < index) & (index < after)
    back = xp.where(inside, at - a, 1.0)
    whole = xp.where(inside, c - a, 2.0)
    t = xp.exp(xp.where(inside, at - c, 0.0)) * xp.expm1(-back) / xp.expm1(-whole)
    low, high = y[before], y[after]
    straddles = inside & (a < 0) & (c > 0)
    capped = xp.minimum(gamma, 1.0)
    under, over = capped - take(capped, before), 1.0 - take(capped, before)
    kink = xp.where(straddles, under - t * over, 0.0)
    value = low * (1.0 - t) + high * t + kink
    units = 16.0 * EPS * (1.0 + xp.where(inside, xp.abs(at - c), 0.0))
    error = units * (xp.maximum(xp.abs(low), xp.abs(high)) + xp.where(straddles, 1.0, 0.0))
    return xp.where(inside, value, y)[1:], xp.where(inside, error, 0.0)[1:]


def _beside(kept: Array) -> tuple[Array, Array]:
    """The last kept index up to each one, and the first from there on."""
    n = kept.shape[0]
    index = np.arange(n)
    before = running_greatest(xp.where(kept, index, 0))
    return before, n - 1 - running_greatest(xp.where(kept, n - 1 - index, 0), reverse=True)


def lower_hull(x: Array, y: Array, kinks: Array | None = None) -> Array:
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
    bend = xp.zeros_like(y) if kinks is None else kinks
    if array_module(x, y, bend) is np:
        return _chain(*(v.tolist() for v in (x, y, bend)))
    x, y, bend = (jnp.asarray(v) for v in (x, y, bend))

    def above(a: Array, b: Array, c: Array) -> Array:
        first, second = x[b] - x[a], x[c] - x[b]
        turn = (y[b] - y[a]) * second - (y[c] - y[b]) * first
        return turn - ((bend[b] - bend[a]) * second - (bend[c] - bend[b]) * first) >= 0

    def step(_: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        stack, top, index = state  # `top` points on the stack, `index` the next point
        here = jnp.minimum(index, n - 1)
        drop = (index < n) & (top >= 2) & above(stack[jnp.maximum(top - 2, 0)], stack[jnp.maximum(top - 1, 0)], here)
        push = (index < n) & ~drop
        place = jnp.minimum(top, n - 1)
        stack = put(stack, place, jnp.where(push, here, stack[place]))
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
