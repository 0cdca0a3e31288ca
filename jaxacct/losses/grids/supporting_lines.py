"""Moves a privacy loss onto grid points: from above by chords, from below by supporting lines (docs/proofs/curves.md).

With H the hockey-stick curve, lattice points gamma_k = exp(l_k) and l_k+1 - l_k = h:

*Above.* A cell (l_k, l_k+1] with mass p and Q-mass r gives up = (p - gamma_k r) / (1 - e^-h) to l_k+1 and p - up to
l_k: both masses are kept, and the curve is the chord of H.

*Below.* Each cell takes a supporting line of H: the one at its middle, or, where the density jumps and that would make
h non-convex, at the end towards the emptier neighbour (:class:`CellSums` has both). A spike at a lattice point is no
such jump. With

    x+_k = sum over the cell right of l_k, up to where its line touches H, of (p - gamma_k r),
    x-_k = sum over the cell left of l_k, from where its line touches H, of  (gamma_k r - p),

and e_k = max(x+_k, x-_k), the smaller of both lines at gamma_k is h_k = H(gamma_k) - e_k. The masses of h are those of
the chords of H minus the second difference of e.

Nothing cancels, so rounding is a relative error of a few units, which callers cover with :data:`ROUNDING`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.curve_arrays import put
from jaxacct._numerics.rounding import UNIT, inflated

ROUNDING = 64.0 * UNIT
"""Relative margin that covers the dozen roundings between a mass and its place on the lattice."""

_JUMP = 4.0  # ratio of neighbouring densities that counts as a jump


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


def signed_below(chords: Any, error: Array, spacing: Array) -> Array:
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
