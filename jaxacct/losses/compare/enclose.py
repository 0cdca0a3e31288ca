"""Encloses mechanisms, PLDs, profiles and trade-off curves on one common grid for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.curve_arrays import compiled, mapped
from jaxacct._numerics.pytree import replaced
from jaxacct._numerics.rounding import EPS
from jaxacct.losses.curves import checks as validity
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves import trade_off as tradeoff
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism

Curve: TypeAlias = PLD | PrivacyProfile | TradeOff
"""What is taken at its word; a mechanism stands for a curve that has to be enclosed."""
Member: TypeAlias = Mechanism | Curve
Family: TypeAlias = Member | Sequence[Member]
"""Members, or one batched member, whose first axis is the family."""


class Enclosed(NamedTuple):
    """Excess of one curve at common points, shape ``(..., points)``.

    Attributes:
        line: a curve through these values lies below the true one everywhere.
        point: the true curve is at least this at the points.
        upper: a curve through these values lies above the true one everywhere.
    """

    line: Array
    point: Array
    upper: Array


def members_of(family: Family) -> list[Member]:
    """The members: of a sequence its items, of a batched curve or mechanism itself (its first axis is the family)."""
    if isinstance(family, Sequence):
        if not family:
            raise ValueError("family must have at least one member, got none")
        return list(family)
    return [family]


def common_grid(members: Sequence[Member], relation: str, grid: LossGrid | None = None) -> LossGrid:
    """One lattice for all: the given one, or that of the curves (their union), or one chosen for the mechanisms."""
    if grid is not None:
        validity.check_grid(grid)
    grids = [conversions.grid_of_pld(m.grid) for m in members if isinstance(m, PLD)]
    grids += [m.grid for m in members if isinstance(m, PrivacyProfile)]
    spacings = {g.spacing for g in grids} | ({grid.spacing} if grid is not None else set())
    if len(spacings) > 1:
        raise ValueError(f"spacings must agree, got {', '.join(f'{s!r}' for s in sorted(spacings))}")
    if grid is not None:
        return grid
    if grids:
        lowest, highest = min(g.lowest for g in grids), max(g.highest for g in grids)
        return LossGrid(grids[0].spacing, lowest, highest - lowest + 1)
    mechanisms = [m for m in members if not isinstance(m, Curve)]
    if not mechanisms:
        raise ValueError("grid must be given for a family of trade-off curves, got None")
    return conversions.grid_for(mechanisms, relation)


def enclose(member: Member, grid: LossGrid, relation: str) -> Enclosed:
    """``member`` from all sides on ``grid``; curves at their word, mechanisms by their own bounds."""
    if isinstance(member, PrivacyProfile):
        excess = member.float64()
        if member.grid == grid:
            return Enclosed(excess, excess, excess)
        low, high = (conversions.moved(excess, member.grid, grid, side) for side in ("lower", "upper"))
        return Enclosed(low, low, high)
    if isinstance(member, PLD):
        low, high = (conversions.pld_excess(member, grid, literal=side) for side in ("lower", "upper"))
        return Enclosed(low, low, high)
    if isinstance(member, TradeOff):
        low = replaced(member, bound="upper").profile(grid).float64()
        high = replaced(member, bound="lower").profile(grid).float64()
        point, _ = excess_of_segments(*tradeoff.padded(member), grid.losses)
        return Enclosed(low, point, high)
    line, point, upper = (
        conversions.mechanism_excess(member, grid, side, relation) for side in ("lower", "point", "upper")
    )
    return Enclosed(line, xp.maximum(point, line), upper)


@compiled()
def excess_of_segments(widths: Array, drops: Array, losses: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of a trade-off curve's excess at ``losses`` (m,): a sum of positive terms, segment by segment.

    Segments have shape ``(..., n)``. Plus and minus infinity stand for the mass that only P, or only Q, has, the latter
    as the slope E / gamma at 0.
    """

    def at(loss: Array) -> tuple[Array, Array]:
        loss = loss.reshape(-1, *(1,) * widths.ndim)  # (losses, *batch, n)
        finite = xp.isfinite(loss)
        gamma = xp.exp(xp.where(finite, loss, 0.0))
        units = EPS * (4.0 + 2.0 * xp.abs(xp.where(finite, loss, 0.0)))
        difference = xp.where(loss >= 0, widths - gamma * drops, gamma * drops - widths)
        size = widths + gamma * drops
        ends = xp.where(loss > 0, xp.where(drops == 0, widths, 0.0), xp.where(widths == 0, drops, 0.0))
        terms = xp.where(finite, xp.maximum(difference, 0.0), ends)
        near = xp.where(finite & (difference > -units * size), size, 0.0)
        error = units[..., 0] * near.sum(-1) + widths.shape[-1] * EPS * terms.sum(-1)
        return xp.maximum(terms.sum(-1) - error, 0.0), terms.sum(-1) + error

    lower, upper = mapped(at, losses, 64)
    return xp.moveaxis(lower, 0, -1), xp.moveaxis(upper, 0, -1)


def bound_of(member: Member) -> str | None:
    """The side a curve is a bound from, as that of a profile; None for a mechanism."""
    if isinstance(member, TradeOff):
        return "upper" if member.bound == "lower" else "lower"
    return member.bound if isinstance(member, Curve) else None
