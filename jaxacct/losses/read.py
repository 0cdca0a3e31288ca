"""Reading delta(epsilon) and epsilon(delta) off a composed loss, with every error charged.

With tilted masses F_i at losses l_i, delta(eps) = exp(N - theta eps) sum_i F_i g(l_i - eps) + P(L = inf), where
g(x) = e^(-theta x) (1 - e^-x) for x > 0 and 0 below. Mass whose place is unknown is charged at the maximum of g,
(theta / (1 + theta))^theta / (1 + theta), at x = log(1 + 1 / theta). The true total loss lies within ``loss_error``
of the lattice's, so an upper bound is read at eps - loss_error and a lower one at eps + loss_error.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct._rounding import inflated
from jaxacct.losses.compose import Composition
from jaxacct.losses.possible import possible

__all__ = ["delta_bounds", "epsilon_bounds"]

_SIDES = np.arange(2, dtype=np.int32)  # 0 above, 1 below
_SUMMARY = 2**10  # points
_VANISHED = 1e-300  # more than all terms that a compiled program takes for 0
_SUM = 1e-11  # relative error of a sum of up to 2^20 non-negative terms, each good to 16 units


def _delta(composition: Composition, epsilon: Array, side: Array, charged: bool = True) -> tuple[Array, Array]:
    """Bound on delta(epsilon) from one side (0 above, 1 below) and its derivative in epsilon, unclipped.

    Without ``charged``, the missing mass is left out: no bound, but a monotone curve.
    """
    c, sign = composition, 1.0 - 2.0 * side
    n = c.masses.shape[-1]
    losses = c.origin + (c.lowest + jnp.arange(n, dtype=jnp.int32)) * c.spacing
    end = jnp.abs(c.origin) + jnp.maximum(jnp.abs(c.lowest), jnp.abs(c.lowest + n)) * c.spacing
    error = c.loss_error + 2.0**-50 * (end + jnp.abs(epsilon))
    x = losses - (epsilon - sign * error)
    inside = x > 0
    x = jnp.maximum(x, 0.0)
    worst = jnp.exp(c.theta * jnp.log(c.theta / (1.0 + c.theta))) / (1.0 + c.theta)
    exponent = c.log_normaliser - c.theta * (epsilon - sign * error)
    exponent_error = c.log_error + 2.0**-50 * (1.0 + jnp.abs(c.theta * epsilon) + jnp.abs(exponent))
    exponent = exponent + sign * exponent_error
    # The normaliser stays under the exponential of the decay: apart, one may vanish where the other is huge.
    decay = jnp.where(inside, jnp.exp(exponent - c.theta * x), 0.0)
    masses = c.masses[side]
    # Only a charge that is known to be nothing is nothing: NaN stays NaN, and bounds nothing.
    charge = jnp.where(c.missing[side] == 0, 0.0, jnp.exp(exponent) * c.missing[side] * worst)
    finite = inflated((masses * decay * -jnp.expm1(-x)).sum(), sign * _SUM) + (sign * charge if charged else 0.0)
    finite = finite + jnp.where(sign > 0, _VANISHED, 0.0) + jnp.where(exponent < jnp.inf, 0.0, jnp.nan)
    # An infinite loss and a finite one exclude each other; below, the arrays hold only what is finite.
    value = finite + c.infinite[side]
    return value, -(masses * decay * jnp.exp(-x)).sum()


def delta_bounds(composition: Composition, epsilon: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta(epsilon), scalar epsilon of any sign."""
    upper, lower = jax.vmap(lambda side: _delta(composition, epsilon, side)[0])(_SIDES)
    return possible(lower, upper, epsilon)


