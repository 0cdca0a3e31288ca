"""Excess of mechanisms, PLDs and privacy profiles on grids; each keeps its side.

A profile on a grid is the curve of a law on that grid, so the two convert without discretisation: the masses determine
H, and H the masses (:func:`~jaxacct.losses.grids.convex_envelope.masses_of_excess`). What is left is rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.curve_arrays import compiled, put
from jaxacct._numerics.least import first_greatest
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.grids.grid import CEILING, LossGrid
from jaxacct.losses.grids.hockey_stick import hockey_stick
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions, side_names, witness
from jaxacct.mechanisms.pairs.base import is_one_run


def grid_for(mechanisms: Sequence[Mechanism], relation: str) -> LossGrid:
    """8,192 losses around 0 that hold all but about 1e-16 of every mechanism's loss (cut at 650)."""
    return nodes.grid_for(runs for mechanism in mechanisms for runs in directions(mechanism, relation))


def mechanism_excess(mechanism: Mechanism, grid: LossGrid, bound: str, relation: str) -> Array:
    """Excess of a mechanism's curve at the points of ``grid``; see :meth:`PrivacyProfile.from_mechanism`.

    ``bound`` may also be "point": lower bounds at the points alone, tighter than the curve from below.
    """
    found = []
    # What is below the mechanism's own pair need not be below what it does: a case of it is.
    shown = mechanism if bound == "upper" else witness(mechanism, relation)
    names, side = side_names(mechanism, relation), "upper" if bound == "upper" else "lower"
    for i, parts in enumerate(directions(shown, relation)):
        if is_one_run(parts):
            found.append(nodes.excess_of_pair(parts[0][0], shown, grid, bound))
        elif i < len(names):
            composed = PLD.from_mechanism(mechanism, side, relation=names[i], grid=grid)
            found.append(pld_excess(composed, grid))
    return found[0] if len(found) == 1 else highest_of(found, bound)


def grid_of_pld(grid: LossGrid) -> LossGrid:
    """A PLD's grid, lengthened to hold loss 0 and cut at 650 in absolute value."""
    most = int(CEILING / grid.spacing)
    lowest, highest = max(min(grid.lowest, -1), -most), min(max(grid.highest, 1), most)
    return LossGrid(grid.spacing, lowest, highest - lowest + 1)


def pld_excess(pld: PLD, grid: LossGrid, literal: str | None = None) -> Array:
    """Excess of a PLD's curve at the points of ``grid``, rounded to the PLD's side.

    With ``literal`` ("upper" or "lower") the law is taken at its word, whatever it bounds, and its curve is
    enclosed from that side.
    """
    if grid.spacing != pld.grid.spacing:
        raise ValueError(f"spacings must agree, got {grid.spacing} and {pld.grid.spacing}")
    return _pld_excess(pld, grid, literal)


@compiled("grid", "literal")
def _pld_excess(pld: PLD, grid: LossGrid, literal: str | None) -> Array:
    bound = pld.bound if literal is None else literal
    losses, law = grid.losses, pld.float64()
    identity = -np.expm1(np.minimum(losses, 0.0))
    # Values are at most 1 and the identity next to it is off by a unit, however little the excess is there.
    rounding = np.where(losses < 0, 2.0 * EPS, 0.0)
    values = hockey_stick(law.masses, law.infinity_mass, law.grid, losses, 1.0 if bound == "upper" else -1.0)
    gamma, infinite = np.exp(losses), law.infinity_mass[..., None]
    if bound == "upper":
        return xp.clip(values - identity + rounding, 0.0, xp.minimum(inflated(gamma, 16.0 * EPS), 1.0))
    # The law's own curve is a line on every cell. At gamma < 1 it may dip below the identity, if mass was left out: a
    # line that is clipped at one end only would be no line, and counts as none. That of a law that is taken at its
    # word, with all its mass, never dips.
    signed = values - identity - rounding
    total = law.masses.sum(-1, keepdims=True) + infinite
    whole = (literal is not None) & (xp.abs(total - 1.0) <= 4.0 * pld.grid.size * EPS)
    inside = (signed > 0.0) | (losses >= 0.0) | whole
    kept = inside[..., 1:-1] & inside[..., :-2] & inside[..., 2:]
    ends = (inside[..., :1] & inside[..., 1:2], inside[..., -1:] & inside[..., -2:-1])
    kept = xp.concatenate([ends[0], kept, ends[1]], -1)
    excess = xp.clip(xp.where(kept, signed, 0.0), 0.0, xp.minimum(gamma, 1.0))
    # After its last point the curve is constant, so it must not exceed the atom at infinity there.
    last = xp.minimum(excess[..., -1:], deflated(infinite, 8.0 * EPS))
    if literal is None:
        # Before the first one it is a line to H(0) = 1. Masses that were rounded down, or left out, may belong to
        # losses even lower, so nothing is known there but the identity.
        first = xp.zeros_like(last)
    else:
        first = excess[..., :1] - xp.abs(total - 1.0) - 4.0 * pld.grid.size * EPS
        first = xp.where(grid.lowest <= pld.grid.lowest, xp.maximum(first, 0.0), 0.0)
    return xp.concatenate([first, excess[..., 1:-1], last], -1)


