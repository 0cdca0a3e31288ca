"""Cells of a privacy loss: edges laid where a law has its mass, and the masses between them."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import (
    Array,
    array_module,
    program,
    running_greatest,
    running_least,
    running_total,
    take,
    xp,
)
from jaxacct._numerics.least import first_least
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs.base import Tails

_EVEN = 0.1  # share of the cells that are spread evenly over all losses


def cell_masses(tails: Tails) -> tuple[Array, Array, Array, Array]:
    """``(mass, off, above, below)`` under P and under Q, in that order along the first axis.

    Masses between neighbouring edges, from the smaller tail, and bounds on their absolute errors, ``(2, ..., cells)``;
    and the tails in order. Tails at edges are off by up to eta each, so that they need not be in order where edges are
    close: an atom between two of them would lie in two cells. At the largest loss so far, none is further off.
    """
    above = running_least(xp.stack([tails.p_above, tails.q_above]))
    below = running_greatest(xp.stack([tails.p_below, tails.q_below]))
    right = above[..., :-1] < below[..., 1:]
    mass = xp.where(right, above[..., :-1] - above[..., 1:], below[..., 1:] - below[..., :-1])
    tail = xp.where(right, above[..., :-1], below[..., 1:])
    # The error is one of the truth, which is at most tail / (1 - error); the difference rounds as well.
    error = xp.maximum(tails.error[..., :-1], tails.error[..., 1:]) + UNIT
    error = xp.where(error < 0.5, error / (1.0 - error), np.inf)
    off = xp.where(tail > 0, inflated(2.0 * tail * error, 1e-9), 0.0 * mass)
    return xp.maximum(mass, 0.0), off, above, below


def placed(losses: Array, weights: Array, ends: tuple[Array, Array], size: int) -> Array:
    """``size + 1`` edges, shape ``(..., size + 1)``, between the first and the last, ``ends``.

    Cells of width h cost the weight in them times h^2, so their density goes with the cube root of that of the weight.
    ``losses`` are the sorted points of a rough law, shape ``(..., points)``; of ``weights`` only ratios matter.
    """
    low, high = (end[..., None] for end in ends)
    at = xp.clip(losses, low, high)
    at = xp.concatenate([low, at, high], -1)
    gaps = at[..., 1:] - at[..., :-1]
    none = xp.zeros_like(low)
    mass = 0.5 * (xp.concatenate([weights, none], -1) + xp.concatenate([none, weights], -1))
    share = (mass * gaps**2) ** (1.0 / 3.0)
    share, even = running_total(xp.stack([share, gaps]))
    # Between points that coincide there is no room: where all weight lies there, edges are even.
    reached = (1.0 - _EVEN) * share / xp.maximum(share[..., -1:], 1e-300) + _EVEN * even / even[..., -1:]
    reached = xp.concatenate([none, reached], -1)
    wanted = np.arange(size + 1) / size * reached[..., -1:]
    edges = _interpolated(wanted, reached, at)
    # Ends are exact: the largest loss is one of them.
    return xp.concatenate([low, edges[..., 1:-1], high], -1)


def with_edge(edges: Array, origin: Array) -> Array:
    """``edges`` with the nearest of the inner ones moved to ``origin``, shape ``(...)``, where that lies between.

    An atom, or a kink, that is an edge costs nothing.
    """
    origin = origin[..., None]
    nearest = first_least(xp.abs(edges[..., 1:-1] - origin))[..., None] + 1
    inside = (origin > edges[..., :1]) & (origin < edges[..., -1:])
    # Edges stay in order: the nearest one has none between itself and the origin.
    moved = (np.arange(edges.shape[-1]) == nearest) & inside
    return xp.where(moved, origin, edges)


def _interpolated(x: Array, xs: Array, ys: Array) -> Array:
    """Row by row, the piecewise linear function through ``(xs, ys)`` at ``x``."""
    if array_module(xs) is np:
        rows = [a.reshape(-1, a.shape[-1]) for a in (x, xs, ys)]
        return np.stack([np.interp(*row) for row in zip(*rows, strict=True)]).reshape(x.shape)
    # One count is little to compile.
    after = program.clip((xs[..., None, :] <= x[..., None]).sum(-1), 1, xs.shape[-1] - 1)
    ends = take(program.stack([xs, ys]), program.concatenate([after - 1, after], -1)[None])
    (x0, x1), (y0, y1) = (program.split(end, 2, -1) for end in ends)
    return y0 + (y1 - y0) * program.clip((x - x0) / program.where(x1 > x0, x1 - x0, 1.0), 0.0, 1.0)
