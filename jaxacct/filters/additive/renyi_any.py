"""The Rényi filter over several orders: runs on while any of them has budget left, at delta / k each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.host import floats, module, on_host
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._numerics.rounding import deflated
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.costs_of_plds import renyi_of_law
from jaxacct.filters.additive.renyi import renyi_cost
from jaxacct.filters.amounts import LedgerState
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.guarantees import AnyOrderGuarantee
from jaxacct.filters.printing import printed_as
from jaxacct.filters.states import keeps
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.renyi import renyi_from_epsilon

__all__ = ["AnyOrderFilter", "renyi_any"]

_STATEMENT = (
    "The whole interaction is (epsilon, delta)-DP at every point of the curve delta(epsilon) = the sum over the k "
    "orders of the tight conversion (Canonne, Kamath, Steinke 2020, Proposition 12) of each order's budget, if each "
    "query's divergences at these orders were bounded given all earlier outputs and every refusal was obeyed: on the "
    "outcomes after which a given order has kept its budget, the interaction is that order's own Rényi filter "
    "(Feldman, Zrnic 2021), and the parts add up. The orders must not be chosen, nor changed, by looking at outputs; "
    "sampled queries count for add-or-remove neighbours."
)
# The words of a ledger twice full: nothing ever fits it again, and it reads as spent.
_DEAD = np.array([2 << 24, 0, 0], np.uint32)


@printed_as("renyi_any", "rho", "orders")
@keeps(LedgerState)
@_register
class AnyOrderFilter(AdditiveFilter):
    """Budgets of Rényi divergence in nats at several orders, the last axis of `spent` and `remaining`; see `renyi_any`.

    Attributes:
        pieces: the budgets in exact float32 pieces, shape (budgets..., orders, 3).
        orders: the orders, static.
    """

    pieces: Any
    orders: tuple[float, ...] = dataclasses.field(metadata={"static": True})

    rho = amounts.exact("pieces")
    """The budgets of divergence, shape (budgets..., orders) (float64)."""

    @property
    @jax.enable_x64(True)
    def guarantee(self) -> AnyOrderGuarantee:
        """The sum of the orders' curves at their budgets (with the ledgers' slack), a proven bound."""
        rho = amounts.admissible(self.pieces)
        return AnyOrderGuarantee(rho, self.orders, _STATEMENT)

    def update(self, query: Any, state: LedgerState) -> tuple[Array, LedgerState]:
        """Whether ``query`` may run (a bool array) and the state after it.

        It may if at least one order that has kept its budget so far still keeps it with the query. An admitted query
        is charged to every order, and an order that it overdraws is out for good.

        Args:
            query: any mechanism of :func:`jaxacct.losses.renyi.renyi`, a `Composed` of them (all or nothing), an upper
                `PLD` without mass at infinity in either direction, or an array of the query's divergences at the
                orders, shape (..., orders), infinite where there is none.
            state: from `init` or `update`. It holds one row of ledgers for each budget; its shape covers the query's.

        Returns:
            ``(admitted, state)``. A query with a NaN or negative divergence at any order is refused; a refused query
            leaves the state.

        Raises:
            ValueError: a query of another type, or of a shape that the state does not cover.
        """
        return _update(self.pieces, self._cost(query), state)

    def _cost(self, query: Any) -> Any:
        if not is_scalar_query(query):
            return _at_orders(query, self.orders)
        if np.ndim(query) < 1 or np.shape(query)[-1] != len(self.orders):
            raise ValueError(
                f"query must hold the divergences at the {len(self.orders)} orders on its last axis, got an array "
                f"of shape {np.shape(query)}"
            )
        return query

    def spent(self, state: LedgerState) -> Array:
        """The admitted divergences' sum at every order, rounded up, in the caller's float type.

        Twice the budget, a placeholder, at an order that is out: what it cost is no longer counted.
        """
        return super().spent(state)

    def fraction(self, state: LedgerState) -> Array:
        """The share that is spent at the order that has most left, rounded up, in the caller's float type."""
        return _least(state, amounts.caller_dtype())


@jax.enable_x64(True)
def _at_orders(query: Any, orders: tuple[float, ...]) -> Array:
    if isinstance(query, PLD):
        return renyi_of_law(query, np.asarray(orders))
    each = [renyi_cost(query, order) for order in orders]  # whole ones are sums, and must be known to be whole
    return module(each).stack(each, axis=-1)


