"""`TableFilter`: the filter of a table of prices, by noise and rate, by entries of a list, or by both."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, Real, array_module
from jaxacct._numerics.host import at_hand, floats, on_device
from jaxacct._numerics.manual_axes import while_loop
from jaxacct._numerics.rounding import inflated
from jaxacct._printing import rounded_up
from jaxacct.filters import amounts
from jaxacct.filters.guarantees import ProfileGuarantee
from jaxacct.filters.marks import row_of
from jaxacct.filters.prices.family import Family
from jaxacct.filters.prices.grid_table import DEAR
from jaxacct.filters.prices.look_up import axes_of, either, left_after, parts_in, price_halfway
from jaxacct.filters.prices.online import MenuCurves
from jaxacct.filters.printing import number
from jaxacct.filters.queries import as_sampled_gaussian, parts_of, position_of
from jaxacct.filters.states import BaseFilter, filter_class, given
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.mechanisms.base import as_mechanism, shapes_of_settings

_STATEMENT = (
    "The whole interaction satisfies this privacy profile, for add-or-remove neighbours and at every epsilon at once, "
    "if each query is dominated, given all earlier outputs, by the sampled Gaussian or the entry that it was charged "
    "as, and every refusal was obeyed. The profile bounds the worst case of all adaptive analysts (the least curve "
    "that dominates every one of them: residue filters, arXiv 2602.15815, Theorem 1 and Lemma 1) from above, because "
    "each price was certified: the promise for the budget left after the query, composed with the query, stays below "
    "the promise for the budget before it, at every epsilon (docs/proofs/filters.md, 4 and 5, "
    "docs/theorems/prices.md), with discretisation, truncation and rounding counted. So was each price of a query that "
    "the table does not have."
)


class MenuState(NamedTuple):
    """What a scan carries: the units spent so far, int32[...], and the filter's mark."""

    spent: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"MenuState({number(self.spent)} units spent)"


