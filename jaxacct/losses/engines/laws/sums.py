"""The law of the sum of two independent losses on few points, from below and from above.

What falls into a cell is known by its P-mass and its Q-mass. From below it is one point (post-processing), from above
two, at the cell's ends (convexity): docs/proofs/cells.md. Laws of one setting; NumPy's or JAX's.
"""

from __future__ import annotations

import functools

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, histogram, shared
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.engines.laws.cells import Law, Laws

_SIGNS = np.array([-1.0, 1.0])  # of the side from below, and from above
_FAR = 600.0  # below the first edge, where masses times e^600 are still numbers
_LEAST = 2.0**-1022  # what a product may lose that underflows


def composed(first: Laws, second: Laws, edges: Array) -> Laws:
    """Both sides of the sum of two losses."""
    sides = list(zip(first, second, strict=True))
    cells = [_in_cells(one, other, sign, edges) for (one, other), sign in zip(sides, _SIGNS, strict=True)]
    return _laws_of_cells(cells, sides, edges)


@shared
def composed_in_program(first: Law, second: Law, edges: Array) -> Laws:
    """The same in a program, which holds one side's sum; both sides of a law lie along its first axis."""
    masses, changes = jax.lax.map(lambda side: _in_cells(side[0], side[1], side[2], edges), (first, second, _SIGNS))
    side = lambda law, index: Law(*(x[index] for x in law))  # noqa: E731
    sides = [(side(first, index), side(second, index)) for index in (0, 1)]
    return _laws_of_cells(list(zip(masses, changes, strict=True)), sides, edges)


def _laws_of_cells(cells: list[tuple[Array, Array]], sides: list[tuple[Law, Law]], edges: Array) -> Laws:
    shares = [(one.losses.size * other.losses.size + 16) * EPS for one, other in sides]
    below, above = _merged(*cells[0], edges, shares[0]), _split(*cells[1], edges, shares[1])
    return Laws(
        below._replace(infinite=deflated(either(*sides[0]), 8 * EPS)),
        above._replace(infinite=inflated(either(*sides[1]) + above.infinite, 16 * EPS)),
    )


def either(first: Law, second: Law) -> Array:
    """The probability that one of two losses is infinite."""
    return first.infinite + second.infinite - first.infinite * second.infinite


def _in_cells(first: Law, second: Law, sign: Array, edges: Array) -> tuple[Array, Array]:
    """Of what is at or below each edge, and above all: the P-mass, and what e^r times the Q-mass exceeds it by.

    r is a cell's lower edge, of the first cell the first edge. Losses move by more than they are off, to the side of
    ``sign``. Terms of a cell are of one sign: no tiny difference is lost in the sum.
    """
    losses, masses = _products(first, second)
    xp = array_module(losses)
    losses = losses + sign * (2 * EPS) * xp.abs(losses)
    place, cells = xp.searchsorted(edges, losses), edges.size + 1  # edges[place - 1] < loss <= edges[place]
    away = xp.concatenate([edges[:1], edges])[place] - losses
    masses = xp.where((away < _FAR) | (sign > 0.0), masses, 0.0)  # from below, what e^away overflows for is left out
    change = masses * xp.expm1(xp.minimum(away, _FAR))
    return histogram(place, masses, cells), histogram(place, change, cells)


def _merged(masses: Array, changes: Array, edges: Array, share: float) -> Law:
    """From below: what falls into a cell is one point, with all its P- and Q-mass."""
    xp = array_module(masses)
    good = masses > 1e-280 * (share / EPS)  # next to which nothing underflows
    more = changes + (8.0 * share + 1024.0 * EPS) * xp.abs(changes)
    ratio = log1p(more / xp.where(good, masses, 1.0) + 1e-22)
    reference = xp.concatenate([edges[:1], edges])
    at = reference - ratio - 8 * EPS * (xp.abs(ratio) + xp.abs(reference))
    return Law(xp.where(good, at, 0.0), xp.where(good, deflated(masses, share), 0.0), xp.zeros(()))


def _split(masses: Array, changes: Array, edges: Array, share: float) -> Law:
    """From above: what falls into a cell goes to its ends, with the same P- and Q-mass; what is in none goes up."""
    xp = array_module(masses)
    masses = inflated(masses, share)
    lengths = xp.maximum(-xp.expm1(edges[:-1] - edges[1:]), 1e-300)
    up = inflated((xp.abs(changes[1:-1]) + share / EPS * _LEAST) / lengths, 8.0 * share + 64.0 * EPS)
    up = xp.minimum(up, masses[1:-1])
    stay = inflated(masses[1:-1] - up, 2 * EPS)
    found = xp.concatenate([masses[:1], up]) + xp.concatenate([stay, 0.0 * masses[:1]])
    return Law(edges, inflated(found, 4 * EPS), masses[-1])


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
