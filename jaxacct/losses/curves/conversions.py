"""Conversions between mechanisms, PLDs and privacy profiles; each keeps its side.

A profile on a grid is the curve of a law on that grid, so the two convert without discretisation: H determines the
masses by Proposition 5 of the residue paper, P(L = log g) = g (H'(g+) - H'(g-)), and the masses determine H. What is
left is rounding:

Masses are differences of differences, each good to a few units of the two slopes it comes from. From above that much is
added, and negative masses are called 0, which lifts H. From below it is taken away, and a mass that is still negative
is paid for by the next larger losses, which lowers every hockey stick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.curve_arrays import beside, compiled, put
from jaxacct._numerics.least import first_greatest
from jaxacct._numerics.manual_axes import scan
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.grids.discretize import CEILING
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.losses.grids.hockey_stick import hockey_stick
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions, side_names
from jaxacct.mechanisms.pairs.base import Pair

_SIZE = 2**13
_NEGLIGIBLE = 1e-16  # probability outside a grid that was chosen, not given
_CANDIDATES = 2.0 ** (np.arange(-80, 76) / 8.0)  # reaches of a grid, 1e-3 to 640


def grid_for(mechanisms: Sequence[Any], relation: str) -> LossGrid:
    """8,192 losses around 0 that hold all but about 1e-16 of every mechanism's loss (cut at 650)."""
    reach = 0.0
    for mechanism in mechanisms:
        for parts in directions(mechanism, relation):
            if _validate.is_traced(parts):
                raise ValueError("grid must be given where the mechanism's parameters are traced, got None")
            reach = max(reach, _reach(parts))
    half = _SIZE // 2
    # The largest loss is point `half`, the smallest one short of it, 0 in between.
    return LossGrid(min(reach, CEILING) / half, 1 - half, _SIZE)


def _reach(parts: list[tuple[Any, Any]]) -> float:
    mean = variance = largest = 0.0
    for pair, count in parts:
        flat, _ = _flattened(pair)
        tails = flat.tails(np.concatenate([-_CANDIDATES[::-1], _CANDIDATES]))
        n = len(_CANDIDATES)
        # An atom at infinity is no reason for a longer grid.
        above = tails.p_above[:, n:] - tails.p_above[:, -1:]
        below = (tails.q_below[:, :n] - tails.q_below[:, :1])[:, ::-1]
        outside = (above > _NEGLIGIBLE) | (below > _NEGLIGIBLE)
        largest = max(largest, float(_CANDIDATES[min(int(outside.sum(-1).max()), n - 1)]))
        if np.any(np.asarray(count) != 1):
            survey = flat.survey()
            weights = np.exp(survey.log_masses)
            centre = (weights * survey.losses).sum(-1)
            spread = (weights * (survey.losses - centre[:, None]) ** 2).sum(-1)
            mean += float(np.max(np.abs(centre)) * np.max(count))
            variance += float(np.max(spread) * np.max(count))
    return largest + mean + 9.0 * variance**0.5


def _flattened(pair: Pair) -> tuple[Any, tuple[int, ...]]:
    """Every leaf broadcast to one flat batch axis (rows keep their own), and the batch's shape."""
    shape = np.broadcast_shapes(*settings_shapes(pair))
    return flattened(pair, shape, array_module(pair)), shape


def mechanism_excess(mechanism: Mechanism, grid: LossGrid, bound: str, relation: str) -> Array:
    """Excess of a mechanism's curve at the points of ``grid``; see :meth:`PrivacyProfile.from_mechanism`.

    ``bound`` may also be "point": lower bounds at the points alone, tighter than the curve from below.
    """
    found = []
    for name, parts in zip(side_names(mechanism, relation), directions(mechanism, relation), strict=True):
        if len(parts) == 1 and not _validate.is_traced(parts[0][1]) and np.all(np.asarray(parts[0][1]) == 1):
            flat, shape = _flattened(parts[0][0])
            flat = beside(flat, mechanism)
            found.append(_pair_excess(flat, grid.losses, bound).reshape((*shape, grid.size)))
        else:
            composed = PLD.from_mechanism(mechanism, "upper" if bound == "upper" else "lower", relation=name, grid=grid)
            found.append(pld_excess(composed, grid))
    return found[0] if len(found) == 1 else highest_of(found, bound)


@compiled("bound")
def _pair_excess(pairs: Any, losses: Array, bound: str) -> Array:
    xp = array_module(pairs, losses)
    excess = nodes.from_pair(pairs, losses, bound)
    limit = xp.minimum(inflated(xp.exp(losses), 16.0 * EPS), 1.0)
    worst = limit if bound == "upper" else 0.0
    return xp.where(xp.isnan(excess), worst, xp.clip(excess, 0.0, limit))


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
    xp = array_module(values, infinite)
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
    kept = xp.concatenate([inside[..., :1] & inside[..., 1:2], kept, inside[..., -1:]], -1)
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


