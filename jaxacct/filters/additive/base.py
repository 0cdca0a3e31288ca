"""Base of the filters whose costs add up: a budget, or several, and the exact sum of what ran."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.rounding import inflated
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.base import Guarantee
from jaxacct.filters.guarantees import Curve, ParameterGuarantee
from jaxacct.filters.states import BaseFilter


class AdditiveFilter(BaseFilter):
    """Budgets in ``pieces``, and an account for each; a subclass says what a query costs.

    A query is a mechanism that the class takes, a `Composed` of them (all or nothing), or the cost itself: a number
    that bounds it given all earlier outputs. `spent` is the cost of all that ran, `remaining` the largest cost that
    still fits.

    ``pieces`` is one array of `amounts.split`, or a tuple of them; states and costs are tuples likewise. A query runs
    if every account holds it. With ``squares`` it is the squares of costs that add up, to the square of the budget;
    ``to_the_unit`` without the slack of `amounts.WITH_SLACK`.
    """

    pieces: PyTree
    unit: ClassVar[Curve]
    """What a budget is a parameter of; a second budget is the probability that this fails."""
    squares: ClassVar[bool] = False
    to_the_unit: ClassVar[bool] = False
    _statement: ClassVar[str]
    _cost: Callable[..., PyTree]
    """What a query costs, squared with ``squares``, rounded up; NaN or infinite where it must be refused."""

    @property
    @in_float64
    def guarantee(self) -> Guarantee:
        """At the budget with the account's slack; a proven bound."""
        slack = amounts.SLACK / 2 if self.squares else amounts.SLACK
        most, *fails = (inflated(amounts.join(one), slack + 2.0**-51) for one in jax.tree.leaves(self.pieces))
        return ParameterGuarantee(self.unit, most, self._statement, fails=fails[0] if fails else 0.0)

    def _identity(self) -> list[Array]:
        """What belongs to the filter's mark, beside its type and static fields."""
        return jax.tree.leaves(self.pieces)

    def _fresh(self) -> PyTree:
        return jax.tree.map(amounts.empty, self.pieces)

    def _after(self, query: object, state: PyTree) -> tuple[Array, PyTree]:
        return self._charged(self._cost(query), state)

    def _charged(self, costs: PyTree, state: PyTree) -> tuple[Array, PyTree]:
        """`_after` with costs instead of a query."""
        return _update(self.pieces, costs, state, self.squares, self.to_the_unit)

    def _covers(self, query: object) -> ArrayLike:
        with jax.enable_x64(True):
            return functools.reduce(operator.and_, [cost < np.inf for cost in jax.tree.leaves(self._cost(query))])

    def _spent(self, state: PyTree) -> PyTree:
        return self._part(amounts.used, 2.0**-50, state)

    def _remaining(self, state: PyTree) -> PyTree:
        # Rounding here is far inside the slack: a query of exactly this much is admitted.
        return self._part(amounts.left, 0.0, state)

    def _part(self, share: Callable[[SpentState], Array], margin: float, state: PyTree) -> PyTree:
        """A share of each budget's account, as the cost that it is of."""

        def one(pieces: Array, account: SpentState) -> Array:
            part = share(account)
            part = array_module(part).sqrt(part) if self.squares else part
            return inflated(amounts.join(pieces) * part, margin)

        found = jax.tree.map(one, self.pieces, state)
        return tuple(found) if isinstance(found, tuple) else found

    def _fraction(self, state: PyTree) -> Array:
        """The largest share where there are several budgets.

        It can pass 1 by the account's slack of 2^-40, which the guarantee counts.
        """
        shares = [amounts.used(SpentState(words)) for words in jax.tree.leaves(state)]
        return functools.reduce(array_module(shares).maximum, shares)


@in_float64
@functools.partial(jax.jit, static_argnums=(3, 4))
def _update(pieces: PyTree, costs: PyTree, state: PyTree, squares: bool, to_the_unit: bool) -> tuple[Array, PyTree]:
    """Whether ``costs`` fit all budgets, up to their limit, and the accounts after them."""
    leaves, tree = jax.tree.flatten(pieces)
    limit = amounts.EXACT if to_the_unit else amounts.WITH_SLACK
    fits, charged = [], []
    for one, cost, account in zip(leaves, tree.flatten_up_to(costs), tree.flatten_up_to(state), strict=True):
        budget = amounts.join(one)
        budget = budget * budget if squares else budget
        found = amounts.charge(account, jnp.asarray(cost, jnp.float64), budget, limit)
        fits.append(found[0])
        charged.append(found[1])
    admitted = functools.reduce(jnp.logical_and, fits)
    after = tree.unflatten(charged)
    return admitted, jax.tree.map(lambda new, old: jnp.where(admitted[..., None], new, old), after, state)
