"""The Rényi filter over several orders: its proof uses one supermartingale, a mixture over the orders."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, hosted, not_negative, on_host
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.costs_of_plds import renyi_of_law
from jaxacct.filters.additive.renyi import renyi_cost
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.guarantees import of_any_order
from jaxacct.filters.marks import row_of
from jaxacct.filters.mixture_of_orders import gain_of, still_holds
from jaxacct.filters.states import filter_class
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.renyi import renyi_from_epsilon

_STATEMENT = (
    "The whole interaction is (epsilon, delta)-DP at every point of the curve delta(epsilon) = sum over the orders of "
    "c_j exp((a_j - 1)(R_j - epsilon)), R_j the budget of order a_j, if each query's divergences at these orders were "
    "bounded given all earlier outputs and every refusal was obeyed: with the privacy loss L and the sums S_j of "
    "divergences, the mean of exp((a_j - 1)(L - S_j)) over the orders is a supermartingale, and each admission checks "
    "that it pays for every L (docs/proofs/several-orders.md, Theorem). The orders must not be chosen, nor changed, by "
    "looking at outputs; sampled queries count for add-or-remove neighbours."
)
_COUNTED = 128
"""Budgets up to which an order's sum is counted; one that has spent more is out, as if it had spent infinitely much."""
_OUT = np.array([(2 * _COUNTED - 1) << 24, 0, 0], np.uint32)
_HALVINGS = 48


@filter_class(SpentState, "renyi_any", "rho", "orders")
class AnyOrderFilter(AdditiveFilter):
    """Budgets of Rényi divergence in nats at several orders, the last axis of `spent` and `remaining`; see `renyi_any`.

    A query is any mechanism of :func:`jaxacct.losses.renyi.renyi`, a `Composed` of them (all or nothing), an upper
    `PLD` without mass at infinity in either direction, or an array of its divergences at the orders, shape (...,
    orders), infinite where there is none. It is charged to every order, and may run if the orders together still
    promise delta with it: as long as no order is overdrawn, and for as long as the orders with budget left make up for
    those that are.

    Attributes:
        pieces: the budgets in exact float32 pieces, shape (budgets..., orders, 3).
        orders: the orders, static.
    """

    pieces: Array
    orders: tuple[float, ...] = dataclasses.field(metadata={"static": True})

    rho = amounts.exact("pieces")
    """The budgets of divergence, shape (budgets..., orders) (float64)."""

    _statement = _STATEMENT
    unit = property(lambda self: of_any_order(self.orders))  # type: ignore[assignment]

    def _identity(self) -> list[Array]:
        return [row_of(self.pieces, np.ndim(self.pieces) - 2)]

    def _charged(self, costs: PyTree, state: PyTree) -> tuple[Array, PyTree]:
        return _update(self.pieces, costs, state, self.orders)

    def _cost(self, query: object) -> PyTree:
        if not is_scalar_query(query):
            return _at_orders(query, self.orders)
        if np.ndim(query) < 1 or np.shape(query)[-1] != len(self.orders):
            raise ValueError(
                f"query must hold the divergences at the {len(self.orders)} orders on its last axis, got an array "
                f"of shape {np.shape(query)}"
            )
        return not_negative(query)

    def _spent(self, state: SpentState) -> Array:
        """Infinite at an order that has spent more than 128 times its budget: what it cost is no longer counted."""
        used = amounts.used(state)
        spent = inflated(amounts.join(self.pieces) * used, 2.0**-51)
        return array_module(used).where(used > _COUNTED, np.inf, spent)

    def _remaining(self, state: SpentState) -> Array:
        """What still fits together, in proportion to the budgets."""
        return amounts.join(self.pieces) * _fitting(self.pieces, state, self.orders)

    def _fraction(self, state: SpentState) -> Array:
        """1 less the share of all budgets that still fits."""
        return 1.0 - _fitting(self.pieces, state, self.orders)[..., 0]


@in_float64
def _at_orders(query: object, orders: tuple[float, ...]) -> Array:
    if isinstance(query, PLD):
        return renyi_of_law(query, np.asarray(orders))
    each = [renyi_cost(query, order) for order in orders]  # whole ones are sums, and must be known to be whole
    return array_module(each).stack(each, axis=-1)


