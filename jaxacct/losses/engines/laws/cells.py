"""Discrete laws above and below the privacy loss of one run, from the tails of its dominating pair.

Cut the line of losses into cells (e_i, e_(i+1)], and let p_i and q_i be the P- and Q-probability of cell i. From below,
the cell has its P-mass at the loss log(p_i / q_i) (post-processing). From above, on a cell [a, b], a mass of
(p - e^a q) / (1 - e^(a - b)) goes to b and the rest to a (convexity); losses below the first edge count as that edge,
losses above the last one as infinite. Proofs: docs/proofs/cells.md. A pair that lists its outcomes needs no cells.

*Samples.* Losses on a rare sample are tiny, and p - e^a q is lost in the rounding of p and q. But with p', q' of the
sampled mechanism, and m its loss where that of the sample is a,

    p - e^a q = rate (p' - e^m q')  (remove),        p - e^a q = rate e^a (e^-m p' - q')  (add),

so that the rounding of tails counts ``rate`` times; and the loss of a cell from below is the sample's loss at
log(p' / q').

Every array has leading axes of settings and parts, ``(B, K)`` in the engine; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, column, running_greatest, xp
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.pairs.base import Pair, Tails, beyond_ends, loss_room
from jaxacct.mechanisms.pairs.cells import cell_masses
from jaxacct.mechanisms.pairs.sampled_loss import Sample, inner_loss, mixed_loss_up
from jaxacct.mechanisms.pairs.table import LEAST
from jaxacct.mechanisms.parameters import RATE_UNITS

_TINY = 1e-290  # what underflow may hide
_FARTHEST = 1e300  # stands for losses beyond all others; tails are asked for at finite losses only


class Law(NamedTuple):
    """A measure that bounds the law of a loss under P from one side, exactly as it stands.

    Attributes:
        losses: shape ``(..., S)``, finite; from above sorted.
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
    finite = xp.isfinite(atoms.losses)
    losses = xp.where(finite, atoms.losses, 0.0)
    off = xp.broadcast_to(atoms.loss_error, losses.shape)
    poison, order = 0.0 * (atoms.p.sum(-1) + atoms.q.sum(-1)), xp.argsort(losses, -1)
    by_loss = lambda x: xp.take_along_axis(x, order, -1)  # noqa: E731

    def side(masses: Array, losses: Array) -> Law:
        infinite = xp.where(atoms.losses == np.inf, masses, 0.0).sum(-1) + poison
        return Law(by_loss(losses), by_loss(xp.where(finite, masses, 0.0)) + poison[..., None], infinite)

    lower = xp.where(atoms.p > LEAST, deflated(atoms.p, atoms.error), 0.0)
    upper = xp.where(atoms.p > 0, inflated(atoms.p, atoms.error) + LEAST, 0.0)
    size = UNIT * (4.0 + losses.shape[-1])
    below, above = side(lower, losses - off), side(upper, losses + off)
    below = below._replace(infinite=deflated(below.infinite, size))
    return Laws(below, above._replace(infinite=inflated(above.infinite, size)))


def laws(pair: Any, edges: Array) -> Laws:
    """From the tails at ``edges``, increasing and finite, shape ``(..., S + 1)``; see the module's docstring.

    Constants are counted in docs/proofs/cells.md.
    """
    return _laws_of_sample(pair, pair.sample(), edges) if hasattr(pair, "sample") else _laws_of_any(pair, edges)


def _laws_of_any(pair: Pair, edges: Array) -> Laws:
    cells = _cells(pair.tails(edges))
    left = edges[..., :-1]

    # Below. An infinite loss and whatever lies outside the cells are left out.
    held = cells.least[0]
    ratio = _log_ratio(cells)
    # A cell whose ratio lies far below it holds next to nothing.
    ratio = xp.where(held > 0, xp.minimum(ratio, edges[..., 1:]), left)
    below = Law(ratio, held, xp.broadcast_to(pair.infinity(), held.shape[:-1]))

    # Above. Tails belong to edges that are off by up to eta: losses are clipped to their cell, and moved up by eta.
    size = xp.abs(edges)
    beside = xp.concatenate([size[..., :1], size, size[..., -1:]], -1)
    size = xp.maximum(size, xp.maximum(beside[..., 2:], beside[..., :-2]))
    eta = loss_room(pair.loss_error(), size)
    # e^left Q, next to P or less. Beyond the range of exp the last cells count as losses of P alone.
    gamma = xp.where(left < 700.0, xp.exp(xp.minimum(left, 700.0)), 0.0)
    scaled = gamma * cells.mass[1]
    excess = cells.mass[0] - scaled + cells.off[0] + gamma * cells.off[1]
    excess = excess + scaled * (2.0 * eta[..., :-1] + 8.0 * UNIT * (2.0 + xp.abs(left)))
    excess = excess + 8.0 * UNIT * (cells.most[0] + scaled)
    lengths = edges[..., 1:] - left
    return Laws(below, _above(pair, edges, edges + eta, lengths, cells.most[0], excess, cells.under[0], cells.over[0]))


