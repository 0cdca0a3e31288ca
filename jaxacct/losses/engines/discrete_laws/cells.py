"""Discrete laws above and below the privacy loss of one run, from the tails of its dominating pair.

Cut the line of losses into cells (e_i, e_(i+1)], and let p_i and q_i be the P- and Q-probability of cell i.

*Below*: which cell the loss lies in is a function of the output, so by post-processing the pair of these two discrete
laws is dominated. It has P-mass p_i at the loss log(p_i / q_i). Less of P or more of Q lowers it further.

*Above*: a loss in [a, b] of which only p and q are known is dominated by the two-point law on {a, b} with the same p
and q (hockey sticks are convex in gamma, and a chord lies above a convex curve). The mass at b is
(p - e^a q) / (1 - e^(a - b)). More of P, less of Q, or mass that moves to a larger loss raises it further. Losses
below the first edge count as the first edge, losses above the last one as infinite.

Both laws are good to the second order of the cells' widths. A pair that lists its outcomes needs no cells.

Every array has leading axes of settings and parts, ``(B, K)`` in the engine; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import array_module, running_least
from jaxacct._numerics.least import first_least
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.pairs.base import Tails, loss_room
from jaxacct.mechanisms.pairs.table import LEAST

__all__ = ["Law", "Laws", "cell_masses", "laws", "laws_of_outcomes", "ordered", "placed", "with_edge"]

Array = Any  # NumPy's or JAX's

_TINY = 1e-290  # what underflow may hide
_EVEN = 0.1  # share of the cells that are spread evenly over all losses


class Law(NamedTuple):
    """A measure that bounds the law of a loss under P from one side, exactly as it stands.

    Attributes:
        losses: shape ``(..., S)``, finite.
        masses: P-mass of each, >= 0; the Q-mass is the P-mass times exp(-loss).
        infinite: P-mass of an infinite loss, shape ``(...)``.
    """

    losses: Array
    masses: Array
    infinite: Array


class Laws(NamedTuple):
    """The law from below and the law from above."""

    lower: Law
    upper: Law


def laws_of_outcomes(pair: Any) -> Laws:
    """Of a pair that lists its outcomes: they are their own laws, but for rounding."""
    atoms = pair.atoms()
    xp = array_module(atoms.p)
    finite = xp.isfinite(atoms.losses)
    losses = xp.where(finite, atoms.losses, 0.0)
    off = xp.broadcast_to(atoms.loss_error, losses.shape)
    poison = 0.0 * (atoms.p.sum(-1) + atoms.q.sum(-1))

    def side(masses: Array, losses: Array) -> Law:
        infinite = xp.where(atoms.losses == np.inf, masses, 0.0).sum(-1) + poison
        return Law(losses, xp.where(finite, masses, 0.0) + poison[..., None], infinite)

    lower = xp.where(atoms.p > LEAST, deflated(atoms.p, atoms.error), 0.0)
    upper = xp.where(atoms.p > 0, inflated(atoms.p, atoms.error) + LEAST, 0.0)
    size = UNIT * (4.0 + losses.shape[-1])
    below, above = side(lower, losses - off), side(upper, losses + off)
    below = below._replace(infinite=deflated(below.infinite, size))
    return Laws(below, above._replace(infinite=inflated(above.infinite, size)))


def laws(pair: Any, edges: Array) -> Laws:
    """From the tails at ``edges``, increasing and finite, shape ``(..., S + 1)``; see the module's docstring."""
    xp = array_module(edges)
    tails = ordered(pair.tails(edges))
    p, p_off = cell_masses(tails.p_above, tails.p_below, tails.error)
    q, q_off = cell_masses(tails.q_above, tails.q_below, tails.error)
    left, right = edges[..., :-1], edges[..., 1:]

    # Below. An infinite loss and whatever lies outside the cells are left out.
    held = xp.maximum(deflated(p - p_off, 4.0 * UNIT) - _TINY, 0.0)
    against = inflated(q + q_off, 4.0 * UNIT) + _TINY
    ratio = xp.log(xp.where(held > 0, held, 1.0)) - xp.log(against)
    ratio = ratio - 8.0 * UNIT * (1.0 + xp.abs(ratio) + xp.abs(xp.log(against)))
    # A cell whose ratio lies far below it holds next to nothing.
    ratio = xp.where(held > 0, xp.minimum(ratio, right), left)
    infinite = xp.broadcast_to(pair.infinity(), p.shape[:-1])
    below = Law(ratio, held, infinite)

    # Above. Tails belong to edges that are off by up to eta: losses are clipped to their cell, and moved up by eta.
    size = xp.abs(edges)
    beside = xp.concatenate([size[..., :1], size, size[..., -1:]], -1)
    size = xp.maximum(size, xp.maximum(beside[..., 2:], beside[..., :-2]))
    eta = loss_room(pair.loss_error(), size)
    most = inflated(p + p_off, 4.0 * UNIT) + LEAST
    # e^left Q, next to P or less. Beyond the range of exp the last cells count as losses of P alone.
    gamma = xp.where(left < 700.0, xp.exp(xp.minimum(left, 700.0)), 0.0)
    scaled = gamma * q
    slack = p_off + gamma * q_off + scaled * (2.0 * eta[..., :-1] + 8.0 * UNIT * (2.0 + xp.abs(left)))
    slack = slack + 8.0 * UNIT * (most + scaled) + _TINY
    up = inflated((p - scaled + slack) / -xp.expm1(left - right), 8.0 * UNIT)
    up = xp.clip(up, 0.0, most)
    stay = inflated(xp.maximum(most - up, 0.0), 2.0 * UNIT)
    none = xp.zeros_like(p[..., :1])
    under = inflated(tails.p_below[..., :1], tails.error[..., :1])
    masses = xp.concatenate([stay, none], -1) + xp.concatenate([under, up], -1)
    over = inflated(tails.p_above[..., -1], tails.error[..., -1])
    # Beyond the largest loss a tail is exactly 0; elsewhere it may have underflowed.
    over = xp.where(edges[..., -1] >= pair.max_loss(), over, over + _TINY)
    above = Law(edges + eta, inflated(masses, 4.0 * UNIT), over)
    return Laws(below, above)


