"""`UnitFilter`: base of the filters that have a table of prices, with a budget of whole units."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import floats, on_device
from jaxacct._numerics.manual_axes import while_loop
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import inflated
from jaxacct.filters import amounts
from jaxacct.filters.guarantees import ProfileGuarantee
from jaxacct.filters.printing import number
from jaxacct.filters.queries import as_sampled_gaussian, parts_of, position_of
from jaxacct.filters.reasons import BaseFilter
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid


class MenuState(NamedTuple):
    """What a scan carries: the units spent so far, int32[...], and the filter's mark."""

    spent: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"MenuState({number(self.spent)} units spent)"


class UnitFilter(BaseFilter):
    """A ``budget`` of whole units, int32, one account for each entry of its shape; a subclass looks up what is left.

    ``excess`` is the certified worst case at the points of ``grid``.
    """

    budget: Array
    excess: Array
    grid: LossGrid

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The certified profile of the whole interaction, a proven bound."""
        curve = unchecked(PrivacyProfile, excess=self.excess, grid=self.grid, bound="upper")
        return ProfileGuarantee(curve, self._statement)

    @property
    def _statement(self) -> str:
        raise NotImplementedError

    def _left_after(self, query: object, left: Array) -> Array:
        """The units left after ``query`` where ``left`` were before it, int32; negative where it does not fit."""
        raise NotImplementedError

    @property
    def _edges(self) -> tuple[Array, Array]:
        """Noise multipliers and rates, shape ``(k,)``, of the queries of which one dominates all that have a price."""
        raise NotImplementedError

    @property
    def _entries(self) -> int:
        """How many positions there are to ask for."""
        raise NotImplementedError

    def init(self) -> MenuState:
        """The state with nothing spent; one account for each entry of the budget's shape."""
        return self._start()

    def _start(self) -> MenuState:
        return MenuState(on_device(np.zeros(np.shape(self.budget), np.int32)))

    def _left(self, state: MenuState) -> Array:
        return jnp.asarray(self.budget, jnp.int32) - state.spent

    def _after(self, query: object, state: MenuState) -> tuple[Array, MenuState]:
        """`update`, on states without marks."""
        left = self._left_after(query, self._left(state))
        amounts.check_covered(np.shape(state.spent), np.shape(left), np.shape(self.budget))
        admitted, spent = _charged(self.budget, state.spent, left)
        return admitted, MenuState(spent)

    def spent(self, state: MenuState) -> Array:
        """The units spent, int32."""
        return state.spent

    def remaining(self, state: MenuState) -> Array:
        """The units left, int32."""
        return self._left(state)

    def fraction(self, state: MenuState) -> Array:
        """The share of the budget that is spent, rounded up, in the caller's float type; 1 is all of it."""
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
        state = self._start() if state is None else state
        with jax.enable_x64(True):  # the program takes the table as it is, whatever was traced before
            return _count(self, query, state)

    def _covers(self, query: object) -> ArrayLike:
        if (place := position_of(query)) is not None:
            return (place >= 0) & (place < self._entries)
        with jax.enable_x64(True):
            found = [as_sampled_gaussian(part) for part, _ in parts_of(query)]
            return functools.reduce(operator.and_, [self._has(*one) for one in found if one is not None], True)

    def _has(self, noise: Array, rate: Array) -> Array:
        """Whether some edge dominates a sampled Gaussian; inside ``enable_x64``."""
        least, most = self._edges
        _, noise, rate = floats(noise, rate)
        return ((noise[..., None] >= least) & (rate[..., None] <= most)).any(-1)

    def _outside(self, query: object) -> str:
        if (place := position_of(query)) is not None:
            return f"position {place} is none of the {self._entries} that this filter has entries for"
        with jax.enable_x64(True):
            least, most = self._edges
            least, most = np.nanmin(least, initial=np.inf), np.nanmax(most, initial=0.0)
            for part, _ in parts_of(query):
                noise, rate = as_sampled_gaussian(part) or (np.inf, 0.0)
                if noise < least:
                    return f"noise {noise:.6g} is below the least, {least:.6g}, that this filter was made for"
                if rate > most:
                    return f"rate {rate:.6g} is above the largest, {most:.6g}, that this filter was made for"
        return ""


@jax.jit
def _charged(budget: Array, spent: Array, left: Array) -> tuple[Array, Array]:
    """Whether accounts can go on with so much left, and what they have spent then."""
    budget, spent = jnp.asarray(budget, jnp.int32), jnp.asarray(spent)
    fits = (left >= 0) & (spent >= 0) & (spent <= budget)
    return fits, jnp.where(fits, budget - left, spent).astype(jnp.int32)


@jax.jit
def _count(filter: UnitFilter, query: object, state: MenuState) -> Array:
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