def _laws_of_sample(pair: Pair, sample: Sample, edges: Array) -> Laws:
    """See the module's docstring: ``cells`` has p' and q', and ``at`` is m at the edges."""
    inner, rate, rest, add = sample.inner, column(sample.rate), column(sample.rest), column(sample.reverse) > 0.5
    straight = inner_loss(xp.where(add, -edges, edges), rate, rest)
    at = xp.where(add, -straight, straight)
    tails = inner.tails(xp.clip(at, -_FARTHEST, _FARTHEST))
    tails = beyond_ends(tails, at == -np.inf, at == np.inf)  # of the sample no loss lies beyond these
    finite = xp.isfinite(at)
    cells = _cells(tails._replace(error=xp.where(finite, tails.error, 0.0)))
    units = (16.0 + 2.0 * RATE_UNITS) * UNIT
    mixed = lambda both: xp.where(add, both[0], rest * both[1] + rate * both[0])  # noqa: E731

    def outer(loss: Array, down: Array) -> Array:
        """The loss of the sample at a loss of the mechanism, rounded."""
        turned = mixed_loss_up(xp.where(add, -loss, loss), rate, rest, add ^ down)
        return xp.where(add, -turned, turned)

    # Below an edge of the law from above some losses may have been counted in the cell above it.
    room = loss_room(inner.loss_error(), xp.where(finite, xp.abs(at), 0.0))
    ratio = xp.where(cells.least[0] > 0, _log_ratio(cells), -np.inf)
    size = at.shape[-1]
    found = outer(xp.concatenate([ratio, at - room, at + room], -1), np.arange(3 * size - 1) < 2 * size - 1)
    ratio, low, high = found[..., : size - 1], found[..., size - 1 : 2 * size - 1], found[..., 2 * size - 1 :]

    # Below.
    every = mixed(xp.concatenate([cells.least, cells.under, cells.most, cells.over], -1))
    held, most = deflated(every[..., : size - 1], units), inflated(every[..., size - 1 :], units)
    under, most, over = most[..., :1], most[..., 1:-1], most[..., -1:]
    ratio = xp.where(held > 0, ratio, edges[..., :-1])
    below = Law(ratio, held, xp.broadcast_to(pair.infinity(), held.shape[:-1]))

    # Above. The edges where losses of the sample may be at the highest.
    high = running_greatest(high)
    (p, q), q_least = cells.most, cells.least[1]
    left, growth = at[..., :-1], xp.exp(xp.minimum(high[..., :-1], 700.0))
    against = xp.where(left < 700.0, xp.exp(xp.clip(left, -700.0, 700.0)), 0.0)
    removed = p - against * q_least + 8.0 * UNIT * (p + against * q_least)
    against = xp.exp(xp.clip(-left, -700.0, 700.0))
    added = against * p - q_least + 8.0 * UNIT * (against * p + q_least)
    added = xp.where(left > -700.0, growth * added, np.inf)
    q_most = inflated(xp.where(add, rest * p + rate * q, q), units)
    excess = inflated(rate * xp.maximum(xp.where(add, added, removed), 0.0), units)
    excess = excess + inflated(growth * q_most * (high - low)[..., :-1], units)
    lengths = high[..., 1:] - high[..., :-1]
    return Laws(below, _above(pair, edges, high, lengths, most, excess, under, over))


def _above(
    pair: Pair, edges: Array, losses: Array, lengths: Array, most: Array, excess: Array, under: Array, over: Array
) -> Law:
    """The law from above, on ``losses``, from the cells' P-masses and from p - e^a q, both rounded up."""
    up = inflated((excess + _TINY) / -xp.expm1(-lengths), 16.0 * UNIT)
    up = xp.clip(up, 0.0, most)
    stay = inflated(xp.maximum(most - up, 0.0), 2.0 * UNIT)
    none = xp.zeros_like(most[..., :1])
    masses = xp.concatenate([stay, none], -1) + xp.concatenate([under, up], -1)
    # Beyond the largest loss a tail is exactly 0; elsewhere it may have underflowed.
    over = xp.where(edges[..., -1:] >= column(pair.max_loss()), over, over + _TINY)
    return Law(losses, inflated(masses, 4.0 * UNIT), over[..., 0])


class _Cells(NamedTuple):
    """P- and Q-masses of cells, in that order along the first axis, with bounds that allow for their errors.

    Attributes:
        mass, off: masses as computed, and bounds on their errors.
        least, most: bounds of the masses.
        under, over: masses below and above all cells, rounded up.
    """

    mass: Array
    off: Array
    least: Array
    most: Array
    under: Array
    over: Array


def _cells(tails: Tails) -> _Cells:
    mass, off, above, below = cell_masses(tails)
    least = xp.maximum(deflated(mass - off, 4.0 * UNIT) - _TINY, 0.0)
    most = inflated(mass + off, 4.0 * UNIT) + np.array([LEAST, _TINY]).reshape(2, *[1] * (mass.ndim - 1))
    first, last = tails.error[..., :1], tails.error[..., -1:]
    return _Cells(mass, off, least, most, inflated(below[..., :1], first), inflated(above[..., -1:], last))


def _log_ratio(cells: _Cells) -> Array:
    """A lower bound of log(p / q), where there is a lower bound of p."""
    held = cells.least[0]
    held, against = xp.log(xp.stack([xp.where(held > 0, held, 1.0), cells.most[1]]))
    ratio = held - against
    return ratio - 8.0 * UNIT * (1.0 + xp.abs(ratio) + xp.abs(against))
