"""The law of the sum of two independent losses on few points, from below and from above.

What falls into a cell is known by its P-mass and its Q-mass. From below it is one point (post-processing), from above
two, at the cell's ends (convexity): docs/proofs/cells.md. Laws of one setting; NumPy's or JAX's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, histogram, shared, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.engines.laws.cells import Law, Laws

_SIGNS = np.array([-1.0, 1.0])  # of the side from below, and from above
_FAR = 600.0  # below the first edge, where masses times e^600 are still numbers
_LEAST = 2.0**-1022  # what a product may lose that underflows
_BLOCK = 2**14  # products in a core's cache, whose sums round little
_OCTAVES, _SHIFT = 20, 40  # of a table that finds edges, with 4,096 buckets each; one has up to
_CROWD = 6  # edges


def composed(first: Laws, second: Laws, edges: Array) -> Laws:
    """Both sides of the sum of two losses."""
    sides, place = list(zip(first, second, strict=True)), _place_among(edges)
    cells = [_in_cells(one, other, sign, edges, place) for (one, other), sign in zip(sides, _SIGNS, strict=True)]
    shares = [_rounding(one, other) for one, other in sides]
    return _laws_of_cells(cells, shares, [either(*side) for side in sides], edges)


@shared
def composed_in_program(first: Law, second: Law, edges: Array) -> Laws:
    """The same in a program; both sides of a law lie along its first axis."""
    place = functools.partial(jnp.searchsorted, edges)
    masses, changes = jax.vmap(lambda one, other, sign: _in_cells(one, other, sign, edges, place))(
        first, second, _SIGNS
    )
    shares = 2 * [_rounding(first, second)]
    return _laws_of_cells(list(zip(masses, changes, strict=True)), shares, either(first, second), edges)


def _laws_of_cells(
    cells: list[tuple[Array, Array]], shares: Sequence[float], infinite: Sequence[Array] | Array, edges: Array
) -> Laws:
    below, above = _merged(*cells[0], edges, shares[0]), _split(*cells[1], edges, shares[1])
    return Laws(
        below._replace(infinite=deflated(infinite[0], 8 * EPS)),
        above._replace(infinite=inflated(infinite[1] + above.infinite, 16 * EPS)),
    )


def either(first: Law, second: Law) -> Array:
    """The probability that one of two losses is infinite."""
    return first.infinite + second.infinite - first.infinite * second.infinite


def _rounding(first: Law, second: Law) -> float:
    """What a sum over all pairs may be off by, as a share: of a block's terms, and then of blocks."""
    size, other = first.losses.shape[-1], second.losses.shape[-1]
    rows = max(1, _BLOCK // other) if array_module(first.losses) is np else 1
    return (rows * other - (-size // rows) + 16) * EPS


def _in_cells(
    first: Law, second: Law, sign: Array, edges: Array, place: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Of what is at or below each edge, and above all: the P-mass, and what e^r times the Q-mass exceeds it by.

    r is a cell's lower edge, of the first cell the first edge. Losses move by more than they are off, to the side of
    ``sign``. Terms of a cell are of one sign: no tiny difference is lost in the sum.
    """
    reference = xp.concatenate([edges[:1], edges])
    losses, others = (law.losses + sign * (2 * EPS) * xp.abs(law.losses) for law in (first, second))

    def added(losses: Array, masses: Array) -> tuple[Array, Array]:
        cell = place(losses)  # edges[cell - 1] < loss <= edges[cell]
        away = reference[cell] - losses
        if array_module(edges, first.losses) is not np or not away.max() < _FAR:
            # From below, what overflows is left out.
            masses, away = xp.where((away < _FAR) | (sign > 0.0), masses, 0.0), xp.minimum(away, _FAR)
        change = masses * xp.expm1(away)
        return histogram(cell, masses, reference.size), histogram(cell, change, reference.size)

    if array_module(edges, first.losses) is not np:
        mass, change = added(losses[:, None] + others, first.masses[:, None] * second.masses)
        return mass.sum(0), change.sum(0)
    found = np.zeros((2, reference.size))
    for sums, products in _products((losses, first.masses), (others, second.masses), first is second):
        found += added(sums, products)
    return found[0], found[1]


def _merged(masses: Array, changes: Array, edges: Array, share: float) -> Law:
    """From below: what falls into a cell is one point, with all its P- and Q-mass."""
    good = masses > 1e-280 * (share / EPS)  # next to which nothing underflows
    more = changes + (8.0 * share + 1024.0 * EPS) * xp.abs(changes)
    ratio = log1p(more / xp.where(good, masses, 1.0) + 1e-22)
    reference = xp.concatenate([edges[:1], edges])
    at = reference - ratio - 8 * EPS * (xp.abs(ratio) + xp.abs(reference))
    return Law(xp.where(good, at, 0.0), xp.where(good, deflated(masses, share), 0.0), xp.zeros(()))


def _split(masses: Array, changes: Array, edges: Array, share: float) -> Law:
    """From above: what falls into a cell goes to its ends, with the same P- and Q-mass; what is in none goes up."""
    masses = inflated(masses, share)
    lengths = xp.maximum(-xp.expm1(edges[:-1] - edges[1:]), 1e-300)
    up = inflated((xp.abs(changes[1:-1]) + share / EPS * _LEAST) / lengths, 8.0 * share + 64.0 * EPS)
    up = xp.minimum(up, masses[1:-1])
    stay = inflated(masses[1:-1] - up, 2 * EPS)
    found = xp.concatenate([masses[:1], up]) + xp.concatenate([stay, 0.0 * masses[:1]])
    return Law(edges, inflated(found, 4 * EPS), masses[-1])


Points = tuple[Array, Array]  # losses and masses


def _products(first: Points, second: Points, same: bool) -> Iterator[Points]:
    """All pairs of points, in blocks; of a law with itself each pair once, with twice its mass."""
    (losses, masses), (others, more) = first, second
    rows = max(1, _BLOCK // others.size)
    for row in range(0, losses.size, rows):
        some = slice(row, row + rows)
        at, weights = (others[row:], np.append(more[some], 2.0 * more[row + rows :])) if same else second
        yield (losses[some, None] + at).ravel(), (masses[some, None] * weights).ravel()


def _place_among(edges: Array) -> Callable[[Array], Array]:
    """``np.searchsorted(edges, ...)``, in half the time for many losses.

    A table says how many edges lie in buckets before that of a loss. Buckets are the leading bits of its distance from
    the first edge, so that they are as narrow as cells are where losses are rare and large.
    """
    with np.errstate(all="ignore"):
        span = edges[-1] - edges[0]
    if not (0.0 < span < np.inf and np.isfinite(edges).all()):
        return functools.partial(np.searchsorted, edges)
    least, most = (int(np.float64(x).view(np.int64) >> _SHIFT) for x in (span * 2.0**-_OCTAVES, span))

    def bucket(losses: Array) -> Array:
        return np.clip((losses - edges[0]).view(np.int64) >> _SHIFT, least, most + 1) - least

    own = bucket(edges)
    before, crowd = np.searchsorted(own, np.arange(most - least + 2)), int(np.bincount(own).max())
    if crowd > _CROWD:
        return functools.partial(np.searchsorted, edges)
    beyond = np.append(edges, np.inf)

    def place(losses: Array) -> Array:
        at = before[bucket(losses)]
        for _ in range(crowd):
            at += beyond.take(at, mode="clip") < losses
        return at

    return place