def epsilon_bounds(composition: Composition, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta, scalar delta in (0, 1).

    Newton's iteration on the curve of each side, then a certificate: the upper value is one at which the
    upper curve was evaluated and found at most ``delta``; the lower one likewise from the other side. Where no
    such point is found near the root, the ends of the lattice are tried, then infinity and 0.
    """
    upper, lower = jax.vmap(lambda side: _root(composition, delta, side))(_SIDES)
    return lower, upper


def _root(composition: Composition, delta: Array, side: Array) -> Array:
    c, sign = composition, 1.0 - 2.0 * side
    n = c.masses.shape[-1]
    start = c.origin + c.lowest * c.spacing
    end = c.origin + (c.lowest + n) * c.spacing

    def curve(epsilon: Array) -> tuple[Array, Array]:
        value, slope = _delta(c, epsilon, side)
        return jnp.where(jnp.isnan(value), 1.0 - side, value), slope

    def moved(value: Array, slope: Array) -> Array:
        # In log delta: the curve is close to exponential, where plain Newton would crawl.
        move = jnp.where(value > 0, value / jnp.minimum(slope, -1e-300) * jnp.log(delta / value), jnp.inf)
        return jnp.where(jnp.isnan(move), jnp.inf, move)

    # A search on a summary of the law in a thousand points: what is found only steers. Bisection needs a curve that
    # is monotone, without the charge; the charge is small only near the tilt's own epsilon.
    summary = _summary(c)

    def halve(bracket: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        low, high = bracket
        middle = 0.5 * (low + high)
        above = ~(_delta(summary, middle, side, charged=False)[0] <= delta)  # overflow is far below
        return (jnp.where(above, middle, low), jnp.where(above, high, middle)), None

    def step(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], None]:
        """Newton's, or half the bracket."""
        at, low, high = state
        value, slope = _delta(c, at, side, charged=False)
        above = ~(value <= delta)
        low, high = jnp.where(above, at, low), jnp.where(above, high, at)
        new = at + moved(value, slope)
        return (jnp.where((new > low) & (new < high), new, 0.5 * (low + high)), low, high), None

    def polish(epsilon: Array, _: None) -> tuple[Array, None]:
        move = moved(*curve(epsilon))
        return jnp.clip(epsilon + jnp.where(jnp.isfinite(move), move, 0.0), ends[0], ends[1]), None

    ends = (jnp.maximum(start, 0.0), jnp.maximum(end, 0.0))
    (low, high), _ = jax.lax.scan(halve, ends, None, length=16)
    # Joining moved losses by half a point of the summary at most.
    off = 0.5 * summary.spacing
    between = jnp.maximum(low - off, ends[0]), jnp.minimum(high + off, ends[1])
    (root, low, high), _ = jax.lax.scan(step, (0.5 * (low + high), *between), None, length=8)
    root, _ = jax.lax.scan(polish, root, None, length=3)
    # Candidates from the tightest to the safest; the first that the curve itself certifies is taken.
    nudges = jnp.asarray([1e-13, 1e-10, 1e-7, 1e-4])
    width = high - low
    near = root + sign * (jnp.abs(root) * nudges + nudges * jnp.maximum(width, 1e-300))
    last = jnp.where(side == 0, ends[1], ends[0])
    candidates = jnp.concatenate([near, jnp.stack([last])])
    candidates = jnp.maximum(candidates, 0.0)
    values = jax.lax.map(lambda candidate: curve(candidate)[0], candidates)
    below = side > 0
    good = jnp.where(below, values >= delta, values <= delta)
    lower = jnp.max(jnp.where(good, candidates, 0.0))
    upper = jnp.min(jnp.where(good, candidates, jnp.inf))
    at_zero = curve(jnp.zeros(()))[0] <= delta
    return jnp.where(below, lower, jnp.where(at_zero, 0.0, upper))


def _summary(composition: Composition) -> Composition:
    """The same law, not the tilted one, with neighbouring points joined in their middle; no bound."""
    c = composition
    n = c.masses.shape[-1]
    block = max(1, n // _SUMMARY)
    if n % block:
        return c
    middle = c.origin + (c.lowest + 0.5 * (block - 1)) * c.spacing
    tilt = jnp.exp(-c.theta * c.spacing * (np.arange(block) - 0.5 * (block - 1)))
    joined = (c.masses.reshape(2, -1, block) * tilt).sum(-1)
    return c._replace(masses=joined, origin=middle, lowest=jnp.zeros_like(c.lowest), spacing=block * c.spacing)
