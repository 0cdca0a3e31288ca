"""Nodes of the quadrature over a tilted loss of a normal output, and bounds of the integrand beyond them.

See :mod:`jaxacct.losses.engines.lines.normal_line` for the integrand. Arrays have any leading axes, the same for a
loss's parameters, theta and cut; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, shared, stopped, xp
from jaxacct._numerics.rounding import inflated
from jaxacct.losses.engines.lines.normal_losses import NormalLoss, exponent_at
from jaxacct.losses.engines.lines.taper import CURVATURE, log_taper, log_taper_above, log_taper_slope, steepened

_DIGITS = 42.0  # e-foldings below its peak at which the integrand is left
_NEAR = 48.0  # standard deviations that equal cells cover at most; others are wider from one to the next
_CELLS = (96, 24)  # numbers of both
_REST = 60.0  # standard deviations beyond what can matter, for what a strip multiplies


class Points(NamedTuple):
    """Where a quadrature looks at the integrand: shape ``(..., S)`` for points, ``(..., C)`` for cells.

    Attributes:
        t: equally spaced points, exact float64 numbers; ``step`` is their distance, shape ``(...)``.
        psi: log R there, within ``off``; ``slope`` is its derivative over the largest one.
        log_base: log of the normal density times the taper, without the density's constant.
        off: bound on the rounding error of psi.
        edge_psi: log R at the edges of cells over all that can matter, shape ``(..., C + 1)``.
        edge_base: upper bounds of ``log_base`` at the edges.
        cell_base: upper bounds of ``log_base`` on the cells.
        tangent: that of ``edge_base``, a concave function, at a cell's left end, taken at its right end.
        edge_slope: the slope at the edges; ``slope_at_0`` is that at t = 0, shape ``(...)``.
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
    slope_at_0: Array
    most: Array
    cells: Array
    uncovered: Array
    low: Array
    high: Array


def _edges(loss: NormalLoss, beta: Array, cut: Array, slope_at_0: Array) -> Array:
    """Edges of cells over all that can matter.

    The integrand falls beyond them faster than a normal density ``reach`` standard deviations out, and earlier with a
    taper (docs/proofs/quadrature.md, lemma 3).
    """
    steepest, reach = loss.steepest, (2.0 * _DIGITS) ** 0.5 + 1.0
    low = xp.minimum(beta * steepest * slope_at_0, 0.0) - reach
    most = xp.maximum(beta * steepest, 0.0)
    high = xp.minimum(most + reach, steepened(most + CURVATURE**0.5 * reach, cut))
    low = xp.minimum(low, high - 1.0)
    near = xp.minimum(high - low, _NEAR)[..., None]
    low, high = low[..., None], high[..., None]
    equal, wider = _CELLS
    growth = 6.0 ** (4.0 / wider)
    shares = (growth ** np.arange(1, wider + 1) - 1.0) / (growth**wider - 1.0)
    far = low + near + (high - low - near + _REST) * shares
    return xp.concatenate([low + near * (np.arange(equal + 1) / equal), far], -1)


@shared(static=("size",))
def placed(loss: NormalLoss, theta: Array, size: int, cut: Array) -> Points:
    """``size`` equally spaced points where the integrand of tilt theta matters, and bounds on what lies outside.

    ``cut`` is where the taper falls off, inf for none.
    """
    # Where the points lie changes no integral, so derivatives need not know how they were chosen.
    fixed, beta, cut_off = stopped((loss, exponent_at(loss.reverse, theta), cut))
    slope_at_0 = fixed.at(xp.zeros_like(theta)[..., None]).slope[..., 0]
    edges = _edges(fixed, beta, cut_off, slope_at_0)
    edge_psi, edge_slope, _ = fixed.at(edges)
    edge_base, cell_base, tangent = bases_of(edges, log_taper_above(edges, cut_off[..., None]), cut)
    left, right = edges[..., :-1], edges[..., 1:]
    power = beta[..., None] * edge_psi
    most = cell_bounds(beta, edge_psi[..., :-1], edge_psi[..., 1:], edge_base[..., :-1], cell_base, tangent)
    kept = most > (edge_base + power).max(-1, keepdims=True) - _DIGITS
    low = xp.where(kept, left, np.inf).min(-1)
    high = xp.where(kept, right, -np.inf).max(-1)
    t, step = multiples(low, high, size)
    covered = (left >= t[..., :1]) & (right <= t[..., -1:])
    uncovered = xp.where(covered, -np.inf, xp.log(right - left + 2.0 * step[..., None]))
    psi, slope, off = loss.at(t)
    log_base = -0.5 * t**2 + log_taper(t, cut[..., None])
    cells = edge_psi, edge_base, cell_base, tangent, edge_slope, slope_at_0, most, xp.log(right - left), uncovered
    return Points(t, step, psi, slope, log_base, off, *cells, left[..., 0], right[..., -1])


def multiples(low: Array, high: Array, size: int) -> tuple[Array, Array]:
    """``size`` points, whole multiples of a step of 24 bits, so that they carry no rounding error; and the step."""
    step = inflated((high - low) / (size - 2), 2.0**-23).astype(np.float32).astype(np.float64)
    first = xp.floor(low / step)
    return (first[..., None] + np.arange(size)) * step[..., None], step


def bases_of(edges: Array, taper: Array, cut: Array) -> tuple[Array, Array, Array]:
    """``edge_base``, ``cell_base`` and ``tangent`` of :class:`Points`, ``taper`` an upper bound of its logarithm."""
    left, right = edges[..., :-1], edges[..., 1:]
    base = -0.5 * edges**2 + taper
    square = xp.where((right > 0) & (left < 0), 0.0, xp.minimum(right**2, left**2))
    tangent = base[..., :-1] + (log_taper_slope(left, cut[..., None]) - left) * (right - left)
    return base, -0.5 * square + taper[..., :-1], tangent


def cell_bounds(beta: Array, left: Array, right: Array, base: Array, cell_base: Array, tangent: Array) -> Array:
    """Log of the largest integrand on each cell, without the density's constant; see :class:`Points`.

    ``left``, ``right`` are psi at the cells' ends, ``base`` is the rest at the left one. psi is increasing and convex
    in t. So for beta > 0 its chord and the tangent of the rest are an upper bound.
    """
    left, right = beta[..., None] * left, beta[..., None] * right
    growing = xp.maximum(base + left, tangent + right)
    return xp.where(beta[..., None] > 0, growing, cell_base + xp.maximum(left, right))
