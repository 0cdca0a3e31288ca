"""Moving a privacy loss onto lattice points: from above by chords, from below by supporting lines.

Both work on the hockey-stick curve H(gamma) = E_P[(1 - gamma e^-L)_+], which is convex in gamma, with lattice
points gamma_k = exp(l_k).

*Above.* The chords of H between lattice points lie above H. In masses: the mass p and the Q-mass r of a cell
(l_k, l_k+1] go to its two ends so that both are kept ("connect the dots"),

    up = (p - gamma_k r) / (1 - e^-(l_k+1 - l_k))   to l_k+1,     p - up   to l_k.

*Below.* In each cell take a supporting line of H, the one at the cell's middle if nothing speaks against it. Let
h_k be the smaller of the values at gamma_k of the two neighbouring lines; the chords of h then lie below those
lines, so below H. With

    x+_k = sum over the cell right of l_k, up to where its line touches H, of (p - gamma_k r),
    x-_k = sum over the cell left of l_k, from where its line touches H, of  (gamma_k r - p),

h_k = H(gamma_k) - e_k, e_k = max(x+_k, x-_k), and the masses of h are those of the chords of H minus the
second difference of e. Both are second order in the cell's width: a cell of width w adds about w^2/6 to the
variance of the loss (above) or takes w^2/12 away (below). Where the density jumps, a line at the middle would
make h non-convex; there the line touches at the end towards the emptier neighbour (:class:`CellSums` has both).
A spike at a lattice point is no such jump: the lines at the middles of its two cells meet there, if the point is
the spike's barycentre.

Masses may be tilted, m_k exp(theta l_k - constant); ``theta`` says by how much, and the formulas carry it along.
All inputs are non-negative and nothing cancels, so rounding is a relative error of a few units, which callers
cover with :data:`ROUNDING`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._arrays import array_module, repeated
from jaxacct._rounding import UNIT, inflated
from jaxacct.losses._spelled import added, put

__all__ = ["ROUNDING", "CellSums", "coarsen_above", "coarsen_below", "line_errors", "masses_below", "signed_below"]

ROUNDING = 64.0 * UNIT
"""Relative margin that covers the dozen roundings between a mass and its place on the lattice."""


def _margin(exponent: Any) -> Any:
    """``ROUNDING``, and what exp(theta * width) adds to it.

    The product theta * width is off by a unit or two of itself (a width may be a product), which exp turns into
    a relative error: 2 u |exponent|, doubled.
    """
    return ROUNDING + 4.0 * UNIT * abs(exponent)


_JUMP = 4.0  # ratio of neighbouring densities that counts as a jump
_CARRIES = 8


def coarsen_above(masses: Any, spacing: Any, factor: int, theta: Any) -> Any:
    """Masses on a lattice of ``factor`` times the spacing, dominating the given ones.

    Args:
        masses: tilted masses on the fine lattice, shape ``(n,)``, its first point a point of the coarse lattice.
        spacing: the fine spacing, scalar.
        factor: how many fine cells make a coarse one; divides n.
        theta: the tilt.

    Returns:
        Tilted masses on the coarse lattice, shape ``(n // factor + 1,)``, rounded up.
    """
    xp = array_module(masses, spacing, theta)
    step = np.arange(factor) * spacing
    up = xp.expm1(-step) / xp.expm1(-factor * spacing)
    cells = masses.reshape(-1, factor)
    low = (cells * ((1.0 - up) * xp.exp(-theta * step))).sum(-1)
    high = (cells * (up * xp.exp(theta * (factor * spacing - step)))).sum(-1)
    # 1 - up is formed with an absolute error of 2u; its share goes to the side that already rounds up.
    slack = (cells * xp.exp(-theta * step)).sum(-1) * (4.0 * UNIT)
    total = xp.pad(low + slack, (0, 1)) + xp.pad(high, (1, 0))
    return inflated(total, _margin(theta * factor * spacing))


def coarsen_below(masses: Any, spacing: Any, factor: int, theta: Any) -> tuple[Any, Any]:
    """Masses on a lattice of ``factor`` times the spacing, dominated by the given ones; see ``coarsen_above``.

    Returns:
        The masses, shape ``(n // factor + 1,)``, and the spurious mass of :func:`masses_below`.
    """
    xp = array_module(masses, spacing, theta)
    step = np.arange(factor) * spacing
    width = factor * spacing
    up = xp.expm1(-step) / xp.expm1(-width)
    cells = masses.reshape(-1, factor)
    low = (cells * ((1.0 - up) * xp.exp(-theta * step))).sum(-1)
    high = (cells * (up * xp.exp(theta * (width - step)))).sum(-1)
    chords = xp.pad(low, (0, 1)) + xp.pad(high, (1, 0))
    # The atom in the very middle belongs half to either side.
    side = np.arange(factor)
    left_half = np.where(2 * side < factor, 1.0, np.where(2 * side == factor, 0.5, 0.0))
    rightwards = cells * (-xp.expm1(-step) * xp.exp(-theta * step))
    leftwards = cells * (xp.expm1(width - step) * xp.exp(theta * (width - step)))
    sums = CellSums(
        (rightwards * left_half).sum(-1),
        (leftwards * (1.0 - left_half)).sum(-1),
        rightwards.sum(-1),
        # An atom at l_k itself is in the cell to its left.
        xp.where(side == 0, 0.0, leftwards).sum(-1),
        (cells * left_half).sum(-1),
        (cells * (1.0 - left_half)).sum(-1),
    )
    widths = xp.full(cells.shape[0], width)
    return masses_below(chords, sums, widths, theta)


class CellSums(NamedTuple):
    """Sums of p - gamma_k r (right) and gamma_k+1 r - p (left) over each cell (l_k, l_k+1], shape ``(k,)``.

    Tilted like a mass at l_k (right) and at l_k+1 (left). ``left_mass`` and ``right_mass`` are the (roughly) tilted
    masses of the two halves of the cell, to see jumps and spikes.
    """

    right_half: Any
    left_half: Any
    right_whole: Any
    left_whole: Any
    left_mass: Any
    right_mass: Any


def line_errors(sums: CellSums, widths: Any, theta: Any, from_right: Any = False) -> tuple[Any, Any]:
    """x- and x+ of the module's docstring at the k + 1 lattice points, rounded up: how the cells' lines are chosen.

    Args:
        sums: see :class:`CellSums`.
        widths: widths of the k cells.
        theta: the tilt.
        from_right: cells whose line is to touch at the right end, whatever speaks against it.
    """
    xp = array_module(*sums, widths, theta)
    density = (sums.left_mass + sums.right_mass) / widths
    # The last cell's line touches at its right end, so that nothing is claimed beyond the lattice.
    empty_right = xp.pad(density[1:] < density[:-1] / _JUMP, (0, 1), constant_values=True)
    empty_left = xp.pad(density[:-1] < density[1:] / _JUMP, (1, 0))
    # The cell before a jump follows suit: its line's error must not exceed what the jump's cell can carry.
    near_left = empty_left | xp.pad(empty_left[:-1], (1, 0))
    near_right = empty_right | xp.pad(empty_right[1:], (0, 1))
    # A spike: next to all mass of the two cells around a point is in their halves next to it.
    inner = xp.pad(sums.left_mass, (0, 1)) + xp.pad(sums.right_mass, (1, 0))
    outer = xp.pad(sums.right_mass, (0, 1)) + xp.pad(sums.left_mass, (1, 0))
    spike = inner > _JUMP * outer
    spike = put(spike[1:] | spike[:-1], -1, False)
    touch_right = ((empty_right | (near_right & ~near_left)) & ~spike) | from_right
    touch_left = near_left & ~touch_right & ~spike
    right = xp.where(touch_right, sums.right_whole, xp.where(touch_left, 0.0, sums.right_half))
    left = xp.where(touch_right, 0.0, xp.where(touch_left, sums.left_whole, sums.left_half))
    rounding = 1.0 + _at_points(theta * widths)
    return xp.pad(left, (1, 0)) * rounding, xp.pad(right, (0, 1)) * rounding


def _at_points(exponent: Any) -> Any:
    """The larger margin of the two cells next to each point."""
    xp, margin = array_module(exponent), _margin(exponent)
    return xp.maximum(xp.pad(margin, (0, 1)), xp.pad(margin, (1, 0)))


def signed_below(chords: Any, error: Any, widths: Any, theta: Any) -> Any:
    """Masses of the curve h of the module's docstring.

    Args:
        chords: tilted masses of the chords of H, shape ``(k + 1,)``.
        error: e, tilted like masses at their points, shape ``(k + 1,)``.
        widths: widths of the k cells.
        theta: the tilt.

    Returns:
        Masses of shape ``(k + 1,)``, rounded down; negative where h is not convex.
    """
    xp = array_module(chords, error, widths, theta)
    grow, shrink = xp.exp(theta * widths), xp.exp(-theta * widths)
    rise = (error[1:] * shrink - error[:-1]) / xp.expm1(widths)
    fall = (error[1:] - error[:-1] * grow) / -xp.expm1(-widths)
    # Left of the first point h is the line through the origin's H, whose error falls to 0 at gamma = 0.
    change = xp.concatenate([error[:1], fall]) - xp.pad(rise, (0, 1))
    size_rise = (error[1:] * shrink + error[:-1]) / xp.expm1(widths)
    size_fall = (error[1:] + error[:-1] * grow) / -xp.expm1(-widths)
    size = chords + xp.concatenate([error[:1], size_fall]) + xp.pad(size_rise, (0, 1))
    return chords + change - _at_points(theta * widths) * size


def masses_below(chords: Any, sums: CellSums, widths: Any, theta: Any) -> tuple[Any, Any]:
    """Non-negative masses of the curve h of the module's docstring.

    Args:
        chords: tilted masses of the chords of H, shape ``(k + 1,)``.
        sums: see :class:`CellSums`.
        widths: widths of the k cells.
        theta: the tilt.

    Returns:
        ``(masses, spurious)``: non-negative masses of shape ``(k + 1,)``, and a bound on tilted mass in them
        that has no right to be there: callers charge it as an error.
    """
    # Where h is not convex a mass is negative. Lowering h there to the chord of its neighbours sets the mass to 0
    # and moves the debt to both neighbours; moving all of it to the upper neighbour lowers h more. Every move
    # lowers the curve, so all may be made at once: a few rounds of the first, which is tight, then of the
    # second, which carries a debt out of an empty region. What is left is charged as an error instead.
    xp = array_module(chords, *sums, widths, theta)
    masses = signed_below(chords, xp.maximum(*line_errors(sums, widths, theta)), widths, theta)
    margin = _margin(theta * widths)
    grow, shrink = xp.exp(theta * widths), xp.exp(-theta * widths)
    pair = widths[:-1] + widths[1:]
    up = inflated(xp.expm1(-widths[:-1]) / xp.expm1(-pair), ROUNDING)
    down = inflated(xp.expm1(widths[1:]) / xp.expm1(pair), ROUNDING)
    # Debts that move are rounded up.
    grow_up, shrink_up = inflated(grow, margin), inflated(shrink, margin)

    def to_both(state: tuple[Any]) -> tuple[Any]:
        (masses,) = state
        owed = xp.maximum(-masses, 0.0)
        inner = owed[1:-1]
        higher = xp.concatenate([owed[:1], inner * up]) * grow_up
        lower = inner * down * shrink_up[:-1]
        debt = xp.pad(higher, (1, 0)) + xp.pad(lower, (0, 2))
        return (xp.maximum(masses, 0.0) - added(debt, -1, owed[-1]),)

    def upwards(state: tuple[Any]) -> tuple[Any]:
        (masses,) = state
        owed = xp.maximum(-masses, 0.0)
        return (xp.maximum(masses, 0.0) - added(xp.pad(owed[:-1] * grow_up, (1, 0)), -1, owed[-1]),)

    if xp is not np or np.any(masses < 0):
        (masses,) = repeated(upwards, repeated(to_both, (masses,), _CARRIES), 2 * _CARRIES)
    return xp.maximum(masses, 0.0), inflated(xp.maximum(-masses, 0.0).sum(), 1e-9)
