"""The law of the sum of two independent losses on few points, from below and from above; NumPy only.

From below what falls into a cell is merged (post-processing), from above it is split between the cell's ends
(convexity): docs/proofs/cells.md.
"""

from __future__ import annotations

import functools

import numpy as np

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.engines.laws.cells import Law


def merged(first: Law, second: Law, edges: np.ndarray) -> Law:
    """From below: what falls into a cell is one point, with all its P- and Q-mass."""
    losses, masses = _products(first, second)
    place = np.searchsorted(edges, losses)
    # Q-masses relative to those at the cell's lower edge, less the P-masses: no tiny difference is lost in them.
    reference = np.concatenate([edges[:1], edges])
    away = reference[place]
    away -= losses
    if away.max() >= 600.0:  # so far below the first edge that e^away overflows: left out
        masses, away = np.where(away < 600.0, masses, 0.0), np.minimum(away, 600.0)
    p = np.bincount(place, masses, edges.size + 1)
    masses *= np.expm1(away, out=away)
    change = np.bincount(place, masses, edges.size + 1)  # no cell has terms of both signs
    # A loss that is off, by rounding of the sum and of `away`, moves e^away by as much times itself.
    ends = np.concatenate([[min(losses.min(), edges[0])], edges, [max(losses.max(), edges[-1])]])
    size, width = np.maximum(np.abs(ends[:-1]), np.abs(ends[1:])), ends[1:] - ends[:-1]
    rounding = (losses.size + 16) * EPS
    slack = 8.0 * EPS * (1.0 + size + np.minimum(width, 600.0)) * (p + np.maximum(change, 0.0))
    good = p > losses.size * 1e-300  # next to which nothing underflows
    more = change + slack + (8.0 * EPS + 4.0 * rounding) * np.abs(change)
    ratio = np.log1p(more / np.where(good, p, 1.0) + 1e-22)
    at = reference - ratio - 8 * EPS * (np.abs(ratio) + np.abs(reference))
    p = deflated(p, rounding)
    return Law(np.where(good, at, 0.0), np.where(good, p, 0.0), deflated(either(first, second), 8 * EPS))


def split(first: Law, second: Law, edges: np.ndarray) -> Law:
    """From above: what falls into a cell goes to its ends, with the same P- and Q-mass."""
    losses, masses = _products(first, second)
    losses += 2 * EPS * np.abs(losses)
    place = np.searchsorted(edges, losses)  # edges[place - 1] < loss <= edges[place]; what is above all is infinite
    # The share of the upper end is expm1(left - loss) / expm1(left - right), and all of what lies in no cell.
    left, right = edges[:-1], edges[1:]
    # Differences of losses are exact to a unit of the losses, which may be many of the differences.
    slack = 4 * EPS * (np.maximum(np.abs(left), np.abs(right)) + np.abs(left)) / np.maximum(right - left, 1e-300)
    lower, scale, slack = (
        np.concatenate([ends[:1], x, ends[1:]])
        for x, ends in ((left, edges[[0, -1]]), (1.0 / np.expm1(left - right), [0.0, 0.0]), (slack, [1.0, 1.0]))
    )
    up = lower[place]
    up -= losses
    np.expm1(np.minimum(up, 0.0, out=up), out=up)
    up *= inflated(scale, 20 * EPS)[place]
    up += slack[place]
    np.minimum(up, 1.0, out=up)
    count = edges.size + 1
    rising = np.bincount(place, masses * up, count)
    np.subtract(1.0 + EPS, up, out=up)
    masses *= up
    staying = np.bincount(place, masses, count)
    found = rising[:-1] + np.concatenate([staying[1:-1], [0.0]])
    found[0] += staying[0]
    found = inflated(found, (losses.size + 16) * EPS)
    infinite = inflated(rising[-1], (losses.size + 8) * EPS)
    return Law(edges, found, inflated(either(first, second) + infinite, 16 * EPS))


def _products(first: Law, second: Law) -> tuple[np.ndarray, np.ndarray]:
    """Losses and masses of all pairs of points; of a law with itself each pair once, with twice its mass."""
    if first is not second:
        return np.add.outer(first.losses, second.losses).ravel(), np.multiply.outer(first.masses, second.masses).ravel()
    one, other = _pairs(first.losses.size)
    masses = (first.masses * 2.0)[one]
    masses *= first.masses[other]
    masses[one == other] *= 0.5
    return first.losses[one] + first.losses[other], masses


@functools.lru_cache(8)
def _pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(size)


def either(first: Law, second: Law) -> np.ndarray:
    """The probability that one of two losses is infinite."""
    return first.infinite + second.infinite - first.infinite * second.infinite