def _room(pieces: Array, used: Array) -> Array:
    """Budgets less what is spent, rounded down; -inf at an order that is out."""
    rho = amounts.join(pieces)
    share = array_module(used).where(used > _COUNTED, np.inf, used)
    return rho * ((1.0 + amounts.SLACK) - share) - 4.0 * EPS * rho


@in_float64
@functools.partial(jax.jit, static_argnames="orders")
def _update(pieces: Array, costs: ArrayLike, state: SpentState, orders: tuple[float, ...]) -> tuple[Array, SpentState]:
    costs = jnp.asarray(costs, jnp.float64)
    counted, charged = amounts.charge(state, costs, amounts.join(pieces), _COUNTED * amounts.EXACT)
    words = jnp.where(counted[..., None], charged.words, jnp.asarray(_OUT))
    holds = still_holds(_room(pieces, amounts.used(SpentState(words))), orders)
    admitted = holds & jnp.all(costs >= 0, axis=-1)
    return admitted, SpentState(jnp.where(admitted[..., None, None], words, state.words))


@hosted(static=("orders",))
def _fitting(pieces: Array, state: SpentState, orders: tuple[float, ...]) -> Array:
    """The share of all budgets that still fits, rounded down; shape (budgets..., 1)."""
    used = amounts.used(state)
    xp = array_module(used)

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        holds = still_holds(_room(pieces, inflated(used + middle, EPS)), orders)[..., None]
        return xp.where(holds, middle, low), xp.where(holds, high, middle)

    nothing = xp.zeros((*used.shape[:-1], 1))
    # What holds next to 1 is 1: a fresh account has all of it.
    low, high = repeated(halve, (nothing, nothing + 1.0), _HALVINGS)
    return xp.where(high == 1.0, high, low)


@in_float64
def renyi_any(epsilon: ArrayLike, delta: ArrayLike, orders: Sequence[float]) -> AnyOrderFilter:
    """A filter that keeps an interaction (epsilon, delta)-DP by the Rényi divergences at several orders together.

    With the privacy loss L and the sums S_j of the admitted divergences at the k orders a_j, the mean over j of
    exp((a_j - 1)(L - S_j)) has mean at most 1 whenever the analyst stops. A query may run if, with it charged,

        (delta / k) sum_j exp((a_j - 1)(epsilon + x - S_j)) >= 1 - exp(-x)  for every x >= 0,

    because the left side, with L = epsilon + x, is delta times that mean, and the mean of (1 - exp(epsilon - L))_+ is
    what delta has to cover (docs/proofs/several-orders.md). Stopping when every order has spent its budget at the full
    delta is no filter: two rounds reach 1.97 delta, because a loss that turned out low can be continued at one order
    and one that turned out high at another.

    Use it when it is not known which order will be the best one. If the schedule is roughly known, `renyi` at the
    order of `plan_order` admits some per cent more.

    Args:
        epsilon: at least 0; an array makes one row of accounts for each entry.
        delta: strictly between 0 and 1; broadcasts with ``epsilon``.
        orders: concrete distinct numbers above 1, fixed in advance (part of the program).

    Raises:
        ValueError: concrete values out of range, or an order at which (epsilon, delta) leaves no budget (the message
            says which epsilon it takes).
    """
    if _validate.is_traced(orders):
        raise ValueError("orders must be concrete numbers fixed in advance, got a traced value")
    _validate.numbers(orders=orders, epsilon=epsilon, delta=delta)
    chosen = tuple(float(order) for order in np.ravel(np.asarray(orders, np.float64)))
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"orders must be one or more distinct numbers, got {list(chosen)}")
    _validate.greater(1.0, orders=chosen)
    _validate.nonnegative(epsilon=epsilon)
    _validate.probability(delta=delta)
    _, *given = floats(epsilon, delta)
    epsilon, delta = (value[..., None] for value in given)
    # Budgets that are spent in full together make the condition tight; they are larger than those of one order alone.
    together = deflated(delta * np.exp(gain_of(chosen)), 2.0**-46)
    together = array_module(together).minimum(together, 1.0 - EPS)
    rho = on_host(renyi_from_epsilon(epsilon, together, np.asarray(chosen)))
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
