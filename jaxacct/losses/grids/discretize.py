"""One run's privacy loss on a grid, from above and from below.

Between neighbouring lattice points, a cell (l_k, l_k+1] with mass p and Q-mass r, it goes from above to both of them:
(p - gamma_k r) / (1 - e^-h) to the upper one, and the rest to the lower one, which keeps both masses, so that the curve
is the chord of H; from below as `losses.grids.convex_envelope` says. From above, what lies beyond the
lattice's top counts as infinite, and what lies under its lowest point is moved up to that; from below, the former is
pulled down to the top, and the latter is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.curve_arrays import added
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.losses.grids.convex_envelope import ROUNDING, CellSums, convex_below
from jaxacct.mechanisms.pairs.base import Pair, Tails

CEILING = 650.0
"""Largest loss on any lattice: exp(CEILING) times a Q-mass stays a normal number. Above it, mass counts as infinite."""

_FLOOR = 1e-290  # probability below which tails are not trusted to be normal numbers


class _Halves(NamedTuple):
    """The cells between ``size`` lattice losses, each in two halves, as one run of a pair fills them.

    ``p`` and ``q`` are masses of shape ``(size - 1, 2)``, with absolute errors; ``gamma`` is exp(loss), shape
    ``(size, 1)``, with relative ones; ``share`` is 1 - e^-spacing.
    """

    losses: Array
    tails: Tails
    p: Array
    p_error: Array
    q: Array
    q_error: Array
    gamma: Array
    gamma_error: Array
    share: Array


def masses_above(pair: Pair, spacing: Array, lowest: Array, size: int) -> tuple[Array, Array]:
    """``(masses, infinite)`` that dominate one run of ``pair`` on lattice points ``(lowest + i) * spacing``.

    ``infinite`` bounds the probability of a loss that the ``size`` masses lack: infinite, or above the lattice.
    """
    losses, tails, p, p_error, q, q_error, gamma, gamma_error, share = _halves(pair, spacing, lowest, size)
    xp = array_module(losses, *tails)
    error, p_cell = tails.error[::2], p.sum(1)
    slack = p_error + gamma[:-1] * (q_error + q * gamma_error[:-1])
    # Chords over whole cells. Rounding in the split moves mass by one cell; towards the upper end.
    up = inflated((p_cell - gamma[:-1, 0] * q.sum(1) + slack.sum(1)) / share, ROUNDING)
    up = xp.clip(up, 0.0, p_cell)
    points = xp.pad(p_cell - up, (0, 1)) + xp.pad(up, (1, 0))
    points = inflated(added(points, 0, tails.p_below[0]), error + ROUNDING)
    cut = losses > CEILING
    beyond = xp.where(cut, points, 0.0).sum() + inflated(tails.p_above[-1], error[-1])
    return xp.where(cut, 0.0, points), inflated(beyond + _FLOOR, 1e-9)


def masses_below(pair: Pair, spacing: Array, lowest: Array, size: int) -> tuple[Array, Array, Array]:
    """``(masses, infinite, clipped)``: masses that one run of ``pair`` dominates, on the same lattice.

    ``infinite`` is a probability of an infinite loss that is certain; the masses do not hold it. ``clipped`` is mass in
    them without a right to be there if losses may not be taken to be off by ``pair.loss_error()``. Each P(A) - gamma
    Q(A) is below H(gamma) wherever the tails of A = (L > l) really were evaluated; but a cell with p < gamma_k r, which
    only such an error makes, counts as 0 there.
    """
    losses, tails, p, p_error, q, q_error, gamma, gamma_error, share = _halves(pair, spacing, lowest, size)
    xp = array_module(losses, *tails)
    p_cell, q_cell, low, high = p.sum(1), q.sum(1), gamma[:-1], gamma[1:]
    # Chords without any rounding up. Cells that are cut, or whose Q-tail may have underflowed, are left out: less mass
    # is below.
    kept = ~(losses > CEILING)[1:] & (tails.q_above[:-1:2] > _FLOOR)
    up = xp.clip((p_cell - low[:, 0] * q_cell) / share, 0.0, p_cell)
    infinite = xp.asarray(pair.infinity())
    above_top = xp.maximum(tails.p_above[-1] - infinite, 0.0)
    chords = xp.pad(xp.where(kept, p_cell - up, 0.0), (0, 1)) + xp.pad(xp.where(kept, up, 0.0), (1, 0))
    chords = deflated(added(chords, -1, xp.where(kept[-1], above_top, 0.0)), tails.error[::2] + ROUNDING)
    rightwards = xp.maximum(p - low * q, 0.0) + (p_error + low * (q_error + q * gamma_error[:-1]))
    leftwards = xp.maximum(high * q - p, 0.0) + (p_error + high * (q_error + q * gamma_error[1:]))
    sums = (rightwards[:, 0], leftwards[:, 1], rightwards.sum(1), leftwards.sum(1), p[:, 0], p[:, 1])
    held = convex_below(chords, CellSums(*(xp.where(kept, one, 0.0) for one in sums)), spacing)
    clipped = xp.where(kept, xp.maximum(low[:, 0] * q_cell - p_cell, 0.0) / share, 0.0)
    return held, infinite, inflated(clipped.sum(), 1e-9)


def _halves(pair: Pair, spacing: Array, lowest: Array, size: int) -> _Halves:
    xp = array_module(pair, spacing, lowest)
    losses = (lowest + np.arange(size)) * spacing
    edges = xp.concatenate([xp.stack([losses[:-1], losses[:-1] + 0.5 * spacing], 1).ravel(), losses[-1:]])
    tails = Tails(*(xp.asarray(x) for x in pair.tails(edges)))
    p, p_error = (x.reshape(-1, 2) for x in _cells(tails.p_above, tails.p_below, tails.error))
    q, q_error = (x.reshape(-1, 2) for x in _cells(tails.q_above, tails.q_below, tails.error))
    gamma = xp.exp(xp.minimum(losses, CEILING))[:, None]
    gamma_error = 4.0 * UNIT * (1.0 + xp.abs(losses))[:, None]  # a unit of a loss bounds its rounding
    return _Halves(losses, tails, p, p_error, q, q_error, gamma, gamma_error, -xp.expm1(-spacing))


def _cells(above: Array, below: Array, error: Array) -> tuple[Array, Array]:
    """Mass of each cell between neighbouring edges from the smaller tail, and its absolute error."""
    xp = array_module(above, below, error)
    right = above[:-1] < below[1:]
    mass = xp.where(right, above[:-1] - above[1:], below[1:] - below[:-1])
    return xp.maximum(mass, 0.0), 2.0 * xp.where(right, above[:-1], below[1:]) * xp.maximum(error[:-1], error[1:])