@filter_class(MenuState, "")
class TableFilter(BaseFilter):
    """A budget of whole units and what queries take of it; made by `sampled_gaussian` and `menu`.

    A price is given for every interval of the budget left *after* the query, by its values at both ends. A menu's
    prices do not depend on what is left: it has one interval. `spent` and `remaining` are units, int32.

    A query is a `PoissonSampled` `Gaussian` (or a `Gaussian`, which has rate 1), charged as the corners around it, or
    else as the cheapest entry that dominates it; an integer, the position of an entry; or a `Composed` of Gaussians,
    charged run by run, all or nothing. Prices are those of entries and ends of axes with a hair less noise and more
    rate, so that their own numbers, rounded to float32, find them. What the table does not have is refused, unless
    query and state are concrete scalars and there is a promise: then any mechanism with an analysis is priced online.

    A sampled Gaussian between the axes' points is dominated by a mixture of the corners around it
    (docs/theorems/prices.md), and by an entry of no more noise and no smaller rate (data processing, and joint
    convexity: the smaller rate's pair is a mixture of the larger rate's with perfect privacy), at all orders
    gamma >= 0, so for both directions.

    Attributes:
        lines: units, int32, shape ``(2, rows, intervals)``: a row for each noise multiplier and rate of the axes, rates
            running fastest (a menu has none), then one for each entry of a list.
        nodes: the intervals' ends in units, int32, from 0 to the whole budget.
        sigmas: noise multipliers of the axis, in float32 pieces, rising.
        rates: its rates, likewise.
        noise: the least noise multiplier that counts as each entry, a hair of 2^-22 below its own, in float32 pieces;
            NaN for what is no sampled Gaussian.
        rate: the largest sampling rates that do, likewise.
        curve: the certified worst case, of both tables where there are two.
        target: (epsilon, delta), static.
        promise: what prices of queries that the table does not have are certified against, static. None for a menu
            without ``online=True``, and for a filter that was read from a `jaxacct.Ledger`.
        other: a second table for the same axes and target; None where there is none. An account's first query picks
            the table in which it is cheaper with half of the budget left, for good, even if it fits into the other one
            only. The last bit of the units spent says which one it is.
        records: how many records a user owns at most, static; of a menu 1.
    """

    lines: Array
    nodes: Array
    sigmas: Array
    rates: Array
    noise: Array
    rate: Array
    curve: PrivacyProfile
    target: tuple[float, float] = dataclasses.field(metadata={"static": True})
    promise: Family | MenuCurves | None = dataclasses.field(default=None, metadata={"static": True, "written": False})
    other: TableFilter | None = None
    records: int = dataclasses.field(default=1, metadata={"static": True})

    @property
    def fixed(self) -> bool:
        """Whether prices are the same whatever is left: those of a menu."""
        return np.shape(self.nodes)[0] == 2

    @property
    def _name(self) -> str:
        return "sampled_gaussian" if np.shape(self.sigmas)[0] else "menu"

    def __repr__(self) -> str:
        """A menu by its prices and budget, a box by its ranges and target."""
        try:
            if self._name == "menu":
                return f"menu(prices={number(self.prices)}, budget={number(self.budget)})"
            with jax.enable_x64(True):
                ends = [f"{float(x[0]):.6g} to {float(x[-1]):.6g}" for x in axes_of(self)]
            count, (epsilon, delta) = np.shape(self.noise)[0], self.target
            more = f", up to {self.records} records of a user" if self.records > 1 else ""
            more += f", {count} further entries" if count else ""
            return (
                f"sampled_gaussian(sigma {ends[0]}, rate {ends[1]}{more}; epsilon {rounded_up(epsilon)} at delta "
                f"{delta:g}; budget {number(self.budget)} units)"
            )
        except (TypeError, ValueError, AttributeError, IndexError):  # JAX puts placeholders into the leaves of trees
            return f"{type(self).__name__}(...)"

    @property
    def budget(self) -> Array:
        """The whole budget in units, int32."""
        return self.nodes[-1]

    @property
    def prices(self) -> Array:
        """What each entry costs where it leaves next to nothing, int32; all of a menu's price for it."""
        return self.lines[0, self.first_entry :, 0]

    @property
    def first_entry(self) -> int:
        """The row of the first entry of the list."""
        return np.shape(self.sigmas)[0] * np.shape(self.rates)[0]

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The certified profile of the whole interaction, a proven bound."""
        unit = f"Neighbours differ in all records of one user, who owns at most {self.records}. "
        return ProfileGuarantee(self.curve, unit * (self.records > 1) + _STATEMENT)

    def _identity(self) -> list[Array]:
        first, most = self.first_entry, None if self.fixed else 1024
        tables = [row_of(self.lines[:, :first], most=most), row_of(self.lines[:, first:], most=most)]
        rows = [row_of(one) for one in (self.nodes, self.sigmas, self.rates, self.noise, self.rate)]
        # Of a menu with online prices, whose promise is another, units do not say what ran.
        online = np.array([self.fixed and self.promise is not None])
        return [*tables, *rows, online, *([] if self.other is None else self.other._identity())]

    def _fresh(self) -> MenuState:
        return MenuState(on_device(np.zeros((), np.int32)))

    def price(self, query: object, state: MenuState | None = None) -> Array:
        """The units that ``query`` would be charged in ``state`` (with nothing spent where it is None); int32.

        2**31 - 1, which no budget holds, for what does not fit, for what has no price and for parameters that make
        no sense. Concrete scalar queries that the table does not have are priced online, where there is a promise:
        their own least prices are computed, in milliseconds to some tenths of a second.

        Raises:
            ValueError: see :meth:`update`.
        """
        query = given(query)

        def taken(state: MenuState) -> Array:
            left = self._remaining(state)
            return _taken(left, self._left_after(query, left))

        return taken(self._fresh()) if state is None else self._read(taken, state, up=True)

    def _after(self, query: object, state: MenuState) -> tuple[Array, MenuState]:
        left = self._left_after(query, self._remaining(state))
        amounts.check_covered(np.shape(state.spent), np.shape(left), ())
        admitted, spent = _charged(self.budget, state.spent, left)
        return admitted, MenuState(spent)

    def _left_after(self, query: object, left: Array) -> Array:
        """The units left after ``query`` where ``left`` were before it, int32; negative where it does not fit."""
        alone = at_hand(query, left) and not any(shapes_of_settings((query, left)))
        if alone and isinstance(self.promise, MenuCurves):
            return self._at_least_price(self.promise, query, left)
        parts = parts_in(self, query, alone)
        found = left_after(self, parts, left)
        if self.other is None:
            return found
        # The same arrays, so that a compiler finds a query's place on the axes once.
        other = dataclasses.replace(self.other, sigmas=self.sigmas, rates=self.rates)
        others = parts_in(other, query, alone)
        cheaper = price_halfway(other, others) < price_halfway(self, parts)
        return either(left, self.budget, cheaper, found, left_after(other, others, left))

    def _at_least_price(self, curves: MenuCurves, query: object, left: Array) -> Array:
        """The units left at the least price that is certified for what is left; the table's own price is one."""
        place, budget = position_of(query), np.asarray(self.budget, np.int32)
        if place is None:
            asked = as_mechanism(query)
            with jax.enable_x64(True):
                known = all(as_sampled_gaussian(part) is not None for part, _ in parts_of(asked))
        elif known := 0 <= int(place) < len(curves.entries):
            asked = curves.entries[int(place)]
        else:
            return np.asarray(-1)
        after = int(left_after(self, parts_in(self, query, False), budget)) if known else -1
        most = int(budget) - after if after >= 0 else DEAR
        return np.asarray(max(int(left) - curves.least_price(asked, int(left), most), -1))

    def _spent(self, state: MenuState) -> Array:
        return state.spent

    def _remaining(self, state: MenuState) -> Array:
        return jnp.asarray(self.budget, jnp.int32) - state.spent

    def _fraction(self, state: MenuState) -> Array:
        return fraction_of(self.budget, state.spent)

    def steps_left(self, query: object, state: MenuState | None = None) -> Array:
        """How often ``query`` may still run, one after the other, until it is refused; int32.

        Found by running the filter: about a microsecond a step, inside one compiled loop.

        Args:
            query: one query that the filter was made for, with scalar parameters, or an entry's position.
            state: from `init` or `update`; nothing spent where it is None.

        Raises:
            ValueError: as `update`.
        """
        query = given(query)

        def counted(state: MenuState) -> Array:
            with jax.enable_x64(True):  # the program takes the table as it is, whatever was traced before
                return _count(self, query, state)

        return counted(self._fresh()) if state is None else self._read(counted, state, up=False)

    def _edges(self) -> tuple[Array, Array]:
        """Noise multipliers and rates, shape ``(k,)``, of queries of which one dominates all that the table has."""
        xp = array_module(self.sigmas, self.noise)
        sigmas, rates = axes_of(self)
        ends = (sigmas[:1], amounts.join(self.noise)), (rates[-1:], amounts.join(self.rate))
        return xp.concatenate(ends[0]), xp.concatenate(ends[1])

    def _covers(self, query: object) -> ArrayLike:
        if (place := position_of(query)) is not None:
            return (place >= 0) & (place < np.shape(self.noise)[0])
        with jax.enable_x64(True):
            found = [as_sampled_gaussian(part) for part, _ in parts_of(query)]
            return functools.reduce(operator.and_, [self._has(*one) for one in found if one is not None], True)

    def _has(self, noise: Array, rate: Real) -> Array:
        """Whether some edge dominates a sampled Gaussian; inside ``enable_x64``."""
        least, most = self._edges()
        xp, noise, rate = floats(noise, rate)
        return xp.any((noise[..., None] >= least) & (rate[..., None] <= most), -1)

    def _outside(self, query: object) -> str:
        if (place := position_of(query)) is not None:
            return f"position {place} is none of the {np.shape(self.noise)[0]} that this filter has entries for"
        with jax.enable_x64(True):
            least, most = self._edges()
            least, most = np.nanmin(least, initial=np.inf), np.nanmax(most, initial=0.0)
            for part, _ in parts_of(query):
                noise, rate = as_sampled_gaussian(part) or (np.inf, 0.0)
                if noise < least:
                    return f"noise {noise:.6g} is below the least, {least:.6g}, that this filter was made for"
                if rate > most:
                    return f"rate {rate:.6g} is above the largest, {most:.6g}, that this filter was made for"
        return ""


