"""The pure-DP filter: a budget for the sum of epsilons."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.costs import pure_cost
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.guarantees import OF_PURE_DP
from jaxacct.filters.states import filter_class

_STATEMENT = (
    "The whole interaction is epsilon-DP, if each query is epsilon_i-DP given all earlier outputs and every refusal "
    "was obeyed: on every path the privacy loss is at most the sum of the admitted epsilon_i (basic composition holds "
    "with adaptively chosen parameters: Rogers, Roth, Ullman, Vadhan 2016). The epsilon quoted counts "
    "the filter's rounding slack, a relative 2^-40; sampled queries count for add-or-remove neighbours."
)


@filter_class(SpentState, "pure_dp", "epsilon")
class PureDPFilter(AdditiveFilter):
    """A budget of epsilon, the unit of `spent` and `remaining`; see `pure_dp`.

    Attributes:
        pieces: the budget in exact float32 pieces.
    """

    pieces: Array

    epsilon = amounts.exact("pieces")
    """The budget, as it was given (float64)."""

    unit, _statement, _cost = OF_PURE_DP, _STATEMENT, staticmethod(pure_cost)


def pure_dp(epsilon: ArrayLike) -> PureDPFilter:
    """A filter that admits purely private queries while the sum of their epsilons is at most ``epsilon``.

    Tight among statements about epsilon alone. A query is a number epsilon_i, or a `PureDP`, `Laplace`,
    `DiscreteLaplace`, `RandomizedResponse`, `Exponential` or `PermuteAndFlip` mechanism, any of them on a Poisson
    sample (log(1 + rate (e^epsilon - 1)) for add-or-remove neighbours), a `Composed` of those, or an upper `PLD`
    without mass at infinity (its largest loss). For many small queries
    `zcdp` admits more at a given (epsilon, delta).

    Args:
        epsilon: the budget, between 1e-18 and 1e30; an array makes one account for each entry.

    Raises:
        ValueError: a concrete ``epsilon`` outside that range.
    """
    amounts.check_budget(epsilon=epsilon)
    return PureDPFilter(amounts.split(epsilon))