def masses_of_excess(excess: Array, grid: LossGrid, bound: str) -> tuple[Array, Array]:
    """``(masses, infinity_mass)`` of the law whose curve has this excess, rounded to the side of ``bound``."""
    return _masses(excess, np.asarray(grid.spacing), np.asarray(-grid.lowest), bound)


# Grids are passed as arrays: a compiled program for every spacing would cost seconds each.
@compiled("bound")
def _masses(excess: Array, h: Array, zero: Array, bound: str) -> tuple[Array, Array]:
    xp = array_module(excess, h, zero)
    steps = xp.diff(excess, axis=-1)
    # gamma_k times the slopes on either side of gamma_k; the identity's kink adds 1 at loss 0.
    right = xp.concatenate([steps / xp.expm1(h), xp.zeros_like(excess[..., :1])], -1)
    left = xp.concatenate([excess[..., :1], steps / -xp.expm1(-h)], -1)
    kink = xp.where(np.arange(excess.shape[-1]) == zero, 1.0, 0.0)
    masses = (right - left) + kink
    error = 16.0 * EPS * (xp.abs(right) + xp.abs(left) + kink)
    if bound == "upper":
        return xp.maximum(masses + error, 0.0), excess[..., -1]
    debt, paid = _paid(masses - error)
    infinite = excess[..., -1] - debt
    # A debt that nothing above can pay comes from arrays that are no curve at all.
    paid = deflated(xp.where(infinite[..., None] < -1e-12, 0.0, paid), 8.0 * EPS)
    return paid, xp.maximum(infinite, 0.0)


def _paid(owed: Array) -> tuple[Array, Array]:
    """What is left to pay after the last mass, and the masses after each negative one was paid by the next larger."""
    if array_module(owed) is not np:

        def pay(debt: Array, mass: Array) -> tuple[Array, Array]:
            rest = mass - debt
            return jnp.maximum(-rest, 0.0), jnp.maximum(rest, 0.0)

        debt, paid = scan(pay, jnp.zeros_like(owed[..., 0]), jnp.moveaxis(owed, -1, 0))
        return debt, jnp.moveaxis(paid, 0, -1)
    paid, left = np.maximum(owed, 0.0).reshape(-1, owed.shape[-1]), []
    for row, masses in zip(owed.reshape(paid.shape), paid, strict=True):
        debt, last = 0.0, -1
        for first in np.flatnonzero(row < 0).tolist():
            if first <= last:  # paid on the way from the one before
                continue
            for last in range(first, len(row)):
                rest = float(row[last]) - debt
                debt, masses[last] = max(-rest, 0.0), max(rest, 0.0)
                if debt == 0.0:
                    break
        left.append(debt)
    return np.reshape(left, owed.shape[:-1]), paid.reshape(owed.shape)


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
    xp = array_module(excess)
    values = xp.take(excess, inside, axis=-1) * decay
    if bound == "upper":
        return values  # chords to (0, 1) and constants from a point on are above
    # A cut curve keeps its constant at the end and its slope at 0, which are smaller than its values at the cuts.
    if to.highest < grid.highest:
        values = put(values, (..., -1), excess[..., -1])
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
    return array_module(excess).flip(excess * factor, -1)


@compiled("bound")
def supremum_excess(family: Any, bound: str) -> Array:
    """Pointwise maximum over the first axis, ``(members, ..., size)`` to ``(..., size)``.

    From above: the maximum at the points; chords of a maximum of convex curves lie above it. From below: each cell
    takes the piece of the member that is largest in its middle, a node the smaller of its two cells' pieces, so that
    a chord lies below that member. Nothing is computed but maxima and choices, so nothing is rounded.
    """
    if bound != "lower":
        return family.max(0)
    xp = array_module(family)
    middles = family[..., :-1] + family[..., 1:]
    best = first_greatest(xp.moveaxis(middles, 0, -1))[None]
    left = xp.take_along_axis(family[..., :-1], best, 0)[0]
    right = xp.take_along_axis(family[..., 1:], best, 0)[0]
    # The two ends touch one cell each.
    return xp.concatenate([left[..., :1], xp.minimum(right[..., :-1], left[..., 1:]), right[..., -1:]], -1)


def highest_of(members: Sequence[object], bound: str) -> Array:
    """:func:`supremum_excess` of curves of one shape."""
    return _highest_of(list(members), bound)


@compiled("bound")
def _highest_of(members: list[Any], bound: str) -> Array:
    return supremum_excess(array_module(*members).stack(members), bound)
