"""The law of the sum of two independent losses on few points, from below and from above.

From below what falls into a cell is merged (post-processing), from above it is split between the cell's ends
(convexity): docs/proofs/cells.md. Laws of one setting; NumPy's or JAX's.
"""

from __future__ import annotations

import functools

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, histogram
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.engines.laws.cells import Law


def merged(first: Law, second: Law, edges: Array) -> Law:
    """From below: what falls into a cell is one point, with all its P- and Q-mass."""
    losses, masses = _products(first, second)
    xp = array_module(losses)
    place, cells = xp.searchsorted(edges, losses), edges.size + 1
    # Q-masses relative to those at the cell's lower edge, less the P-masses: no tiny difference is lost in them.
    reference = xp.concatenate([edges[:1], edges])
    away = reference[place] - losses
    masses = xp.where(away < 600.0, masses, 0.0)  # further below the first edge e^away overflows: left out
    p = histogram(place, masses, cells)
    change = histogram(place, masses * xp.expm1(xp.minimum(away, 600.0)), cells)  # no cell has terms of both signs
    # A loss that is off, by rounding of the sum and of `away`, moves e^away by as much times itself.
    ends = xp.concatenate([xp.minimum(losses.min(), edges[:1]), edges, xp.maximum(losses.max(), edges[-1:])])
    size, width = xp.maximum(xp.abs(ends[:-1]), xp.abs(ends[1:])), ends[1:] - ends[:-1]
    rounding = (losses.size + 16) * EPS
    slack = 8.0 * EPS * (1.0 + size + xp.minimum(width, 600.0)) * (p + xp.maximum(change, 0.0))
    good = p > losses.size * 1e-300  # next to which nothing underflows
    more = change + slack + (8.0 * EPS + 4.0 * rounding) * xp.abs(change)
    ratio = log1p(more / xp.where(good, p, 1.0) + 1e-22)
    at = reference - ratio - 8 * EPS * (xp.abs(ratio) + xp.abs(reference))
    p = deflated(p, rounding)
    return Law(xp.where(good, at, 0.0), xp.where(good, p, 0.0), deflated(either(first, second), 8 * EPS))


def split(first: Law, second: Law, edges: Array) -> Law:
    """From above: what falls into a cell goes to its ends, with the same P- and Q-mass."""
    losses, masses = _products(first, second)
    xp = array_module(losses)
    losses = losses + 2 * EPS * xp.abs(losses)
    # edges[place - 1] < loss <= edges[place]; what is above all is infinite
    place, cells = xp.searchsorted(edges, losses), edges.size + 1
    # The share of the upper end is expm1(left - loss) / expm1(left - right), and all of what lies in no cell.
    left, right = edges[:-1], edges[1:]
    # Differences of losses are exact to a unit of the losses, which may be many of the differences.
    slack = 4 * EPS * (xp.maximum(xp.abs(left), xp.abs(right)) + xp.abs(left)) / xp.maximum(right - left, 1e-300)
    one = xp.ones_like(edges[:1])
    lower = xp.concatenate([edges[:1], left, edges[-1:]])
    scale = inflated(xp.concatenate([0.0 * one, 1.0 / xp.expm1(left - right), 0.0 * one]), 20 * EPS)
    slack = xp.concatenate([one, slack, one])
    up = xp.expm1(xp.minimum(lower[place] - losses, 0.0)) * scale[place] + slack[place]
    up = xp.minimum(up, 1.0)
    rising = histogram(place, masses * up, cells)
    staying = histogram(place, masses * (1.0 + EPS - up), cells)
    found = rising[:-1] + xp.concatenate([staying[:1] + staying[1:2], staying[2:-1], 0.0 * one])
    found = inflated(found, (losses.size + 16) * EPS)
    infinite = inflated(rising[-1], (losses.size + 8) * EPS)
    return Law(edges, found, inflated(either(first, second) + infinite, 16 * EPS))


def _products(first: Law, second: Law) -> tuple[Array, Array]:
    """Losses and masses of all pairs of points; in NumPy of a law with itself each pair once, with twice its mass."""
    xp = array_module(first.losses, second.losses)
    if xp is not np or first is not second:
        outer = first.losses[:, None] + second.losses, first.masses[:, None] * second.masses
        return tuple(x.ravel() for x in outer)
    one, other = _pairs(first.losses.size)
    masses = (first.masses * 2.0)[one] * first.masses[other]
    masses[one == other] *= 0.5
    return first.losses[one] + first.losses[other], masses


@functools.lru_cache(8)
def _pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(size)


def either(first: Law, second: Law) -> Array:
    """The probability that one of two losses is infinite."""
    return first.infinite + second.infinite - first.infinite * second.infinite