@jax.jit
def _taken(left: Array, after: Array) -> Array:
    return jnp.where(after >= 0, left - after, DEAR).astype(jnp.int32)


@jax.jit
def _charged(budget: Array, spent: Array, left: Array) -> tuple[Array, Array]:
    """Whether accounts can go on with so much left, and what they have spent then."""
    budget, spent = jnp.asarray(budget, jnp.int32), jnp.asarray(spent)
    fits = (left >= 0) & (spent >= 0) & (spent <= budget)
    return fits, jnp.where(fits, budget - left, spent).astype(jnp.int32)


@jax.jit
def _count(filter: TableFilter, query: object, state: MenuState) -> Array:
    def go(carry: tuple[Array, Array, MenuState]) -> tuple[Array, Array, MenuState]:
        _, count, state = carry
        admitted, state = filter._after(query, state)
        return admitted, count + admitted.astype(jnp.int32), state

    start = (jnp.ones(np.shape(state.spent), bool), jnp.zeros(np.shape(state.spent), jnp.int32), state)
    return while_loop(lambda carry: jnp.any(carry[0]), go, start)[1]


@amounts.rounded(up=True)
def fraction_of(budget: ArrayLike, spent: Array) -> Array:
    """The share of a budget of whole units that is spent, rounded up; 1 is all of it."""
    xp, spent, budget = floats(spent, budget)
    share = spent / budget
    return xp.where(share == 1.0, 1.0, inflated(share, 2.0**-52))
