"""The GDP filter: a budget for Gaussian mechanisms chosen with full adaptivity, as tight as a fixed schedule."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.costs import gaussian_cost
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.guarantees import OF_GDP
from jaxacct.filters.states import filter_class

_STATEMENT = (
    "The whole interaction is mu-GDP, at every epsilon at once, if each query is mu_i-GDP given all earlier "
    "outputs and every refusal was obeyed: queries run only while the sum of mu_i^2 stays within mu^2 (fully "
    "adaptive GDP filter: Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023). The mu quoted counts the "
    "filter's rounding slack, a relative 2^-41."
)


@filter_class(SpentState, "gdp", "mu")
class GDPFilter(AdditiveFilter):
    """A budget of mu-GDP, the unit of `spent` and `remaining`; see `gdp`.

    A query is a `Gaussian`, a `GDP`, a `PoissonSampled` one whose rate is concretely 1, an upper `PLD` that some
    Gaussian dominates, or a number mu for any mechanism that is mu-GDP given all earlier outputs.

    Attributes:
        pieces: the budget in exact float32 pieces.
    """

    squares = True
    pieces: Array

    mu = amounts.exact("pieces")
    """The budget, as it was given (float64)."""

    unit, _statement, _cost = OF_GDP, _STATEMENT, staticmethod(gaussian_cost)


def gdp(mu: ArrayLike) -> GDPFilter:
    """A filter that admits GDP queries while the sum of mu_i^2 is at most mu^2.

    Tight: the interaction is mu-GDP exactly as if the mu_i had been fixed in advance (Koskela et al. 2023; Theorem
    2.11 of the f-DP filter paper). Holds for the relation whose sensitivities the queries use.

    The account admits up to (1 + 2^-40) mu^2, so that n queries of mu / sqrt(n) fit n times in spite of
    rounding (of float64 rounding: mu_i that were rounded to float32 can sum to 6e-8 more than mu^2, which is
    refused). The guarantee counts it.

    Args:
        mu: the budget, between 1e-18 and 1e30; an array makes one account for each entry.

    Raises:
        ValueError: a concrete ``mu`` outside that range.
    """
    amounts.check_budget(mu=mu)
    return GDPFilter(amounts.split(mu))