def moved(excess: Array, grid: LossGrid, to: LossGrid, bound: str) -> Array:
    """The same curve's bound on another range of the same lattice."""
    if grid.spacing != to.spacing:
        raise ValueError(f"spacings must agree, got {grid.spacing} and {to.spacing}")
    return _moved(excess, grid, to, bound)


@compiled("grid", "to", "bound")
def _moved(excess: Array, grid: LossGrid, to: LossGrid, bound: str) -> Array:
    sign = 1.0 if bound == "upper" else -1.0
    index = np.arange(to.lowest, to.highest + 1)
    inside = np.clip(index - grid.lowest, 0, grid.size - 1)
    # Left of the first point the curve is a line through (0, 1), so E is proportional to gamma.
    decay = np.exp(np.minimum(index - grid.lowest, 0) * grid.spacing)
    decay = np.where(index < grid.lowest, inflated(decay, sign * 8.0 * EPS * (1.0 + np.abs(to.losses))), 1.0)
    values = xp.take(excess, inside, axis=-1) * decay
    if bound == "upper":
        return values  # chords to (0, 1) and constants from a point on are above
    # A cut curve keeps its constant at the end and its slope at 0, which are smaller than its values at the cuts.
    if to.highest < grid.highest:
        values = put(values, (..., -1), xp.minimum(values[..., -1], excess[..., -1]))
    if to.lowest > grid.lowest:
        growth = min((to.lowest - grid.lowest) * grid.spacing, 700.0)
        slope = deflated(excess[..., 0] * math.exp(growth), 8.0 * EPS * (1.0 + growth))
        values = put(values, (..., 0), xp.minimum(values[..., 0], slope))
    return values


@compiled("grid", "bound")
def reflected(excess: Array, grid: LossGrid, bound: str) -> Array:
    """E'(gamma) = gamma E(1 / gamma) on the mirrored grid: a piecewise linear curve is mapped to one, exactly."""
    sign = 1.0 if bound == "upper" else -1.0
    losses = grid.losses
    factor = inflated(np.exp(-losses), sign * 4.0 * EPS * (1.0 + np.abs(losses)))
    return xp.flip(excess * factor, -1)


@compiled("bound")
def supremum_excess(family: Array, bound: str) -> Array:
    """Pointwise maximum over the first axis, ``(members, ..., size)`` to ``(..., size)``.

    From above: the maximum at the points; chords of a maximum of convex curves lie above it. From below: each cell
    takes the piece of the member that is largest in its middle, a node the smaller of its two cells' pieces, so that
    a chord lies below that member. Nothing is computed but maxima and choices, so nothing is rounded.
    """
    if bound != "lower":
        return family.max(0)
    middles = family[..., :-1] + family[..., 1:]
    best = first_greatest(xp.moveaxis(middles, 0, -1))[None]
    left = xp.take_along_axis(family[..., :-1], best, 0)[0]
    right = xp.take_along_axis(family[..., 1:], best, 0)[0]
    # The two ends touch one cell each.
    return xp.concatenate([left[..., :1], xp.minimum(right[..., :-1], left[..., 1:]), right[..., -1:]], -1)


@compiled("bound")
def highest_of(members: list[Array], bound: str) -> Array:
    """:func:`supremum_excess` of curves of one shape."""
    return supremum_excess(xp.stack(members), bound)
