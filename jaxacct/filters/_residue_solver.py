"""The largest m with G_m * L <= G_mu, certified: what is left of a GDP budget after any query.

The budget is G_mu with an atom at infinity, the query a law L with atoms l_i of mass p_i, and maybe one at infinity.
Over losses s >= 0 the budget's loss has the density a(s) = N(s; mu^2 / 2, mu^2), and a(s) R(s) is that of G_m * L,

    R(s) = exp(-kappa s^2) sum_i p_i (mu / m) exp(l_i (s - l_i / 2) / m^2 - l_i / 2 + (mu^2 - m^2) / 8),
    kappa = (1 / m^2 - 1 / mu^2) / 2.

With rho = (1 - d') / (1 - d), the ratio of what the two atoms at infinity leave, and f = 1 - rho R, the residue
condition at gamma = e^t is D(t) >= 0 for

    D(t) = room + integral over s > t of (1 - e^(t - s)) a(s) f(s) ds,      d^2 D / d gamma^2 = a f / gamma^2.

For t >= 0 in both directions of the query this is the condition at every gamma: budgets are symmetric (Lemma 16).

*A minorant with finitely many numbers.* The sum in R is log-convex, so R'' >= -2 kappa R, and R lies below its chords
plus kappa h^2 / 4 times its maximum on a cell of length h. So f lies above a piecewise linear function, whose integral
against a and a e^-s is had from eight Gauss nodes a cell to 1e-10 (Bernstein ellipse with rho = 16, for cells of
h x <= 2 mu, x the distance from a's centre in standard deviations). What is beyond the last node T is either bounded
by a Chernoff bound and charged to the room, or known to help (f >= 0 from T on, as log R falls there). Within a cell
the minorant's second derivative is bounded from below by its corners, so it lies above a parabola from either end,
whose least value is compared with 0. Rounding is in the same margins.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import erf

__all__ = ["certified", "largest", "largest_for_response"]

_UNIT = 2.0**-52
_EXPONENTIALS = 2**14
_GAUSS, _WEIGHTS = (x.astype(np.float64) for x in np.polynomial.legendre.leggauss(8))
_AT = 0.5 * (1.0 + _GAUSS)  # position in a cell, 0 to 1
_STRETCH = 1.0
# Candidates for the last node T, in units of mu: beyond the turn where f >= 0, and for what is beyond to be little.
_AFTER = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0])
_ENDS = np.geomspace(3.0, 36.0, 40)
_QUADRATURE = 1e-10
_FURTHER = 4.0  # beyond where f >= 0 for certain, in units of mu: what it adds there is left out
_SQRT_2PI = math.sqrt(2.0 * math.pi)


class Check(NamedTuple):
    """Whether the condition certainly holds at some m, and how much mu^2 - m^2 a Newton step would add."""

    holds: Array
    step: Array


@functools.cache
def _positions(nodes: int) -> np.ndarray:
    """Nodes in [0, 1], twice as dense at 0 as on average."""
    line = np.linspace(0.0, 1.0, nodes)
    return line * (1.0 + line) / 2.0


def _suffix(cells: Array) -> Array:
    """Sums over cells from each node on, 0 at the last node; shape (..., n) to (..., n + 1)."""
    sums = jnp.flip(jnp.cumsum(jnp.flip(cells, -1), -1), -1)
    return jnp.pad(sums, [(0, 0)] * (cells.ndim - 1) + [(0, 1)])


def _sum_of_exponentials(constant: Array, rates: Array, at: Array, lift: Array) -> Array:
    """Sum over i of exp(constant_i + rates_i at - lift), shape of ``at``."""
    # Kept apart from what makes its arguments, which XLA would repeat for every term; summed over the leading axis, as
    # only that is vectorised.
    constant, rates, at, lift = jax.lax.optimization_barrier((constant, rates, at, lift))
    return jnp.sum(jnp.exp(constant[:, None] + rates[:, None] * at - lift), 0)


def _tail(mu: Array, losses: Array, masses: Array, room: Array, ratio: Array) -> Array:
    """A loss above which even G_mu * L has at most a 32nd of the room, by Chernoff; inf if there is none."""
    ends = mu * _ENDS
    y = (ends - jnp.where(masses > 0, losses, 0.0)[:, None]) / mu - 0.5 * mu
    beyond = jnp.sum(jnp.where(y > 0, 0.5 * jnp.exp(-0.5 * y * y), 1.0) * masses[:, None], 0) * ratio * (1.0 + 1e-9)
    return jnp.min(jnp.where((beyond <= room / 32.0) & (room > 0), ends, jnp.inf))


def certified(mu: Array, charge: Array, losses: Array, masses: Array, room: Array, ratio: Array, tail: Array) -> Check:
    """Whether budget G_m, m^2 = mu^2 - charge, is certainly a residue for one direction of the query.

    Args:
        mu: > 0, scalar.
        charge: in (0, mu^2), scalar.
        losses: shape ``(atoms,)``, finite; any where the mass is 0.
        masses: shape ``(atoms,)``, >= 0.
        room: D at infinity, >= 0.
        ratio: rho, >= 1.
        tail: of `_tail`, for any m at most mu.
    """
    m2 = mu * mu - charge
    m = jnp.sqrt(m2)
    kappa = 0.5 * charge / (m2 * mu * mu)
    seen = masses > 0
    losses = jnp.where(seen, losses, 0.0)
    reach = jnp.max(jnp.abs(losses))
    constant = jnp.log(masses) - losses * (0.5 * losses / m2 + 0.5) + (0.125 * charge + jnp.log(mu / m))
    # log R has a slope of at most top / m^2 - 2 kappa s: from s = turn on R falls, so f >= 0 once it is so.
    turn = jnp.maximum(jnp.max(jnp.where(seen, losses, -jnp.inf)), 0.0) / (2.0 * kappa * m2) * (1.0 + 1e-9)
    after = turn + mu * _AFTER
    heights = _sum_of_exponentials(constant, losses, after / m2, kappa * after * after)
    safe = jnp.min(jnp.where(heights * ratio <= 1.0 - 1e-9, after, jnp.inf))
    helps = safe + _FURTHER * mu
    lost = jnp.where(tail < helps, room / 32.0, 0.0)
    end = jnp.minimum(tail, helps)

    t = end * _positions(max(128, min(1024, _EXPONENTIALS // losses.shape[-1])))
    width = jnp.diff(t)
    density = lambda s: jnp.exp(-0.5 * jnp.square(s / mu - 0.5 * mu)) / (mu * _SQRT_2PI)  # noqa: E731
    lift = kappa * t * t
    r = ratio * _sum_of_exponentials(constant, losses, t / m2, lift)
    bend = 0.25 * kappa * width * width
    concave = bend / (1.0 - bend) * jnp.maximum(r[1:], r[:-1])
    # Of exponents, logarithms of masses among them, and of mu^2 = m^2 + charge, which holds to a unit of mu^2.
    sizes = 100.0 + lift[-1] + end * end / m2 + reach * ((end + reach) / m2 + 1.0) + 0.125 * mu * mu
    rounding = 32.0 * _UNIT * sizes + 1e-14
    bent = jnp.maximum(jnp.pad(concave, (0, 1)), jnp.pad(concave, (1, 0)))
    f = 1.0 - (r * (1.0 + rounding) + bent) * (1.0 + 1e-14)

    s = t[:-1] + width * _AT[:, None]
    a = density(s) * (0.5 * width) * _WEIGHTS[:, None]
    b = a * jnp.exp(-s)
    weights = [(jnp.sum(x * (1.0 - _AT[:, None]), 0), jnp.sum(x * _AT[:, None], 0)) for x in (a, b)]
    parts = [start * y[:-1] + stop * y[1:] for start, stop in weights for y in (f, jnp.abs(f))]
    p, p_size, q, q_size = _suffix(jnp.stack(parts))
    gamma = jnp.exp(t)
    slope, doubt = gamma * q, _QUADRATURE * gamma * q_size
    value = (room - lost) + (p - slope) - (_QUADRATURE * p_size + doubt) - 1e-15 * room
    # Parabolas below the minorant on each cell, from its left and its right end, in units of gamma there.
    least, a_node = jnp.minimum(f[:-1], f[1:]), density(t)
    grow = jnp.exp(width)
    curve = jnp.where(least >= 0, least * a_node[1:] / (grow * grow), least * a_node[:-1])
    curve = curve - 1e-9 * jnp.abs(curve)
    left = _least(value[:-1], -(slope + doubt)[:-1], curve, jnp.expm1(width))
    right = _least(value[1:], (slope - doubt)[1:], curve * grow * grow, -jnp.expm1(-width))
    bound = jnp.maximum(left, right)
    far = jnp.maximum(t[1:] / mu + 0.5 * mu, 1.0)
    fit = jnp.all(width * far <= 2.0 * mu) & jnp.all(width <= 0.5 * mu) & (end <= 36.0 * mu) & (mu <= 20.0)
    fit &= (room >= 0) & jnp.all(bend < 0.5) & jnp.isfinite(end) & (charge > 0) & (m2 > 0)
    holds = fit & jnp.all(bound >= 0)
    # How H_m moves with m^2, roughly: what a Newton step divides by.
    pull = jnp.exp(-0.5 * jnp.square(t[:-1] / mu - 0.5 * mu)) / (2.0 * _SQRT_2PI * mu)
    matters = (t[:-1] < safe) | (tail < helps)
    return Check(holds, jnp.max(jnp.where(matters, -bound / jnp.maximum(pull, 1e-280), -jnp.inf)))


def _least(value: Array, slope: Array, curve: Array, reach: Array) -> Array:
    """Minimum of value + slope x + curve x^2 / 2 over 0 <= x <= reach."""
    at_end = value + reach * (slope + 0.5 * curve * reach)
    inside = (curve > 0) & (slope < 0) & (-slope < curve * reach)
    vertex = value - 0.5 * slope * slope / jnp.where(inside, curve, 1.0)
    return jnp.where(inside, vertex, jnp.minimum(value, at_end))


def largest(
    mu: Array, losses: Array, masses: Array, room: Array, ratio: Array, start: Array, tolerance: float, tries: int
) -> Array:
    """A certified residue m of all directions, next to the largest; -1 where none was found.

    Args:
        mu: scalar; not a number above 0 finds none.
        losses: shape ``(directions, atoms)``.
        masses: shape ``(directions, atoms)``.
        room: shape ``(directions,)``.
        ratio: scalar.
        start: a first guess of mu^2 - m^2; it only steers.
        tolerance: relative, of mu^2 - m^2: when to stop.
        tries: the most certificates that are looked at.
    """
    whole = mu * mu
    good = (mu > 0) & (mu < jnp.inf)
    safe = jnp.where(good, mu, 1.0)

    tails = jax.vmap(lambda x, p, r: _tail(safe, x, p, r, ratio))(losses, masses, room)

    def look(charge: Array) -> Check:
        found = jax.vmap(lambda x, p, r, t: certified(safe, charge, x, p, r, ratio, t))(losses, masses, room, tails)
        return Check(jnp.all(found.holds), jnp.max(found.step))

    def go(state: tuple[Array, ...]) -> tuple[Array, ...]:
        charge, fails, holds, tried, _ = state
        found = look(charge)
        fails = jnp.where(found.holds, fails, jnp.maximum(fails, charge))
        holds = jnp.where(found.holds, jnp.minimum(holds, charge), holds)
        step = jnp.where(jnp.isnan(found.step), jnp.inf, found.step)
        done = found.holds & (-step <= tolerance * charge)
        wanted = (charge + step) * (1.0 + 0.5 * tolerance)
        middle = jnp.where(fails > 0, jnp.sqrt(fails * holds), 0.5 * holds)
        inside = (wanted > fails * (1.0 + 0.1 * tolerance)) & (wanted < holds)
        done |= holds - fails <= tolerance * holds
        return jnp.where(inside, wanted, middle), fails, holds, tried + 1, done

    limit = safe * safe * (1.0 - 1e-9)
    first = jnp.clip(start, 1e-14 * limit, 0.5 * limit)
    zero = jnp.zeros_like(limit)
    state = (first, zero, limit, jnp.zeros((), jnp.int32), ~good)
    _, _, holds, _, _ = jax.lax.while_loop(lambda s: ~s[4] & (s[3] < tries), go, state)
    # m^2 = mu^2 - charge in floating point, and its root, are off by a few units; a smaller m is a residue too.
    m = jnp.sqrt(jnp.maximum(whole - holds, 0.0)) * (1.0 - 2.0**-50)
    return jnp.where(good & (holds < limit), m, -1.0)


def largest_for_response(mu: Array, epsilon: Array) -> Array:
    """The residue after randomized response, TV(G_m * RR_epsilon) = TV(G_mu), rounded down; -1 where there is none.

    p erf((m / 2 + e / m) / sqrt 2) + (1 - p) erf((m / 2 - e / m) / sqrt 2) = erf(mu / sqrt 8): for this query order 1
    alone decides the residue condition. Any epsilon-DP query has at least this residue.
    """
    good = (mu > 0) & (mu < jnp.inf) & (epsilon >= 0) & (epsilon < jnp.inf)
    mu, epsilon = jnp.where(good, mu, 1.0), jnp.where(good, epsilon, 0.0)
    p = jax.nn.sigmoid(epsilon)
    root = math.sqrt(0.5)
    target = erf(mu * (0.5 * root))

    def left(m: Array) -> Array:
        safe = jnp.maximum(m, 1e-300)
        up, down = (0.5 * safe + epsilon / safe) * root, (0.5 * safe - epsilon / safe) * root
        plus, minus = p * erf(up), (1.0 - p) * erf(down)
        # Each erf is good to 8 units, and so is what it is taken of, which moves it by less than a unit of 1.
        return target - (plus + minus) - 16.0 * _UNIT * (target + plus + jnp.abs(minus))

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        fits = left(middle) >= 0
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    zero = jnp.zeros_like(target)
    low, _ = jax.lax.fori_loop(0, 56, halve, (zero, jnp.broadcast_to(mu, zero.shape)))
    return jnp.where(good & ((low > 0) | (left(zero) >= 0)), low, -1.0)
