"""`online_menu`: a priced menu that also prices queries which are not on it.

A ledger with b units left promises a curve of excess U_b at most (:mod:`jaxacct.filters.menus.table`). A query L off
the menu may run for p units, 1 <= p <= b, if

    U_b >= T_L U_(b - p)    at every point of the lattice,                                                        (2)

where (T_L E)(k) = E_L(k) + sum over losses l of P_L(l) E(k - l). The induction that makes U a bound uses one such
inequality a move, whether the move was foreseen or not, so prices may depend on what is left (docs/proofs/filters.md,
5).

*Slack.* Where curves are as small as rounding, (2) would be a matter of rounding. So the table that is read is
U_b + a b min(1, gamma), the excess of an atom at infinity of mass a b in both directions, which the menu's moves keep;
a hundredth of delta pays for it: a B. It is also room for a query's far tail.

*Rounding.* Sums are plain convolutions of terms that are not negative, so N of them are off by N + 2 units of the last
place of the result, however small that is; the left side is rounded down by its few, the right side up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.host import on_device
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.filters.guarantees import ProfileGuarantee
from jaxacct.filters.menus.gaussian_menu import as_sampled_gaussian, parts_of
from jaxacct.filters.menus.laws import law_of
from jaxacct.filters.menus.priced_menu import TOO_DEAR, PricedMenuFilter, filter_of, kept_table
from jaxacct.filters.menus.units import MenuState, UnitLedger
from jaxacct.filters.printing import printed_as
from jaxacct.filters.states import keeps
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import as_mechanism

_WIDER = 2  # reach of a query off the menu, over the menu's; what lies beyond counts as an infinite loss
_STATEMENT = (
    " Queries off the menu count as well if each was charged a price for which its composition with the certified "
    "worst case of what was left after it stayed below that of what was left before (docs/proofs/filters.md, 5)."
)


@printed_as("online_menu", "common")
@keeps(MenuState)
@dataclasses.dataclass(frozen=True, eq=False)
class OnlineMenuFilter(UnitLedger):
    """A priced menu with a price for everything; make it with `online_menu`. It runs outside of compiled code.

    Attributes:
        common: the `PricedMenuFilter` of the menu: the same prices, budget and guarantee.
        curves: U / sqrt(gamma) at the table's nodes, shape ``(nodes, grid.size)``.
        node: units between nodes.
        slack: what a unit adds to U, over min(1, gamma).
        reach: points by which a query of the menu moves the loss at most.
        grid: the lattice.
    """

    common: PricedMenuFilter
    curves: np.ndarray
    node: int
    slack: float
    reach: int
    grid: LossGrid

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The menu's certified profile, a proven bound."""
        promised = self.common.guarantee
        return dataclasses.replace(promised, statement=promised.statement + _STATEMENT)

    @property
    def budget(self) -> Any:
        """The menu's budget in units."""
        return self.common.budget

    def price(self, query: Any, state: MenuState) -> int:
        """The units that ``query`` would be charged in ``state``: what the menu asks, or less where (2) allows it.

        Found by bisection, each step of which composes the query with one curve of the table: milliseconds to some
        tenths of a second, by the table's points. 2**31 - 1, which no budget holds, where there is no price.

        Args:
            query: a mechanism with scalar, concrete parameters, a `Composed` of such (all or nothing), or the position
                of an entry.
            state: from `init` or `update`.

        Raises:
            ValueError: a traced or batched query or state, or a mechanism without an analysis for `remove`.
        """
        if _validate.is_traced((query, state)):
            raise ValueError("online prices need a concrete query and state, got a traced one: call it outside jit")
        if any(np.ndim(leaf) for leaf in jax.tree.leaves((query, state))):
            raise ValueError("online prices are for one query and one ledger at a time, got an array of them")
        left = int(self.common.budget) - int(np.asarray(state.spent))
        position = isinstance(query, (int, np.integer, np.ndarray, jax.Array)) and not isinstance(query, bool)
        with jax.enable_x64(True):
            snaps = position or all(as_sampled_gaussian(part) is not None for part, _ in parts_of(as_mechanism(query)))
        on_menu = int(self.common.price(query)) if snaps else TOO_DEAR
        if position or left < 1:
            return on_menu
        law = self._law(query)
        high = min(on_menu, left)
        if high < on_menu and not self.certified(*law, left, high):
            return on_menu
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.certified(*law, left, middle) else (middle, high)
        return high

    def update(self, query: Any, state: MenuState) -> tuple[bool, MenuState]:
        """Whether ``query`` may run, and the state after it; see `price`. A refused query leaves the state as it was.

        Raises:
            ValueError: as `price`.
        """
        price = self.price(query, state)
        fits = int(state.spent) >= 0 and price <= int(self.remaining(state))
        return fits, MenuState(on_device(np.int32(int(state.spent) + price))) if fits else state

    def certified(self, masses: np.ndarray, lowest: int, excess: np.ndarray, left: int, price: int) -> bool:
        """Whether (2) holds, with all rounding against it.

        Args:
            masses: of an upper law's finite losses times exp(-loss / 2), rounded up.
            lowest: the first of those losses, in points, at most 0; the last is at least 0.
            excess: of the law's curve over sqrt(gamma) at the grid's points, rounded up.
            left: units left.
            price: units asked, from 1 to ``left``.
        """
        if not 1 <= price <= left <= int(self.common.budget):
            return False
        below, above = -lowest, masses.size - 1 + lowest
        after = inflated(self._curve(left - price), 64 * UNIT)
        # Above the last point U is constant, below the first proportional to gamma: over sqrt(gamma) both fade.
        fade = _over_root(np.arange(1, max(below, above) + 1) * self.grid.spacing)
        wide = np.concatenate([after[0] * fade[:above][::-1], after, after[-1] * fade[:below]])
        whole = excess + np.convolve(wide, masses, mode="valid")
        # Products may vanish below the smallest normal number; nothing else is lost but units of the last place.
        whole = inflated(whole, 4 * UNIT * (masses.size + 16)) + (1e-290 if after.any() else 0.0)
        return bool((whole <= deflated(self._curve(left), 64 * UNIT)).all())

    def _curve(self, units: int) -> np.ndarray:
        below, rest = divmod(units, self.node)
        share = rest / self.node
        curve = self.curves[below] * (1.0 - share) + self.curves[below + 1] * share if rest else self.curves[below]
        return curve + self.slack * units * np.exp(-0.5 * np.abs(self.grid.losses))

    def _law(self, query: Any) -> tuple[np.ndarray, int, np.ndarray]:
        """What `certified` takes of a query."""
        reach = _WIDER * self.reach
        law, excess = law_of(query, LossGrid(self.grid.spacing, -reach, 2 * reach + 1), self.grid)
        masses = np.asarray(law.masses) * _over_root(law.grid.losses)
        return masses, law.grid.lowest, excess * _over_root(self.grid.losses)


