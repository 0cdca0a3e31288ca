"""`MenuCurves`: prices of queries that are not on a menu, certified against the curves of the menu's table.

A query L may run for p units of the b that are left, 1 <= p <= b, if U_b >= T_L U_(b - p) at every point of the
lattice, U_b the excess that the table promises for b units (docs/proofs/filters.md, 5). The table that is read is
U_b + a b min(1, gamma): a hundredth of delta pays for that, and it is room for rounding and for a query's far tail.
Sums are plain convolutions of N terms that are not negative, so they are off by N + 2 units of the last place of the
result, however small that is; the left side is rounded down by its few, the right side up.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxacct._numerics.roots import last
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.filters.prices.laws import law_of
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism

_WIDER = 2  # reach of a query off the menu, over the menu's; what lies beyond counts as an infinite loss


@dataclasses.dataclass(frozen=True, eq=False)
class MenuCurves:
    """What a menu's table promises for every budget left."""

    curves: np.ndarray  # U / sqrt(gamma) at the table's nodes, shape ``(nodes, grid.size)``
    node: int  # units between nodes
    budget: int  # the whole budget in units
    slack: float  # what a unit adds to U, over min(1, gamma)
    reach: int  # points by which a query of the menu moves the loss at most
    grid: LossGrid  # the lattice
    entries: tuple[Mechanism, ...] = ()  # the menu, for queries by their position

    def least_price(self, query: Mechanism, left: int, most: int) -> int:
        """The least price up to ``most`` that is certified with ``left`` units left; ``most`` where none does.

        By bisection, each step of which composes the query with one curve: milliseconds, by the table's points. The
        query has scalar, concrete parameters and an analysis for `remove`; ``most`` is certified already, or above
        every budget.
        """
        if left < 1:
            return most
        law = self.law(query)
        high = min(most, left)
        if high < most and not self.certified(*law, left, high):
            return most
        return last(lambda price: not self.certified(*law, left, price), 0, high) + 1

    def certified(self, masses: np.ndarray, lowest: int, excess: np.ndarray, left: int, price: int) -> bool:
        """Whether U_b >= T_L U_(b - p) for b = ``left``, p = ``price``, with all rounding against it.

        Args:
            masses: of an upper law's finite losses times exp(-loss / 2), rounded up.
            lowest: the first of those losses, in points, at most 0; the last is at least 0.
            excess: of the law's curve over sqrt(gamma) at the grid's points, rounded up.
        """
        if not 1 <= price <= left <= self.budget:
            return False
        below, above = -lowest, masses.size - 1 + lowest
        after = inflated(self.curve(left - price), 64 * UNIT)
        # Above the last point U is constant, below the first proportional to gamma: over sqrt(gamma) both fade.
        fade = _over_root(np.arange(1, max(below, above) + 1) * self.grid.spacing)
        wide = np.concatenate([after[0] * fade[:above][::-1], after, after[-1] * fade[:below]])
        whole = excess + np.convolve(wide, masses, mode="valid")
        # Products may vanish below the smallest normal number; nothing else is lost but units of the last place.
        whole = inflated(whole, 4 * UNIT * (masses.size + 16)) + (1e-290 if after.any() else 0.0)
        return bool((whole <= deflated(self.curve(left), 64 * UNIT)).all())

    def curve(self, units: int) -> np.ndarray:
        """U over sqrt(gamma), slack included, with so many units left."""
        below, rest = divmod(units, self.node)
        share = rest / self.node
        curve = self.curves[below] * (1.0 - share) + self.curves[below + 1] * share if rest else self.curves[below]
        return curve + self.slack * units * np.exp(-0.5 * np.abs(self.grid.losses))

    def law(self, query: Mechanism) -> tuple[np.ndarray, int, np.ndarray]:
        """What `certified` takes of a query."""
        reach = _WIDER * self.reach
        law, excess = law_of(query, LossGrid(self.grid.spacing, -reach, 2 * reach + 1), self.grid)
        masses = np.asarray(law.masses) * _over_root(law.grid.losses)
        return masses, law.grid.lowest, excess * _over_root(self.grid.losses)


def _over_root(losses: np.ndarray) -> np.ndarray:
    """1 / sqrt(gamma) at these logarithms of gamma, rounded up by as much as they and the product may be off."""
    return inflated(np.exp(-0.5 * losses), 16 * UNIT * (4.0 + np.abs(losses)))
