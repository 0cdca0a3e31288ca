"""The Rényi filter: a bound for any mechanism with a Rényi curve, sampled Gaussians among them."""

from __future__ import annotations

import dataclasses

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import not_negative, on_host
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.costs_of_plds import renyi_of_law
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.guarantees import of_renyi
from jaxacct.filters.states import filter_class
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.renyi import renyi_from_epsilon
from jaxacct.losses.renyi.curve import divergence

_STATEMENT = (
    "The whole interaction has Rényi divergence at most rho at the one order that was fixed before the "
    "first query, and is (epsilon, delta)-DP for every delta by the conversion of Canonne, Kamath, "
    "Steinke 2020 (Proposition 12), if each query's divergence at that order was bounded given all "
    "earlier outputs and every refusal was obeyed (Feldman, Zrnic 2021: fully adaptive Rényi filter). The "
    "order must not be chosen, nor changed, by looking at outputs; sampled queries count for "
    "add-or-remove neighbours."
)


@filter_class(SpentState, "renyi", "rho", "order")
class RenyiFilter(AdditiveFilter):
    """A budget of Rényi divergence in nats, the unit of `spent` and `remaining`, at one order; see `renyi`.

    A query is any mechanism of :func:`jaxacct.losses.renyi.renyi`, an upper `PLD` without mass at infinity in either
    direction, or a number: its divergence at this order.

    Attributes:
        pieces: the budget rho in exact float32 pieces.
        order: the order, static.
    """

    pieces: Array
    order: float = dataclasses.field(metadata={"static": True})

    rho = amounts.exact("pieces")
    """The budget of divergence (float64)."""

    _statement = _STATEMENT
    unit = property(lambda self: of_renyi(self.order))  # type: ignore[assignment]

    def _cost(self, query: object) -> ArrayLike:
        if isinstance(query, PLD):
            return renyi_of_law(query, np.array(self.order))
        return not_negative(query) if is_scalar_query(query) else renyi_cost(query, self.order)


@in_float64
def renyi_cost(query: PyTree, order: ArrayLike) -> Array:
    """The Rényi divergence of a mechanism, in NumPy where it is concrete, even inside a trace."""
    return divergence(query, order)


@in_float64
def renyi(epsilon: ArrayLike, delta: ArrayLike, *, order: float) -> RenyiFilter:
    """A filter that keeps an interaction (epsilon, delta)-DP, by Rényi divergence at one fixed order.

    The budget rho is the largest that the tight conversion at ``order`` turns into (epsilon, delta), shrunk
    by the account's slack of 2^-40, so the slack costs budget and not privacy. For add-or-remove neighbours
    where queries are sampled. "Stop when every order of a set is spent" would not be valid at the full delta:
    pick one order before the first query, with `plan_order` for the schedule you expect, and any schedule you
    end up with is still covered.

    Args:
        epsilon: at least 0; an array makes one account for each entry.
        delta: strictly between 0 and 1; broadcasts with ``epsilon``.
        order: a concrete number above 1 (part of the program: another order is another compilation).

    Raises:
        ValueError: concrete values out of range, or an (epsilon, delta) that no divergence reaches at this
            order (the message says which epsilon is the least).
    """
    if _validate.is_traced(order):
        raise ValueError("order must be a concrete number fixed in advance, got a traced value")
    _validate.scalar(order=order)
    _validate.greater(1.0, order=order)
    _validate.numbers(epsilon=epsilon, delta=delta)
    order = float(order)
    rho = on_host(renyi_from_epsilon(epsilon, delta, order))
    if not _validate.is_traced(rho) and np.any(np.asarray(rho) < 1e-18):
        least = epsilon - np.asarray(rho)
        raise ValueError(
            f"epsilon must be above {np.max(least):.6g} to leave any budget at order {order:g} and delta "
            f"{np.max(np.asarray(delta)):g}, got {np.min(np.asarray(epsilon)):g}"
        )
    return RenyiFilter(amounts.split(rho / (1 + 2 * amounts.SLACK)), order)
