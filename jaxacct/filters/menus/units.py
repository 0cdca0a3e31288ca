"""The state of filters with prices, an int32 count of units spent, and `spent`, `remaining`, `fraction` of it."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import floats, on_device
from jaxacct._numerics.rounding import inflated
from jaxacct.filters import amounts
from jaxacct.filters.printing import number


class MenuState(NamedTuple):
    """What a scan carries: the units spent so far, int32[...], and the filter's mark."""

    spent: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"MenuState({number(self.spent)} units spent)"


class UnitFilter:
    """A ``budget`` of whole units, int32, one account for each entry of its shape; a subclass has the prices."""

    budget: Array

    def init(self) -> MenuState:
        """The state with nothing spent; one account for each entry of the budget's shape."""
        return self._start()

    def _start(self) -> MenuState:
        return MenuState(on_device(np.zeros(np.shape(self.budget), np.int32)))

    def spent(self, state: MenuState) -> Array:
        """The units spent, int32."""
        return state.spent

    def remaining(self, state: MenuState) -> Array:
        """The units left, int32."""
        return jnp.asarray(self.budget, jnp.int32) - state.spent

    def fraction(self, state: MenuState) -> Array:
        """The share of the budget that is spent, rounded up, in the caller's float type; 1 is all of it."""
        return fraction_of(self.budget, state.spent)


@amounts.rounded(up=True)
def fraction_of(budget: ArrayLike, spent: Array) -> Array:
    """The share of a budget of whole units that is spent, rounded up; 1 is all of it."""
    xp, spent, budget = floats(spent, budget)
    share = spent / budget
    return xp.where(share == 1.0, 1.0, inflated(share, 2.0**-52))
