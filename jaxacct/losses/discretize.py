"""One step's privacy loss on a lattice, tilted, from above and from below.

A step's loss is concentrated within a few standard deviations and has a far, thin tail (a rarely sampled
record). So the lattice is evaluated on a *pattern*: every point near the bulk, then octaves whose cells double
in width, so that a cell's width stays below a few thousandths of its distance. Cells wider than the lattice's
spacing only cost tightness in proportion to the mass they hold.

Beyond the lattice, a row of geometric cells carries the tail up to losses that no double can weigh. What they
hold is not placed anywhere: it is returned as tilted mass that an upper bound has to add back
(:mod:`jaxacct.losses.read` says how), or as mass at infinity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from jaxacct._arrays import array_module, repeated
from jaxacct._rounding import UNIT, deflated, inflated
from jaxacct.losses._spelled import added, put, tree_module
from jaxacct.losses.chord import ROUNDING, CellSums, masses_below
from jaxacct.mechanisms._pair import Tails

__all__ = ["CEILING", "Step", "lattice_origin", "pattern", "step_masses"]

CEILING = 650.0
"""Largest loss on any lattice: exp(CEILING) times a Q-mass stays a normal number. Above it, mass counts as infinite."""

_FLOOR = 1e-290  # P-mass below which tails are not trusted to be normal numbers
_LARGEST = 600.0  # log of the largest tilted mass
_BEYOND = 160  # cells beyond the lattice; at 1.15 each they reach 1e8 lattice lengths
_GROWTH = 1.15


class Step(NamedTuple):
    """One step's tilted masses on ``size`` lattice points.

    Attributes:
        above: masses that dominate, with ``lost`` and ``infinite_above`` added; shape ``(size,)``.
        below: masses that are dominated, but for ``spurious``; shape ``(size,)``.
        lost: bound on tilted mass above the lattice that ``above`` lacks.
        spurious: bound on tilted mass in ``below`` that has no right to be there.
        infinite_above: bound on the (untilted) probability of an infinite loss.
        infinite_below: a probability of an infinite loss that is certain; ``below`` does not hold it.
        clipped: mass in ``below`` (untilted) without a right to be there if losses may not be taken to be off by
            ``pair.loss_error()``. Each P(A) - gamma Q(A) is below H(gamma) wherever the tails of A = (L > l) really
            were evaluated; but a cell with p < gamma_k r, which only such an error makes, counts as 0 there.
    """

    above: Array
    below: Array
    lost: Array
    spurious: Array
    infinite_above: Array
    infinite_below: Array
    clipped: Array


@functools.cache
def pattern(size: int, centre: int, near: int) -> np.ndarray:
    """Lattice points to evaluate: all within ``near`` of ``centre``, then ``near / 2`` cells of every power of 2.

    Neighbouring cells differ in width by at most a factor of 2: the curve from below has an error proportional
    to the width squared, and a larger jump would break its convexity.
    """
    points = [np.arange(-near, near + 1)]
    reach, stride, run = near, 2, near // 2
    while reach < size:
        side = reach + stride * np.arange(1, run + 1)
        points += [side, -side]
        reach, stride = reach + stride * run, 2 * stride
    return np.unique(np.clip(np.concatenate(points) + centre, 0, size - 1)).astype(np.int64)


def step_masses(
    pair: Any,
    theta: Any,
    log_normaliser: Any,
    origin: Any,
    spacing: Any,
    lowest: Any,
    size: int,
    centre: int,
    near: int,
    cutoff: Any = math.inf,
    lift: bool = False,
    below: Callable[[Any, CellSums, Any, Any], tuple[Any, Any]] = masses_below,
) -> Step:
    """Discretises one step of ``pair`` on lattice points ``origin + (lowest + i) * spacing``, i < size.

    Args:
        pair: a :class:`jaxacct.mechanisms._pair.Pair`.
        theta: tilt; masses are multiplied by exp(theta * loss - log_normaliser).
        log_normaliser: any number; close to log E_P[exp(theta L)] keeps the tilted total near 1.
        origin: a loss that is a lattice point, scalar; see :func:`lattice_origin`.
        spacing: lattice spacing, scalar.
        lowest: integer index of the first point, scalar float64 or int64.
        size: number of points, static.
        centre: index of the point in the middle of the loss's bulk, static.
        near: half width of the part of the lattice that is evaluated at every point, static.
        lift: whether mass below the lattice is moved up to its lowest point, or counted in ``lost`` like what lies
            above. A large tilt must not lift: a bulk of mass 1 far below would be multiplied by exp(theta * lift).
        below: what makes the masses from below, static; takes and returns what
            :func:`jaxacct.losses.chord.masses_below` does.
        cutoff: loss above which mass is called infinite (above) or dropped (below) instead of being placed.

    Returns:
        :class:`Step`.
    """
    xp = tree_module(pair, theta, log_normaliser, origin, spacing, lowest, cutoff)
    index = pattern(size, centre, near)
    steps_away = (lowest + index) * spacing
    losses = origin + steps_away
    rounded = xp.abs(origin) + xp.abs(steps_away)  # a unit of this bounds the rounding of a lattice point
    widths = np.diff(index) * spacing
    middles = losses[:-1] + 0.5 * widths
    top = losses[-1]
    # Cells beyond the top: the first is a hundredth of the lattice wide.
    growth = np.cumsum(_GROWTH ** np.arange(_BEYOND)) * 0.01
    beyond = xp.minimum(top + growth * (size * spacing), CEILING)
    edges = xp.concatenate([xp.stack([losses[:-1], middles], 1).ravel(), top[None], beyond])
    tails = Tails(*(xp.asarray(x) for x in pair.tails(edges)))
    inner = 2 * (len(index) - 1)  # half cells on the lattice
    under = xp.maximum(losses[0] - growth * (size * spacing), -CEILING)

    p, p_error = _cells(tails.p_above, tails.p_below, tails.error)
    q, q_error = _cells(tails.q_above, tails.q_below, tails.error)
    p_inner, q_inner, p_slack, q_slack = p[:inner], q[:inner], p_error[:inner], q_error[:inner]

    # Above: chords over whole cells. Rounding in the split moves mass by one cell; towards the upper end.
    exponent = theta * losses - log_normaliser
    weight = xp.exp(xp.minimum(exponent, _LARGEST))
    weight_error = 8.0 * UNIT * (4.0 + theta * rounded + xp.abs(log_normaliser))
    gamma = xp.exp(xp.minimum(losses, CEILING))
    gamma_error = 4.0 * UNIT * (1.0 + rounded)
    p_cell, q_cell = _joined(p_inner), _joined(q_inner)
    slack = _joined(p_slack) + gamma[:-1] * (_joined(q_slack) + q_cell * gamma_error[:-1])
    up = inflated((p_cell - gamma[:-1] * q_cell + slack) / -xp.expm1(-widths), ROUNDING)
    up = xp.clip(up, 0.0, p_cell)
    bottom = tails.p_below[0] if lift else 0.0
    points = xp.pad(p_cell - up, (0, 1)) + xp.pad(up, (1, 0))
    points = inflated(added(points, 0, bottom), tails.error[: inner + 1 : 2] + ROUNDING)
    # A point is beyond the cutoff if the whole cell below it is: a cell that holds the cutoff keeps its upper end.
    # So is one whose tilted mass could overflow.
    cut = xp.pad(losses[:-1] > cutoff, (1, 0)) | (exponent > _LARGEST) | (losses > CEILING)
    infinite_points = xp.where(cut, points, 0.0).sum()
    above = put(np.zeros(size), index, xp.where(cut, 0.0, inflated(points * weight, weight_error)))

    # Beyond the top: each cell is charged either as tilted mass at its upper end or as infinite loss.
    p_beyond = inflated(p[inner:], tails.error[inner:-1] + ROUNDING)
    tilted = p_beyond * xp.exp(xp.minimum(theta * beyond - log_normaliser, _LARGEST))
    weighable = (tails.p_above[inner:-1] > _FLOOR) & (theta * beyond - log_normaliser < _LARGEST) & (beyond <= cutoff)
    lost = inflated(xp.where(weighable, tilted, 0.0).sum(), 1e-9)
    infinite = xp.where(weighable, 0.0, p_beyond).sum() + inflated(tails.p_above[-1], tails.error[-1])
    infinite = inflated(infinite + infinite_points + _FLOOR, 1e-9)

    if not lift:  # Mass under the lattice, each cell at its upper end; the last cell holds all the rest.
        heights = xp.concatenate([losses[:1], under])
        low = Tails(*(xp.asarray(x) for x in pair.tails(heights)))
        each = low.p_below - xp.pad(low.p_below[1:], (0, 1))
        low_error = xp.maximum(low.error, xp.pad(low.error[1:], (0, 1)))
        each = inflated(xp.maximum(each, 0.0) + 2.0 * low_error * low.p_below, ROUNDING)
        lost += inflated((each * xp.exp(theta * heights - log_normaliser)).sum(), 1e-9)  # may overflow: all is lost

    # Below: the same chords without any rounding up, the part above the lattice pulled down to its top. Cells that
    # are cut, or whose Q-tail may have underflowed, are left out: less mass is below.
    kept = ~cut[1:] & (tails.q_above[:inner:2] > _FLOOR)
    exact_up = xp.clip((p_cell - gamma[:-1] * q_cell) / -xp.expm1(-widths), 0.0, p_cell)
    infinity = xp.asarray(pair.infinity())
    above_top = xp.maximum(tails.p_above[inner] - infinity, 0.0)
    chords = xp.pad(xp.where(kept, p_cell - exact_up, 0.0), (0, 1)) + xp.pad(xp.where(kept, exact_up, 0.0), (1, 0))
    chords = deflated(added(chords, -1, xp.where(kept[-1], above_top, 0.0)), tails.error[: inner + 1 : 2] + ROUNDING)
    p_half, q_half = _pairs(p_inner), _pairs(q_inner)
    half_slack = _pairs(p_slack) + gamma[:-1, None] * (_pairs(q_slack) + q_half * gamma_error[:-1, None])
    rightwards = xp.maximum(p_half - gamma[:-1, None] * q_half, 0.0) + half_slack
    high = gamma[1:, None]
    high_slack = _pairs(p_slack) + high * (_pairs(q_slack) + q_half * gamma_error[1:, None])
    leftwards = xp.maximum(high * q_half - p_half, 0.0) + high_slack
    low_weight, high_weight = inflated(weight, weight_error)[:-1], inflated(weight, weight_error)[1:]
    sums = CellSums(
        rightwards[:, 0] * low_weight,
        leftwards[:, 1] * high_weight,
        rightwards.sum(1) * low_weight,
        leftwards.sum(1) * high_weight,
        p_half[:, 0] * low_weight,
        p_half[:, 1] * low_weight,
    )
    sums = CellSums(*(xp.where(kept, one, 0.0) for one in sums))
    held, spurious = below(deflated(chords * weight, weight_error), sums, widths, theta)
    placed = put(np.zeros(size), index, held)
    clipped = xp.where(kept, xp.maximum(gamma[:-1] * q_cell - p_cell, 0.0) / -xp.expm1(-widths), 0.0)
    return Step(above, placed, lost, spurious, infinite, infinity, inflated(clipped.sum(), 1e-9))


def lattice_origin(pair: Any, mean: Any, spacing: Any, near: int) -> Any:
    """The loss that becomes a lattice point of ``pair``'s lattice: an atom, or the barycentre of the loss's spike.

    A rarely sampled record's loss is a spike much narrower than a cell. A spike inside a cell costs the bound
    from below a share of the *width* of the cell; a spike whose barycentre is a lattice point costs only its own
    width squared. The barycentre, in the sense that a chord keeps, is log(p / r) of the P- and Q-mass in the two
    half cells around the point. It only steers: any origin is sound.

    Args:
        pair: a :class:`jaxacct.mechanisms._pair.Pair`.
        mean: where the lattice's evaluated pattern has its centre.
        spacing: lattice spacing.
        near: see :func:`step_masses`.
    """
    xp = tree_module(pair, mean, spacing)
    anchor, period = (xp.asarray(x) for x in pair.anchors())
    cell = spacing * xp.exp2(xp.ceil(xp.log2(xp.maximum(xp.abs(anchor - mean) / (near * spacing), 1.0))))

    def move(state: tuple[Any]) -> tuple[Any]:
        (origin,) = state
        low, high = origin - 0.5 * cell, origin + 0.5 * cell
        tails = Tails(*(xp.asarray(x) for x in pair.tails(xp.stack([low, high]))))
        p = _cells(tails.p_above, tails.p_below, tails.error)[0][0]
        q = _cells(tails.q_above, tails.q_below, tails.error)[0][0]
        centre = xp.clip(xp.log(p) - xp.log(q), low, high)
        return (xp.where(xp.isfinite(centre), centre, origin),)

    return xp.where(period > 0, anchor, repeated(move, (anchor,), 3)[0])


def _cells(above: Any, below: Any, error: Any) -> tuple[Any, Any]:
    """Mass of each cell between neighbouring edges from the smaller tail, and its absolute error."""
    xp = array_module(above, below, error)
    right = above[:-1] < below[1:]
    mass = xp.where(right, above[:-1] - above[1:], below[1:] - below[:-1])
    return xp.maximum(mass, 0.0), 2.0 * xp.where(right, above[:-1], below[1:]) * xp.maximum(error[:-1], error[1:])


def _pairs(halves: Any) -> Any:
    return halves.reshape(-1, 2)


def _joined(halves: Any) -> Any:
    return halves[::2] + halves[1::2]
