"""The zCDP filter: a budget for the sum of rhos."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.pytree import mechanism as _register
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.costs import concentrated_cost
from jaxacct.filters.guarantees import ZCDPGuarantee
from jaxacct.filters.printing import printed_as

__all__ = ["ZCDPFilter", "zcdp"]

_STATEMENT = (
    "The whole interaction is rho-zCDP, and (epsilon, delta)-DP for every delta by the conversion of Canonne, Kamath, "
    "Steinke 2020 at the best order, if each query is rho_i-zCDP given all earlier outputs and every refusal was "
    "obeyed (fully adaptive zCDP filter: Whitehouse, Ramdas, Rogers, Wu 2023; at every order it is the Rényi filter of "
    "Feldman, Zrnic 2021, so one ledger serves them all). The rho quoted counts the filter's rounding slack, a "
    "relative 2^-40; sampled queries count for add-or-remove neighbours."
)


@printed_as("zcdp", "rho")
@_register
class ZCDPFilter(AdditiveFilter):
    """A budget of rho, the unit of `spent` and `remaining`; see `zcdp`.

    Attributes:
        pieces: the budget in exact float32 pieces.
    """

    pieces: Any

    @property
    @jax.enable_x64(True)
    def rho(self) -> Array:
        """The budget, as it was given (float64)."""
        return amounts.join(self.pieces)

    @property
    @jax.enable_x64(True)
    def guarantee(self) -> ZCDPGuarantee:
        """(budget, with the slack)-zCDP for the whole interaction, a proven bound."""
        return ZCDPGuarantee(amounts.admissible(self.pieces), _STATEMENT)

    def _cost(self, query: Any) -> ArrayLike:
        return concentrated_cost(query)


def zcdp(rho: ArrayLike) -> ZCDPFilter:
    """A filter that admits zero-concentrated queries while the sum of their rhos is at most ``rho``.

    No order has to be chosen in advance, as `renyi` demands: along every path the costs at all orders are the same
    multiples of one sum, so no order outlives another. A query is a number rho_i, or one of `ZeroConcentratedDP`,
    `Gaussian` and `GDP` (mu^2 / 2), `DiscreteGaussian`, `Laplace` (epsilon + exp(-epsilon) - 1), `RandomizedResponse`,
    `PureDP`, `PermuteAndFlip`, `DiscreteLaplace` (epsilon tanh(epsilon / 2), the best constant; :mod:`._costs` proves
    both), `Exponential` (epsilon^2 / 8), a Poisson sample of a purely private one, a `Composed` of those, or an upper
    `PLD` without mass at infinity (the supremum over orders of its divergences; :mod:`._law_costs`).

    Args:
        rho: the budget, between 1e-18 and 1e30; an array makes one ledger for each entry. For an (epsilon, delta)
            use :func:`jaxacct.losses.renyi.zcdp.zcdp_from_epsilon`.

    Raises:
        ValueError: a concrete ``rho`` outside that range.
    """
    amounts.check_budget(rho=rho)
    return ZCDPFilter(amounts.split(rho))
