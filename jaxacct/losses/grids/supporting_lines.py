"""Moves a privacy loss onto grid points: from above by chords, from below by supporting lines (docs/proofs/curves.md).

Both work on the hockey-stick curve H(gamma) = E_P[(1 - gamma e^-L)_+], which is convex in gamma, with lattice
points gamma_k = exp(l_k), l_k+1 - l_k = h.

*Above.* The chords of H between lattice points lie above H. In masses: the mass p and the Q-mass r of a cell
(l_k, l_k+1] go to its two ends so that both are kept ("connect the dots"),

    up = (p - gamma_k r) / (1 - e^-h)   to l_k+1,     p - up   to l_k.

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

All inputs are non-negative and nothing cancels, so rounding is a relative error of a few units, which callers
cover with :data:`ROUNDING`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.curve_arrays import added, put
from jaxacct._numerics.rounding import UNIT, inflated

ROUNDING = 64.0 * UNIT
"""Relative margin that covers the dozen roundings between a mass and its place on the lattice."""

_JUMP = 4.0  # ratio of neighbouring densities that counts as a jump
_CARRIES = 8


class CellSums(NamedTuple):
    """Sums of p - gamma_k r (right) and gamma_k+1 r - p (left) over each cell (l_k, l_k+1], shape ``(k,)``.

    ``left_mass`` and ``right_mass`` are the masses of the two halves of the cell, to see jumps and spikes.
    """

    right_half: Any
    left_half: Any
    right_whole: Any
    left_whole: Any
    left_mass: Any
    right_mass: Any


def line_errors(sums: CellSums, from_right: Any = False) -> tuple[Array, Array]:
    """x- and x+ of the module's docstring at the k + 1 lattice points, rounded up: how the cells' lines are chosen.

    Cells ``from_right`` have a line that touches at the right end, whatever speaks against it.
    """
    xp = array_module(*sums)
    held = sums.left_mass + sums.right_mass
    # The last cell's line touches at its right end, so that nothing is claimed beyond the lattice.
    empty_right = xp.pad(held[1:] < held[:-1] / _JUMP, (0, 1), constant_values=True)
    empty_left = xp.pad(held[:-1] < held[1:] / _JUMP, (1, 0))
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
    return inflated(xp.pad(left, (1, 0)), ROUNDING), inflated(xp.pad(right, (0, 1)), ROUNDING)


def signed_below(chords: Any, error: Array, spacing: Any) -> Array:
    """Masses of the curve h of the module's docstring, ``(k + 1,)``, rounded down; negative where h is not convex.

    ``chords`` are the masses of the chords of H, ``error`` is e.
    """
    xp = array_module(chords, error, spacing)
    up, down = xp.expm1(spacing), -xp.expm1(-spacing)
    change, size = error[1:] - error[:-1], error[1:] + error[:-1]
    # Left of the first point h is the line through the origin's H, whose error falls to 0 at gamma = 0.
    moved = xp.concatenate([error[:1], change / down]) - xp.pad(change / up, (0, 1))
    size = chords + xp.concatenate([error[:1], size / down]) + xp.pad(size / up, (0, 1))
    return chords + moved - ROUNDING * size


def masses_below(chords: Any, sums: CellSums, spacing: Any) -> tuple[Array, Array]:
    """Non-negative masses of the curve h of the module's docstring, shape ``(k + 1,)``, from those of the chords of H.

    A bound on mass in them that has no right to be there comes with them: callers charge it as an error.
    """
    # Where h is not convex a mass is negative. Lowering h there to the chord of its neighbours sets the mass to 0
    # and moves the debt to both neighbours; moving all of it to the upper neighbour lowers h more. Every move
    # lowers the curve, so all may be made at once: a few rounds of the first, which is tight, then of the
    # second, which carries a debt out of an empty region. What is left is charged as an error instead.
    xp = array_module(chords, *sums, spacing)
    masses = signed_below(chords, xp.maximum(*line_errors(sums)), spacing)
    # Debts that move are rounded up.
    up, down = (inflated(1.0 / (1.0 + xp.exp(x)), 2.0 * ROUNDING) for x in (-spacing, spacing))

    def to_both(state: tuple[Any]) -> tuple[Any]:
        (masses,) = state
        owed = xp.maximum(-masses, 0.0)
        inner = owed[1:-1]
        higher = xp.concatenate([inflated(owed[:1], ROUNDING), inner * up])
        debt = xp.pad(higher, (1, 0)) + xp.pad(inner * down, (0, 2))
        return (xp.maximum(masses, 0.0) - added(debt, -1, owed[-1]),)

    def upwards(state: tuple[Any]) -> tuple[Any]:
        (masses,) = state
        owed = xp.maximum(-masses, 0.0)
        return (xp.maximum(masses, 0.0) - added(xp.pad(inflated(owed[:-1], ROUNDING), (1, 0)), -1, owed[-1]),)

    if xp is not np or np.any(masses < 0):
        (masses,) = repeated(upwards, repeated(to_both, (masses,), _CARRIES), 2 * _CARRIES)
    return xp.maximum(masses, 0.0), inflated(xp.maximum(-masses, 0.0).sum(), 1e-9)