@jax.enable_x64(True)
def _least(state: LedgerState, dtype: str) -> Array:
    return amounts.outward(amounts.used(state).min(-1), dtype, up=True)


@jax.enable_x64(True)
@jax.jit
def _update(pieces: Array, costs: ArrayLike, state: LedgerState) -> tuple[Array, LedgerState]:
    costs = jnp.asarray(costs, jnp.float64)
    fits, charged = amounts.charge(state, costs, amounts.join(pieces), amounts.WITH_SLACK)
    admitted = jnp.any(fits, axis=-1) & jnp.all(costs >= 0, axis=-1)
    after = jnp.where(fits[..., None], charged.words, jnp.asarray(_DEAD))
    return admitted, LedgerState(jnp.where(admitted[..., None, None], after, state.words))


@jax.enable_x64(True)
def renyi_any(epsilon: ArrayLike, delta: ArrayLike, orders: Sequence[float]) -> AnyOrderFilter:
    """A filter that keeps an interaction (epsilon, delta)-DP and stops when the last of several orders is spent.

    Every order has the budget of `renyi` for delta / k, k the number of orders. Why that is valid, and why it takes
    delta / k: let J be the first order whose sum of divergences is within its budget when the interaction ends; it is
    a function of the transcript, and there is one, because a query that would overdraw the last is refused. Sums only
    grow, so on {J = j} every prefix kept order j's budget too, and the transcript is one that the same analyst
    produces, with the same probability on either dataset, behind the single filter of order j, which is
    (epsilon, delta / k)-DP. For an event S

        P(S) - e^epsilon Q(S) = sum_j [P(S, J = j) - e^epsilon Q(S, J = j)] <= k delta / k = delta.

    Without the division this is false, and by the whole factor: after a first query whose cost is small at order a
    but large at order b > a, a loss that turned out low is continued at order a, one that turned out high at order b,
    and either continuation gets its order's delta in full (a two-round example with two orders, in the tests, reaches
    1.97 delta).

    It pays when it is not known which order will be the best one, and costs log(k) / (order - 1) in epsilon; where
    the schedule is roughly known, `renyi` at the order of `plan_order` does better.

    Args:
        epsilon: at least 0; an array makes one row of ledgers for each entry.
        delta: strictly between 0 and 1; broadcasts with ``epsilon``.
        orders: concrete distinct numbers above 1, fixed in advance (part of the program).

    Raises:
        ValueError: concrete values out of range, or an order at which (epsilon, delta / k) leaves no budget (the
            message says which epsilon it takes).
    """
    if _validate.is_traced(orders):
        raise ValueError("orders must be concrete numbers fixed in advance, got a traced value")
    _validate.numbers(orders=orders, epsilon=epsilon, delta=delta)
    chosen = tuple(float(order) for order in np.ravel(np.asarray(orders, np.float64)))
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"orders must be one or more distinct numbers, got {list(chosen)}")
    for order in chosen:
        if not (order > 1 and np.isfinite(order)):
            raise ValueError(f"orders must be finite numbers above 1, got {order:g}")
    _validate.numbers(epsilon=epsilon)
    _validate.nonnegative(epsilon=epsilon)
    _validate.numbers(delta=delta)
    _validate.probability(delta=delta)
    _, *given = floats(epsilon, delta)
    epsilon, delta = (value[..., None] for value in given)
    share = deflated(delta / len(chosen), len(chosen) * 2.0**-50)
    rho = on_host(renyi_from_epsilon(epsilon, share, np.asarray(chosen)))
    if not _validate.is_traced(rho):
        short = np.asarray(epsilon - rho) + np.zeros(rho.shape)
        without = ~(np.asarray(rho) >= 1e-18)
        if without.any():
            where = np.argwhere(without)[0]
            raise ValueError(
                f"epsilon must be above {short[tuple(where)]:.6g} to leave any budget at order {chosen[where[-1]]:g} "
                f"with {len(chosen)} orders at delta {float(np.max(np.asarray(delta))):g}, got "
                f"{float(np.min(np.asarray(epsilon))):g}"
            )
    return AnyOrderFilter(amounts.split(rho / (1 + 2 * amounts.SLACK)), chosen)
