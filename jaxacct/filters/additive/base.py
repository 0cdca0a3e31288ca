"""Base of filters whose queries have a cost in the unit of the budget."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.rounding import inflated
from jaxacct.filters import amounts
from jaxacct.filters.amounts import LedgerState
from jaxacct.filters.base import LedgerFilter
from jaxacct.filters.states import keeps

__all__ = ["AdditiveFilter", "in_budget", "update"]


@keeps(LedgerState)
class AdditiveFilter(LedgerFilter):
    """A budget in ``pieces``, and the sum of the admitted queries' costs; a subclass says what a query costs."""

    def _cost(self, query: Any) -> ArrayLike:
        """What ``query`` costs, rounded up; NaN or infinite where it must be refused."""
        raise NotImplementedError

    def update(self, query: Any, state: LedgerState) -> tuple[Array, LedgerState]:
        """Whether ``query`` may run (a bool array) and the state after it.

        Args:
            query: a mechanism whose cost has a closed form, a `Composed` of them (all or nothing), or the cost
                itself: a number that bounds it given all earlier outputs. The class says which mechanisms.
            state: from `init` or `update`. It holds one ledger for each budget; its shape covers the query's.

        Returns:
            ``(admitted, state)``. NaN, negative and infinite costs are refused; a refused query leaves the
            state.

        Raises:
            ValueError: a query of another type, or of a shape that the state does not cover.
        """
        return update(self.pieces, self._cost(query), state)

    def spent(self, state: LedgerState) -> Array:
        """The sum of the admitted costs, rounded up, in the caller's float type."""
        return in_budget(self.pieces, state, "spent", amounts.caller_dtype())

    def remaining(self, state: LedgerState) -> Array:
        """The largest cost that still fits, rounded down, in the caller's float type."""
        return in_budget(self.pieces, state, "remaining", amounts.caller_dtype())


@jax.enable_x64(True)
@jax.jit
def update(pieces: Array, cost: ArrayLike, state: LedgerState) -> tuple[Array, LedgerState]:
    """Whether ``cost`` fits the budget in ``pieces``, slack included, and the ledger after it."""
    cost = jnp.asarray(cost, jnp.float64)
    fits, charged = amounts.charge(state, cost, amounts.join(pieces), amounts.WITH_SLACK)
    return fits, LedgerState(jnp.where(fits[..., None], charged.words, state.words))


@jax.enable_x64(True)
def in_budget(pieces: Array, state: LedgerState, which: str, dtype: str) -> Array:
    """What is ``"spent"`` (rounded up) or ``"remaining"`` (down) of the budget, in ``dtype``."""
    budget = amounts.join(pieces)
    if which == "spent":
        return amounts.outward(inflated(budget * amounts.used(state), 2.0**-51), dtype, up=True)
    # Rounding here is far inside the slack: a query of exactly this much is admitted.
    return amounts.outward(budget * amounts.left(state), dtype, up=False)
