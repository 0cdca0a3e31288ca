"""One run's privacy loss on a grid, from above and from below.

Between neighbouring lattice points it is placed by `losses.grids.supporting_lines`. From above, what lies beyond the
lattice's top counts as infinite, and what lies under its lowest point is moved up to that; from below, the former is
pulled down to the top, and the latter is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.curve_arrays import added
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.losses.grids.supporting_lines import ROUNDING, CellSums, masses_below
from jaxacct.mechanisms.pairs.base import Pair, Tails

CEILING = 650.0
"""Largest loss on any lattice: exp(CEILING) times a Q-mass stays a normal number. Above it, mass counts as infinite."""

_FLOOR = 1e-290  # probability below which tails are not trusted to be normal numbers


class Step(NamedTuple):
    """One run's masses on ``size`` lattice points.

    Attributes:
        above: masses that dominate, with ``infinite_above`` added; shape ``(size,)``.
        below: masses that are dominated, but for ``spurious``; shape ``(size,)``.
        spurious: bound on mass in ``below`` that has no right to be there.
        infinite_above: bound on the probability of a loss that ``above`` lacks: infinite, or above the lattice.
        infinite_below: a probability of an infinite loss that is certain; ``below`` does not hold it.
        clipped: mass in ``below`` without a right to be there if losses may not be taken to be off by
            ``pair.loss_error()``. Each P(A) - gamma Q(A) is below H(gamma) wherever the tails of A = (L > l) really
            were evaluated; but a cell with p < gamma_k r, which only such an error makes, counts as 0 there.
    """

    above: Array
    below: Array
    spurious: Array
    infinite_above: Array
    infinite_below: Array
    clipped: Array


def step_masses(
    pair: Pair,
    spacing: Any,
    lowest: Any,
    size: int,
    below: Callable[[Any, CellSums, Any], tuple[Any, Any]] = masses_below,
) -> Step:
    """Discretises one run of ``pair`` on ``size`` lattice points ``(lowest + i) * spacing``.

    ``below`` makes the masses from below; it takes and returns what
    :func:`jaxacct.losses.grids.supporting_lines.masses_below` does.
    """
    xp = array_module(pair, spacing, lowest)
    losses = (lowest + np.arange(size)) * spacing
    edges = xp.concatenate([xp.stack([losses[:-1], losses[:-1] + 0.5 * spacing], 1).ravel(), losses[-1:]])
    tails = Tails(*(xp.asarray(x) for x in pair.tails(edges)))
    error = tails.error[::2]
    p_half, p_slack = (_pairs(x) for x in _cells(tails.p_above, tails.p_below, tails.error))
    q_half, q_slack = (_pairs(x) for x in _cells(tails.q_above, tails.q_below, tails.error))
    p_cell, q_cell = p_half.sum(1), q_half.sum(1)
    share = -xp.expm1(-spacing)
    gamma = xp.exp(xp.minimum(losses, CEILING))[:, None]
    gamma_error = 4.0 * UNIT * (1.0 + xp.abs(losses))[:, None]  # a unit of a loss bounds its rounding
    low, high, low_error, high_error = gamma[:-1], gamma[1:], gamma_error[:-1], gamma_error[1:]
    low_slack = p_slack + low * (q_slack + q_half * low_error)
    high_slack = p_slack + high * (q_slack + q_half * high_error)

    # Above: chords over whole cells. Rounding in the split moves mass by one cell; towards the upper end.
    up = inflated((p_cell - low[:, 0] * q_cell + low_slack.sum(1)) / share, ROUNDING)
    up = xp.clip(up, 0.0, p_cell)
    points = xp.pad(p_cell - up, (0, 1)) + xp.pad(up, (1, 0))
    points = inflated(added(points, 0, tails.p_below[0]), error + ROUNDING)
    cut = losses > CEILING
    above = xp.where(cut, 0.0, points)
    beyond = xp.where(cut, points, 0.0).sum() + inflated(tails.p_above[-1], error[-1])

    # Below: the same chords without any rounding up. Cells that are cut, or whose Q-tail may have underflowed, are left
    # out: less mass is below.
    kept = ~cut[1:] & (tails.q_above[:-1:2] > _FLOOR)
    exact_up = xp.clip((p_cell - low[:, 0] * q_cell) / share, 0.0, p_cell)
    infinity = xp.asarray(pair.infinity())
    above_top = xp.maximum(tails.p_above[-1] - infinity, 0.0)
    chords = xp.pad(xp.where(kept, p_cell - exact_up, 0.0), (0, 1)) + xp.pad(xp.where(kept, exact_up, 0.0), (1, 0))
    chords = deflated(added(chords, -1, xp.where(kept[-1], above_top, 0.0)), error + ROUNDING)
    rightwards = xp.maximum(p_half - low * q_half, 0.0) + low_slack
    leftwards = xp.maximum(high * q_half - p_half, 0.0) + high_slack
    sums = (rightwards[:, 0], leftwards[:, 1], rightwards.sum(1), leftwards.sum(1), p_half[:, 0], p_half[:, 1])
    held, spurious = below(chords, CellSums(*(xp.where(kept, one, 0.0) for one in sums)), spacing)
    clipped = xp.where(kept, xp.maximum(low[:, 0] * q_cell - p_cell, 0.0) / share, 0.0)
    infinite = inflated(beyond + _FLOOR, 1e-9)
    return Step(above, held, spurious, infinite, infinity, inflated(clipped.sum(), 1e-9))


def _cells(above: Any, below: Any, error: Any) -> tuple[Any, Any]:
    """Mass of each cell between neighbouring edges from the smaller tail, and its absolute error."""
    xp = array_module(above, below, error)
    right = above[:-1] < below[1:]
    mass = xp.where(right, above[:-1] - above[1:], below[1:] - below[:-1])
    return xp.maximum(mass, 0.0), 2.0 * xp.where(right, above[:-1], below[1:]) * xp.maximum(error[:-1], error[1:])


def _pairs(halves: Any) -> Any:
    return halves.reshape(-1, 2)
