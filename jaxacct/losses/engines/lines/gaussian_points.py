"""Nodes of the quadrature over the tilted loss of a (Poisson-sampled) Gaussian, and bounds of the integrand beyond.

See :mod:`jaxacct.losses.engines.lines.gaussian_quadrature` for the integrand. Arrays have any leading axes, the same
for a pair's leaves, theta and cut; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, shared, stopped
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.losses.engines.lines.taper import CURVATURE, log_taper, log_taper_above, log_taper_slope, steepened
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.sampled_loss import log_rest

_NEAR = 48.0  # standard deviations that equal cells cover at most; others are wider from one to the next
_CELLS = (96, 24)  # numbers of both
_REST = 60.0  # standard deviations beyond what can matter, for what a strip multiplies


class Points(NamedTuple):
    """Where a quadrature looks at the integrand: shape ``(..., S)`` for points, ``(..., C)`` for cells.

    Attributes:
        t: equally spaced points, exact float64 numbers; ``step`` is their distance, shape ``(...)``.
        psi: log R there, within ``off``; ``slope`` is its derivative in u.
        log_base: log of the normal density times the taper, without the density's constant.
        off: bound on the rounding error of psi.
        edge_psi: log R at the edges of cells over all that can matter, shape ``(..., C + 1)``.
        edge_base: upper bounds of ``log_base`` at the edges.
        cell_base: upper bounds of ``log_base`` on the cells.
        tangent: that of ``edge_base``, a concave function, at a cell's left end, taken at its right end.
        edge_slope: p at the edges.
        most: bounds of the log integrand on the cells, at the tilt that the points are for.
        cells: log of the widths of the cells.
        uncovered: the same, two steps more, of cells that the points do not cover; -inf for the others.
        low, high: the first edge and the last.
    """

    t: Array
    step: Array
    psi: Array
    slope: Array
    log_base: Array
    off: Array
    edge_psi: Array
    edge_base: Array
    cell_base: Array
    tangent: Array
    edge_slope: Array
    most: Array
    cells: Array
    uncovered: Array
    low: Array
    high: Array


def _log_ratio(q: Array, rest: Array, u: Array) -> tuple[Array, Array]:
    """log(1 - q + q e^u) and its derivative in u; ``rest`` is 1 - q."""
    xp = array_module(u)
    small = q * xp.expm1(xp.minimum(u, 40.0))
    near = xp.abs(small) < 0.5
    sampled = rest > 0.0  # a rate of 1 is kept away from log(0), whose derivative is none
    least, log_shifted = log_rest(xp.where(sampled, q, 0.5), xp.where(sampled, rest, 0.5)), xp.log(q) + u
    apart = log_shifted - least
    less = xp.exp(-xp.abs(apart))
    far = xp.maximum(least, log_shifted) + xp.log1p(less)
    whole = u - (q - 1.0) * xp.expm1(xp.minimum(-u, 700.0))  # u, and its derivative in q at q = 1
    value = xp.where(near, log1p(xp.where(near, small, 0.0)), xp.where(sampled, far, whole))
    return value, xp.where(sampled, xp.where(apart > 0, 1.0, less) / (1.0 + less), 1.0)


@shared
def slope_at_0(pair: GaussianPair, mu: Array) -> Array:
    """The derivative of log R in u at t = 0, within a few units."""
    xp = array_module(mu)
    sampled = pair.rate * xp.exp(-0.5 * mu * mu)
    return xp.where(pair.rest > 0.0, sampled / (xp.where(pair.rest > 0.0, pair.rest, 1.0) + sampled), 1.0)


def exponent_at(reverse: Array, tilt: Array) -> Array:
    """The power b of R at a tilt: 1 + z for `remove`, where ``reverse`` is 0, and -z for `add`."""
    return array_module(tilt).where(reverse > 0.5, -tilt, 1.0 + tilt)


def edges_of(
    pair: GaussianPair, beta: Array, cut: Array, digits: Array, cells: tuple[int, int]
) -> tuple[Array, Array, Array]:
    """Edges of cells over all that can matter, u there, and an upper bound of the log taper.

    The integrand falls beyond them faster than a normal density ``reach`` standard deviations out, and earlier with a
    taper (docs/proofs/quadrature.md, lemma 3).
    """
    xp = array_module(beta)
    mu = 1.0 / pair.noise
    reach = xp.sqrt(2.0 * digits) + 1.0
    slope = slope_at_0(pair, mu)
    low = xp.minimum(beta * mu * slope, 0.0) - reach
    most = xp.maximum(beta * mu, 0.0)
    high = xp.minimum(most + reach, steepened(most + CURVATURE**0.5 * reach, cut))
    low = xp.minimum(low, high - 1.0)
    near = xp.minimum(high - low, _NEAR)[..., None]
    low, high = low[..., None], high[..., None]
    equal, wider = cells
    growth = 6.0 ** (4.0 / wider)
    shares = (growth ** np.arange(1, wider + 1) - 1.0) / (growth**wider - 1.0)
    far = low + near + (high - low - near + _REST) * shares
    t = xp.concatenate([low + near * (np.arange(equal + 1) / equal), far], -1)
    mu = mu[..., None]
    return t, mu * (t - 0.5 * mu), log_taper_above(t, cut[..., None])


@shared(static=("size",))
def placed(pair: GaussianPair, theta: Array, size: int, digits: Array, cut: Array) -> Points:
    """``size`` equally spaced points where the integrand of tilt theta matters, and bounds on what lies outside.

    It is looked at down to ``digits`` e-foldings below its peak; ``cut`` is where the taper falls off, inf for none.
    """
    xp = array_module(theta)
    beta = exponent_at(pair.reverse, theta)
    # Where the points lie changes no integral, so derivatives need not know how they were chosen.
    edges, edge_u, edge_taper = edges_of(*stopped((pair, beta, cut, digits)), cells=_CELLS)
    edge_psi, edge_slope = _log_ratio(*(x[..., None] for x in stopped((pair.rate, pair.rest))), edge_u)  # pyright: ignore[reportCallIssue]
    edge_base, cell_base, tangent = bases_of(edges, edge_taper, cut)
    left, right = edges[..., :-1], edges[..., 1:]
    power = stopped(beta)[..., None] * edge_psi
    bounds = edge_psi[..., :-1], edge_psi[..., 1:], edge_base[..., :-1], cell_base, tangent
    most = cell_bounds(stopped(beta), *bounds)
    kept = most > (edge_base + power).max(-1, keepdims=True) - digits[..., None]
    low = xp.where(kept, left, np.inf).min(-1)
    high = xp.where(kept, right, -np.inf).max(-1)
    t, step = multiples(low, high, size)
    covered = (left >= t[..., :1]) & (right <= t[..., -1:])
    uncovered = xp.where(covered, -np.inf, xp.log(right - left + 2.0 * step[..., None]))

    mu, q = 1.0 / pair.noise[..., None], pair.rate[..., None]
    u = mu * (t - 0.5 * mu)
    psi, slope = _log_ratio(q, pair.rest[..., None], u)
    # psi is off by units of itself, the rate's among them, and by what u's rounding and the noise's, damped by the
    # slope, make of it: docs/proofs/parameters.md, lemma 6.
    sure = xp.where(pair.rest == 0.0, 16.0, 48.0)[..., None] * xp.abs(psi)
    off = UNIT * (sure + 16.0 * slope * (1.0 + xp.abs(xp.log(q)) + xp.abs(mu * t) + mu * mu))
    log_base = -0.5 * t**2 + log_taper(t, cut[..., None])
    cells = edge_psi, edge_base, cell_base, tangent, edge_slope, most, xp.log(right - left), uncovered
    return Points(t, step, psi, slope, log_base, off, *cells, left[..., 0], right[..., -1])


def multiples(low: Array, high: Array, size: int) -> tuple[Array, Array]:
    """``size`` points, whole multiples of a step of 24 bits, so that they carry no rounding error; and the step."""
    step = inflated((high - low) / (size - 2), 2.0**-23).astype(np.float32).astype(np.float64)
    first = array_module(step).floor(low / step)
    return (first[..., None] + np.arange(size)) * step[..., None], step


def bases_of(edges: Array, taper: Array, cut: Array) -> tuple[Array, Array, Array]:
    """``edge_base``, ``cell_base`` and ``tangent`` of :class:`Points`, ``taper`` an upper bound of its logarithm."""
    xp, left, right = array_module(edges), edges[..., :-1], edges[..., 1:]
    base = -0.5 * edges**2 + taper
    square = xp.where((right > 0) & (left < 0), 0.0, xp.minimum(right**2, left**2))
    tangent = base[..., :-1] + (log_taper_slope(left, cut[..., None]) - left) * (right - left)
    return base, -0.5 * square + taper[..., :-1], tangent


def cell_bounds(beta: Array, left: Array, right: Array, base: Array, cell_base: Array, tangent: Array) -> Array:
    """Log of the largest integrand on each cell, without the density's constant; see :class:`Points`.

    ``left``, ``right`` are psi at the cells' ends, ``base`` is the rest at the left one. psi is increasing and convex
    in t. So for beta > 0 its chord and the tangent of the rest are an upper bound.
    """
    xp = array_module(beta)
    left, right = beta[..., None] * left, beta[..., None] * right
    growing = xp.maximum(base + left, tangent + right)
    return xp.where(beta[..., None] > 0, growing, cell_base + xp.maximum(left, right))