def _over_root(losses: np.ndarray) -> np.ndarray:
    """1 / sqrt(gamma) at these logarithms of gamma, rounded up by as much as they and the product may be off."""
    return inflated(np.exp(-0.5 * losses), 16 * UNIT * (4.0 + np.abs(losses)))


def online_menu(
    menu: Sequence[Any],
    *,
    epsilon: float,
    delta: float,
    unit: int = 288,
    points: int | None = None,
    cache: bool = True,
    progress: Callable[[int, int], Any] | None = None,
) -> OnlineMenuFilter:
    """`priced_menu` with an online price for queries off the menu, which need not be known when it is made.

    What lies between two entries pays between their prices (a menu of a few entries is then enough), what is louder
    than all of them or of another kind (a `Laplace` in between) has a price too, and the last units before the end,
    too few for any entry, still buy something. The guarantee is that of `priced_menu`; the proof for queries off the
    menu is in docs/proofs/filters.md. Domination is asked at all epsilons, so a query with a far heavier tail
    than the menu's entries can be dear, or have no price.

    The table's curves are kept: 8 bytes for each node and point, for instance 11 MB for 700 nodes of 2,048 points,
    and some hundred MB for thousands of steps. Prices need concrete queries and states; a compiled loop takes
    `priced_menu`.

    Args:
        menu: as in `priced_menu`, as are all others.
        epsilon: as there.
        delta: as there.
        unit: as there.
        points: as there.
        cache: as there; the file holds the curves.
        progress: as there.

    Raises:
        ValueError: as `priced_menu`.
    """
    kept = kept_table(menu, epsilon, delta, unit, points, cache, progress, whole=True)
    common = filter_of(menu, kept, float(epsilon), float(delta))
    grid = LossGrid(float(kept["spacing"]), int(kept["lowest"]), kept["excess"].size)
    return OnlineMenuFilter(common, kept["curves"], int(kept["node"]), float(kept["slack"]), int(kept["reach"]), grid)
