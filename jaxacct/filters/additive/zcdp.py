"""The zCDP filters: a budget for the sum of rhos, alone or with a second budget for the sum of deltas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, on_host
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.costs import approximate_cost, concentrated_cost
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.guarantees import OF_ZCDP
from jaxacct.filters.states import filter_class
from jaxacct.losses.renyi.zcdp import zcdp_from_epsilon

_STATEMENT = (
    "The whole interaction is rho-zCDP, and (epsilon, delta)-DP for every delta by the conversion of Canonne, Kamath, "
    "Steinke 2020 at the best order, if each query is rho_i-zCDP given all earlier outputs and every refusal was "
    "obeyed (fully adaptive zCDP filter: Whitehouse, Ramdas, Rogers, Wu 2023; at every order it is the Rényi filter of "
    "Feldman, Zrnic 2021, so one account serves them all). The rho quoted counts the filter's rounding slack, a "
    "relative 2^-40; sampled queries count for add-or-remove neighbours."
)


_WITH_FAILURES = (
    "The whole interaction is delta-approximate rho-zCDP, if each query is delta_i-approximately rho_i-zCDP given all "
    "earlier outputs and every refusal was obeyed (approximate zCDP filter: Whitehouse, Ramdas, Rogers, Wu 2023, of "
    "which their filter for (epsilon_i, delta_i)-DP queries is the case rho_i = epsilon_i^2 / 2; the constant here is "
    "the smaller epsilon_i tanh(epsilon_i / 2)). Numbers quoted count the rounding slack of both accounts, a relative "
    "2^-40; sampled queries count for add-or-remove neighbours."
)


@filter_class(SpentState, "zcdp", "rho")
class ZCDPFilter(AdditiveFilter):
    """A budget of rho, the unit of `spent` and `remaining`; see `zcdp`.

    Attributes:
        pieces: the budget in exact float32 pieces.
    """

    pieces: Array

    rho = amounts.exact("pieces")
    """The budget, as it was given (float64)."""

    unit, _statement, _cost = OF_ZCDP, _STATEMENT, staticmethod(concentrated_cost)


class ApproximateZCDPState(NamedTuple):
    """What a scan carries: one account for rho, one for delta."""

    rho: Array | SpentState
    delta: Array | SpentState


@filter_class(ApproximateZCDPState, "approximate_zcdp", "rho", "delta")
class ApproximateZCDPFilter(AdditiveFilter):
    """Budgets of rho and of delta; `spent` and `remaining` are pairs in that order; see `approximate_zcdp`.

    A query is a pair ``(rho, delta)`` of numbers that hold given all earlier outputs, an `ApproximateDP` mechanism
    (also on a Poisson sample), an upper `PLD`, whose mass at infinity is its delta, or anything else that `zcdp` takes
    (delta 0) but a single number. A refused query leaves both accounts.

    Attributes:
        rho_pieces: the budget rho in exact float32 pieces.
        delta_pieces: the budget delta likewise, of the same shape.
    """

    rho_pieces: Array
    delta_pieces: Array

    rho = amounts.exact("rho_pieces")
    """The budget of rho, as it was given (float64)."""

    delta = amounts.exact("delta_pieces")
    """The budget of delta, as it was given (float64)."""

    unit, _statement = OF_ZCDP, _WITH_FAILURES

    @property
    def pieces(self) -> ApproximateZCDPState:
        """Both budgets."""
        return ApproximateZCDPState(self.rho_pieces, self.delta_pieces)

    def _cost(self, query: object) -> ApproximateZCDPState:
        return ApproximateZCDPState(*approximate_cost(query))


def zcdp(rho: ArrayLike) -> ZCDPFilter:
    """A filter that admits zero-concentrated queries while the sum of their rhos is at most ``rho``.

    No order has to be chosen in advance, as `renyi` demands: along every path the costs at all orders are the same
    multiples of one sum, so no order outlives another. A query is a number rho_i, or one of `ZeroConcentratedDP`,
    `Gaussian` and `GDP` (mu^2 / 2), `DiscreteGaussian`, `Laplace` (epsilon + exp(-epsilon) - 1), `RandomizedResponse`,
    `PureDP`, `PermuteAndFlip`, `DiscreteLaplace` (epsilon tanh(epsilon / 2), the best constant),
    `Exponential` (epsilon^2 / 8), a Poisson sample of a purely private one, a `Composed` of those, or an upper
    `PLD` without mass at infinity (the supremum over orders of its divergences).

    Args:
        rho: the budget, between 1e-18 and 1e30; an array makes one account for each entry. For an (epsilon, delta)
            use :func:`jaxacct.losses.renyi.zcdp.zcdp_from_epsilon`.

    Raises:
        ValueError: a concrete ``rho`` outside that range.
    """
    amounts.check_budget(rho=rho)
    return ZCDPFilter(amounts.split(rho))


@in_float64
def approximate_zcdp(rho: ArrayLike, delta: ArrayLike) -> ApproximateZCDPFilter:
    """A filter for delta_i-approximately rho_i-zCDP queries: their rhos and deltas add up, each within its budget.

    Why it is valid: a delta_i-approximately rho_i-zCDP query is a mixture, with weights 1 - delta_i and delta_i, of a
    rho_i-zCDP query and of anything. On no path do the weights of "never anything" multiply to less than 1 - sum
    delta_i >= 1 - delta; a last coin, dropped on the path, makes the product exactly 1 - delta on all of them. So the
    interaction is the mixture, with weights 1 - delta and delta, of an interaction that `zcdp` covers and of anything.

    Args:
        rho: between 1e-18 and 1e30; broadcasts with ``delta``; an array makes one pair of accounts for each entry.
        delta: at least 1e-18 and below 1.

    Raises:
        ValueError: concrete values out of range.
    """
    amounts.check_budget(rho=rho)
    _validate.probability(delta=delta)
    amounts.check_budget(delta=delta)
    xp, *given = floats(rho, delta)
    rhos, deltas = xp.broadcast_arrays(*given)
    # A traced delta of 1 or more is no budget.
    return ApproximateZCDPFilter(amounts.split(rhos), amounts.split(xp.where(deltas < 1, deltas, np.nan)))


@in_float64
def approximate_dp(epsilon: ArrayLike, delta: ArrayLike, *, share: ArrayLike = 0.5) -> ApproximateZCDPFilter:
    """The filter of Whitehouse et al. 2023 for (epsilon_i, delta_i)-DP queries under an (epsilon, delta) budget.

    ``share`` of delta is the budget for the sum of the queries' deltas; the rest goes into advanced composition, by the
    largest rho that :func:`jaxacct.losses.renyi.zcdp.zcdp_epsilon` turns into ``epsilon`` there (they
    have the simpler conversion rho + 2 sqrt(rho log(1 / delta'))). It is `approximate_zcdp` with these two budgets.

    Args:
        epsilon: above 0; an array makes one pair of accounts for each entry.
        delta: strictly between 0 and 1; broadcasts.
        share: strictly between 0 and 1; broadcasts.

    Raises:
        ValueError: concrete values out of range, or a ``delta * share`` below 1e-18.
    """
    _validate.positive(epsilon=epsilon)
    _validate.probability(delta=delta, share=share)
    _, epsilon, delta, share = floats(epsilon, delta, share)
    ours = delta * share
    # delta = ours + (1 - ours) rest: below what the guarantee finds left beside its own slack.
    rest = deflated((delta - inflated(ours, 2 * amounts.SLACK)) / (1 - ours), 2.0**-48)
    rho = on_host(zcdp_from_epsilon(epsilon, rest)) / (1 + 2 * amounts.SLACK)
    if not _validate.is_traced(rho) and not np.all(np.asarray(rho) >= 1e-18):
        raise ValueError(f"epsilon must be larger to leave any budget, got {np.min(np.asarray(epsilon)):g}")
    return approximate_zcdp(rho, ours)