def ordered(tails: Tails) -> Tails:
    """Tails at losses in order.

    Those at which they were evaluated are off by up to eta each, so that they need not be in order where edges are
    close: an atom between two of them would lie in two cells. At the largest so far, none is further off.
    """
    rising = lambda x: -running_least(-x)  # noqa: E731
    return Tails(
        running_least(tails.p_above),
        rising(tails.p_below),
        running_least(tails.q_above),
        rising(tails.q_below),
        tails.error,
    )


def cell_masses(above: Array, below: Array, error: Array) -> tuple[Array, Array]:
    """Mass between neighbouring edges from the smaller tail, and a bound on its absolute error."""
    xp = array_module(above)
    right = above[..., :-1] < below[..., 1:]
    mass = xp.where(right, above[..., :-1] - above[..., 1:], below[..., 1:] - below[..., :-1])
    tail = xp.where(right, above[..., :-1], below[..., 1:])
    error = xp.maximum(error[..., :-1], error[..., 1:])
    # The error is one of the truth, which is at most tail / (1 - error).
    error = xp.where(error < 0.5, error / (1.0 - error), np.inf)
    return xp.maximum(mass, 0.0), xp.where(tail > 0, inflated(2.0 * tail * error, 1e-9), 0.0 * mass)


def placed(losses: Array, weights: Array, ends: tuple[Array, Array], size: int) -> Array:
    """``size + 1`` edges, shape ``(..., size + 1)``.

    Cells of width h cost the weight in them times h^2, so their density goes with the cube root of that of the weight.

    Args:
        losses: points of a rough law, sorted, shape ``(..., points)``.
        weights: how much each matters, same shape; only ratios do.
        ends: the first edge and the last, shape ``(...)``.
        size: number of cells, static.
    """
    xp = array_module(losses)
    low, high = (end[..., None] for end in ends)
    at = xp.clip(losses, low, high)
    at = xp.concatenate([low, at, high], -1)
    gaps = at[..., 1:] - at[..., :-1]
    none = xp.zeros_like(low)
    mass = 0.5 * (xp.concatenate([weights, none], -1) + xp.concatenate([none, weights], -1))
    share = (mass * gaps**2) ** (1.0 / 3.0)
    # Between points that coincide there is no room: where all weight lies there, edges are even.
    total = xp.maximum(share.sum(-1, keepdims=True), 1e-300)
    share = (1.0 - _EVEN) * share / total + _EVEN * gaps / gaps.sum(-1, keepdims=True)
    reached = xp.concatenate([none, xp.cumsum(share, -1)], -1)
    wanted = np.arange(size + 1) / size * reached[..., -1:]
    edges = _interpolated(wanted, reached, at)
    # Ends are exact: the largest loss is one of them.
    return xp.concatenate([low, edges[..., 1:-1], high], -1)


def with_edge(edges: Array, origin: Array) -> Array:
    """``edges`` with the nearest of the inner ones moved to ``origin``, shape ``(...)``, where that lies between.

    An atom, or a kink, that is an edge costs nothing.
    """
    xp = array_module(edges)
    origin = origin[..., None]
    nearest = first_least(xp.abs(edges[..., 1:-1] - origin))[..., None] + 1
    inside = (origin > edges[..., :1]) & (origin < edges[..., -1:])
    # Edges stay in order: the nearest one has none between itself and the origin.
    moved = (np.arange(edges.shape[-1]) == nearest) & inside
    return xp.where(moved, origin, edges)


def _interpolated(x: Array, xs: Array, ys: Array) -> Array:
    """Row by row, the piecewise linear function through ``(xs, ys)`` at ``x``."""
    xp = array_module(xs)
    rows = [a.reshape(-1, a.shape[-1]) for a in (x, xs, ys)]
    if xp is np:
        found = np.stack([np.interp(*row) for row in zip(*rows, strict=True)])
    else:
        import jax

        found = jax.vmap(xp.interp)(*rows)
    return found.reshape(x.shape)
