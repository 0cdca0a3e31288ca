"""The largest m such that the composition of G_m and L is dominated by G_mu, certified (docs/proofs/filters.md, 3).

The budget is G_mu with an atom at infinity, the query a law L with atoms l_i of mass p_i, and maybe one at infinity.
Over losses s >= 0 the budget's loss has the density a(s) = N(s; mu^2 / 2, mu^2), and a(s) R(s) is that of G_m * L,

    R(s) = exp(-kappa s^2) sum_i p_i (mu / m) exp(l_i (s - l_i / 2) / m^2 - l_i / 2 + (mu^2 - m^2) / 8),
    kappa = (1 / m^2 - 1 / mu^2) / 2.

With rho = (1 - d') / (1 - d), the ratio of what the two atoms at infinity leave, and f = 1 - rho R, the residue
condition at gamma = e^t, for t >= 0 and both directions of the query, is D(t) >= 0 for

    D(t) = room + integral over s > t of (1 - e^(t - s)) a(s) f(s) ds,      d^2 D / d gamma^2 = a f / gamma^2.

A minorant of D with finitely many numbers is compared with 0: chords of R raised by `bend`, eight Gauss nodes a cell, a
Chernoff bound or a known sign beyond the last node, and within a cell parabolas from either end.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.host import barrier, each, floats, loop
from jaxacct._numerics.rounding import EPS, deflated, inflated

_EXPONENTIALS = 2**14
_BLOCK = 8
_RANGE = 600.0  # of exponents: a product of which one factor underflows is below exp(600 - 708) then
_GAUSS, _WEIGHTS = (x.astype(np.float64) for x in np.polynomial.legendre.leggauss(8))
_AT = 0.5 * (1.0 + _GAUSS)  # position in a cell, 0 to 1
_ROUNDS = 3
# Candidates for the last node T, in units of mu: beyond the turn where f >= 0, and for what is beyond to be little.
_AFTER = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
_ENDS = np.geomspace(3.0, 36.0, 24)
_QUADRATURE = 1e-10
_FURTHER = 4.0  # beyond where f >= 0 for certain, in units of mu: what it adds there is left out
_SQRT_2PI = math.sqrt(2.0 * math.pi)


class Nodes(NamedTuple):
    """The nodes t of one direction and what of the condition does not depend on m."""

    unit: Array  # the nodes' distance, twice as much in the further half
    t: Array  # shape ``(nodes,)``, from 0
    gamma: Array  # exp(t)
    density: Array  # a(t)
    start: Array  # shape ``(2, cells)``: integrals over a cell of a and of a e^-s, times what falls from 1 to 0 there
    stop: Array  # the other way round
    room: Array  # what is left of it for t within the nodes
    bounded: Array  # whether that is for a bound on everything beyond the last node; otherwise f >= 0 must hold there
    safe: Array  # where f >= 0 was first seen; only steers
    fit: Array  # whether the quadrature's error is proven


class Check(NamedTuple):
    """Whether the condition certainly holds at some m, and how much mu^2 - m^2 a Newton step would add."""

    holds: Array
    step: Array


@functools.cache
def _pattern(atoms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes 0, 1, 2, ... and then by twos, as many of either: all of them, and blocks' centres and offsets."""
    half = max(80, min(256, _EXPONENTIALS // (2 * atoms)) // _BLOCK * _BLOCK)
    first = np.arange(half, dtype=np.float64)
    nodes = np.stack([first, half + 2.0 * first]).reshape(2, -1, _BLOCK)
    centres = nodes.mean(-1)
    return nodes.reshape(-1), centres, (nodes - centres[..., None])[:, 0]


def _suffix(cells: Array) -> Array:
    """Sums over cells from each node on, 0 at the last node; shape (..., n) to (..., n + 1)."""
    xp = array_module(cells)
    sums = xp.flip(xp.cumsum(xp.flip(cells, -1), -1), -1)
    return xp.concatenate([sums, xp.zeros_like(cells[..., :1])], -1)


def _sum_of_exponentials(constant: Array, rates: Array, at: Array, lift: Array) -> Array:
    """Sum over i of exp(constant_i + rates_i at - lift), shape of ``at``."""
    # Kept apart from what makes its arguments, which XLA would repeat for every term; summed over the leading axis, as
    # only that is vectorised.
    constant, rates, at, lift = barrier((constant, rates, at, lift))
    xp = array_module(constant, rates, at, lift)
    return xp.sum(xp.exp(constant[:, None] + rates[:, None] * at - lift), 0)


def _at_nodes(constant: Array, rates: Array, kappa: Array, unit: Array, end: Array) -> Array:
    """At least the sum over i of exp(constant_i + rates_i t - kappa t^2), but for rounding, at the nodes t.

    A node is a block's centre c and an offset o, and exp(rate t) = exp(rate c) exp(rate o): a product of matrices.
    Terms whose second factor is out of range are replaced by their maximum over all nodes.
    """
    _, centres, offsets = _pattern(rates.shape[-1])
    xp = array_module(constant, rates, kappa, unit, end)
    furthest = offsets.max() * unit
    near = xp.abs(rates) * furthest + 2.0 * kappa * end * furthest <= _RANGE
    far = xp.sum(xp.where(near, 0.0, xp.exp(constant + xp.maximum(rates, 0.0) * end)))
    c, o = centres * unit, offsets * unit
    one = xp.exp(xp.where(near, constant, -np.inf)[:, None, None] + rates[:, None, None] * c - kappa * c * c)
    # exp(rate o) for o = 0.5, 1.5, 2.5, 3.5 units, and the same of two units, as powers.
    base = xp.exp(xp.where(near, rates, 0.0) * (0.5 * unit))
    base = xp.stack([base, base * base])
    square = base * base
    odd = [base]
    for _ in range(_BLOCK // 2 - 1):
        odd.append(odd[-1] * square)
    up = xp.stack(odd, 1)
    other = xp.concatenate([xp.flip(1.0 / up, 1), up], 1)
    one, other = barrier((one, other))
    # Sums over i of one_ihb other_hoi.
    exact = {} if xp is np else {"precision": "highest"}
    sums = xp.matmul(xp.transpose(one, (1, 2, 0)), xp.transpose(other, (0, 2, 1)), **exact)
    return (sums * xp.exp(-kappa * (2.0 * c[..., None] + o[:, None]) * o[:, None])).reshape(-1) + (far + 1e-40)


def _tail(mu: Array, losses: Array, masses: Array, room: Array, ratio: Array) -> Array:
    """A loss above which even G_mu * L has at most a 32nd of the room, by Chernoff; inf if there is none."""
    xp, ends = array_module(mu, losses, masses, room, ratio), mu * _ENDS
    y = (ends - losses[:, None]) / mu - 0.5 * mu
    beyond = inflated(xp.sum(xp.where(y > 0, 0.5 * xp.exp(-0.5 * y * y), 1.0) * masses[:, None], 0) * ratio, 1e-9)
    return xp.min(xp.where((beyond <= room / 32.0) & (room > 0), ends, np.inf))


def _nodes(mu: Array, charge: Array, losses: Array, masses: Array, room: Array, ratio: Array) -> Nodes:
    """Where to look for one direction of a query whose charge is near ``charge``; `certified` decides anew."""
    xp = array_module(mu, charge, losses, masses, room, ratio)
    m2, kappa, constant, turn = _law(mu, charge, losses, masses)
    after = turn + mu * _AFTER
    heights = _sum_of_exponentials(constant, losses, after / m2, kappa * after * after)
    safe = xp.min(xp.where(heights * ratio <= 1.0 - 1e-9, after, np.inf))
    tail = _tail(mu, losses, masses, room, ratio)
    bounded = tail < safe + _FURTHER * mu
    end = xp.where(bounded, tail, safe + _FURTHER * mu)

    pattern, _, _ = _pattern(losses.shape[-1])
    unit = end / pattern[-1]
    t, width = unit * pattern, unit * np.diff(pattern)
    density = lambda s: xp.exp(-0.5 * xp.square(s / mu - 0.5 * mu)) / (mu * _SQRT_2PI)  # noqa: E731
    s = t[:-1] + width * _AT[:, None]
    a = density(s) * (0.5 * width) * _WEIGHTS[:, None]
    fall = xp.exp(-unit * _AT)
    fall = xp.repeat(xp.stack([fall, fall * fall], 1), np.array([t.size // 2, t.size // 2 - 1]), 1)
    b = a * fall * xp.exp(-t[:-1])
    start, stop = (xp.stack([xp.sum(x * y[:, None], 0) for x in (a, b)]) for y in (1.0 - _AT, _AT))
    # Cells of h x <= 2 mu: the last one, of two units, is the widest and the farthest. So end / mu is below 28, and h
    # below mu / 7. Nothing underflows: with x = end / mu + mu / 2 that is x (x - mu / 2) <= pattern[-1] <= 766, so
    # x <= 33.2 for these mu, and a e^-s is above e^(-x^2 / 2) / 60.
    fit = (unit * (end / mu + 0.5 * mu) <= mu) & (mu <= 20.0) & (room >= 0)
    left = room * xp.where(bounded, 31.0 / 32.0, 1.0)
    return Nodes(unit, t, xp.exp(t), density(t), start, stop, left, bounded, safe, fit)


def _law(mu: Array, charge: Array, losses: Array, masses: Array) -> tuple[Array, Array, Array, Array]:
    """m^2, kappa, the logarithms of the sum's terms at s = 0, and the loss from which on R falls."""
    xp, m2 = array_module(mu, charge, losses, masses), mu * mu - charge
    kappa = 0.5 * charge / (m2 * mu * mu)
    constant = xp.log(masses) - losses * (0.5 * losses / m2 + 0.5) + (0.125 * charge + 0.5 * xp.log(mu * mu / m2))
    # log R has a slope of at most top / m^2 - 2 kappa s: from s = turn on R falls, so f >= 0 once it is so.
    return m2, kappa, constant, inflated(xp.maximum(xp.max(losses), 0.0) / (2.0 * kappa * m2), 1e-9)


def certified(mu: Array, charge: Array, losses: Array, masses: Array, ratio: Array, nodes: Nodes) -> Check:
    """Whether budget G_m, m^2 = mu^2 - charge, is certainly a residue for one direction of the query.

    Atoms have finite losses, 0 where the mass is, shape ``(atoms,)``; ``ratio`` is rho, >= 1. ``nodes`` may be of any
    charge, and are best of a near one.
    """
    xp = array_module(mu, charge, losses, masses, ratio, nodes)
    unit, t, gamma, density, start, stop, room, bounded, safe, fit = nodes
    m2, kappa, constant, turn = _law(mu, charge, losses, masses)
    reach, end = xp.max(xp.abs(losses)), t[-1]
    width = unit * np.diff(_pattern(losses.shape[-1])[0])
    r = ratio * _at_nodes(constant, losses / m2, kappa, unit, end)
    bend = 0.25 * kappa * width * width
    concave = bend / (1.0 - bend) * xp.maximum(r[1:], r[:-1])
    # Of exponents, logarithms of masses among them, and of mu^2 = m^2 + charge, which holds to a unit of mu^2.
    sizes = 100.0 + kappa * end * end + end * end / m2 + reach * ((end + reach) / m2 + 1.0) + 0.125 * mu * mu
    rounding = (32.0 * sizes + losses.shape[-1]) * EPS + 1e-14
    none = xp.zeros_like(concave[:1])
    bent = xp.maximum(xp.concatenate([concave, none]), xp.concatenate([none, concave]))
    f = 1.0 - inflated(inflated(r, rounding) + bent, 1e-14)

    parts = [start * y[:-1] + stop * y[1:] for y in (f, xp.abs(f))]
    (p, q), (p_size, q_size) = _suffix(xp.stack(parts))
    slope, doubt = gamma * q, _QUADRATURE * gamma * q_size
    value = room + (p - slope) - (_QUADRATURE * p_size + doubt) - 1e-15 * room
    bound = _on_cells(value, slope, doubt, f, density, width)
    beyond = bounded | ((turn <= end) & (f[-1] >= 1e-9))
    ok = fit & beyond & (bend[-1] < 0.5) & xp.isfinite(end) & (charge > 0) & (m2 > 0)
    # How H_m moves with m^2, roughly: what a Newton step divides by.
    pull = 0.5 * density[:-1]
    matters = (t[:-1] < safe) | bounded
    return Check(ok & xp.all(bound >= 0), xp.max(xp.where(matters, -bound / xp.maximum(pull, 1e-280), -np.inf)))


def _on_cells(value: Array, slope: Array, doubt: Array, f: Array, density: Array, width: Array) -> Array:
    """At most the minorant's least value on each cell: parabolas from either end, in units of gamma there, below it.

    ``value`` and ``slope`` (gamma times what is after it against a e^-s, good to ``doubt``), ``f`` and ``density`` are
    at the nodes. The second derivative is a f / gamma^2, and a / gamma^2 falls: its log has a slope of -3 / 2 - s/mu^2.
    """
    xp = array_module(f, density, width)
    least = xp.minimum(f[:-1], f[1:])
    grow = xp.exp(width)
    curve = xp.where(least >= 0, least * density[1:] / (grow * grow), least * density[:-1])
    curve = curve - 1e-9 * xp.abs(curve)
    left = _least(value[:-1], -(slope + doubt)[:-1], curve, xp.expm1(width))
    right = _least(value[1:], (slope - doubt)[1:], curve * grow * grow, -xp.expm1(-width))
    return xp.maximum(left, right)


def _least(value: Array, slope: Array, curve: Array, reach: Array) -> Array:
    """Minimum of value + slope x + curve x^2 / 2 over 0 <= x <= reach."""
    xp = array_module(value, slope, curve, reach)
    at_end = value + reach * (slope + 0.5 * curve * reach)
    inside = (curve > 0) & (slope < 0) & (-slope < curve * reach)
    vertex = value - 0.5 * slope * slope / xp.where(inside, curve, 1.0)
    return xp.where(inside, vertex, xp.minimum(value, at_end))


def largest(
    mu: Array, losses: Array, masses: Array, room: Array, ratio: Array, start: Array, tolerance: float, tries: int
) -> Array:
    """A certified residue m of all directions, next to the largest; -1 where none was found.

    ``start`` is a first guess of mu^2 - m^2, which only steers, and ``tolerance`` relative to that number; at most
    ``tries`` certificates are looked at.

    Args:
        mu: scalar; not a number above 0 finds none.
        losses, masses: shape ``(directions, atoms)``.
        room: shape ``(directions,)``.
        ratio: scalar.
    """
    xp, mu, losses, masses, room, ratio, start = floats(mu, losses, masses, room, ratio, start)
    whole = mu * mu
    good = (mu > 0) & (mu < np.inf)
    safe = xp.where(good, mu, 1.0)

    losses = xp.where(masses > 0, losses, 0.0)
    limit = deflated(safe * safe, 1e-9)
    zero = xp.zeros_like(limit)

    def search(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """With nodes for one charge; anew where the result is far from it."""
        at, _, rounds, _ = state
        nodes = each(lambda x, p, r: _nodes(safe, at, x, p, r, ratio), losses, masses, room)

        def go(state: tuple[Array, ...]) -> tuple[Array, ...]:
            charge, fails, holds, tried, _ = state
            found = each(lambda x, p, n: certified(safe, charge, x, p, ratio, n), losses, masses, nodes)
            certain, step = xp.all(found.holds), xp.max(found.step)
            fails = xp.where(certain, fails, xp.maximum(fails, charge))
            holds = xp.where(certain, xp.minimum(holds, charge), holds)
            step = xp.where(xp.isnan(step), np.inf, step)
            done = certain & (-step <= tolerance * charge)
            wanted = (charge + step) * (1.0 + 0.5 * tolerance)
            middle = xp.where(fails > 0, xp.sqrt(fails * holds), 0.5 * holds)
            inside = (wanted > fails * (1.0 + 0.1 * tolerance)) & (wanted < holds)
            done |= holds - fails <= tolerance * holds
            return xp.where(inside, wanted, middle), fails, holds, tried + 1, done

        begin = (at, zero, limit, np.zeros((), np.int32), np.zeros((), bool))
        _, _, holds, _, _ = loop(lambda s: ~s[4] & (s[3] < tries), go, begin)
        near = (holds > 0.9 * at) & ((holds < 1.25 * at) | (holds >= limit))
        return holds, xp.minimum(holds, state[1]), rounds + 1, near

    first = xp.clip(start, 1e-14 * limit, 0.5 * limit)
    begin = (first, limit, np.zeros((), np.int32), ~good)
    _, holds, _, _ = loop(lambda s: ~s[3] & (s[2] < _ROUNDS), search, begin)
    # m^2 = mu^2 - charge in floating point, and its root, are off by a few units; a smaller m is a residue too.
    m = deflated(xp.sqrt(xp.maximum(whole - holds, 0.0)), 2.0**-50)
    return xp.where(good & (holds < limit), m, -1.0)
