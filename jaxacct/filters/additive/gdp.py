"""The GDP filter: a budget for Gaussian mechanisms chosen with full adaptivity, as tight as a fixed schedule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import array_module
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._numerics.rounding import inflated
from jaxacct.filters import amounts
from jaxacct.filters.additive.costs_of_plds import gaussian_of_law
from jaxacct.filters.additive.gaussian_queries import gaussian_cost, gaussian_parts
from jaxacct.filters.amounts import LedgerState
from jaxacct.filters.base import LedgerFilter
from jaxacct.filters.guarantees import GDPGuarantee
from jaxacct.filters.printing import printed_as
from jaxacct.filters.states import keeps
from jaxacct.losses.curves.pld import PLD

__all__ = ["GDPFilter", "gdp"]

_STATEMENT = (
    "The whole interaction is mu-GDP, at every epsilon at once, if each query is mu_i-GDP given all earlier "
    "outputs and every refusal was obeyed: queries run only while the sum of mu_i^2 stays within mu^2 (fully "
    "adaptive GDP filter: Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023). The mu quoted counts the "
    "filter's rounding slack, a relative 2^-41."
)


@printed_as("gdp", "mu")
@keeps(LedgerState)
@_register
class GDPFilter(LedgerFilter):
    """A budget of mu-GDP; make it with `gdp`. Its own parameter is mu: `spent` and `remaining` are in mu."""

    pieces: Any

    @property
    @jax.enable_x64(True)
    def mu(self) -> Array:
        """The budget, as it was given (float64)."""
        return amounts.join(self.pieces)

    @property
    @jax.enable_x64(True)
    def guarantee(self) -> GDPGuarantee:
        """(budget, with the slack)-GDP for the whole interaction, a proven bound."""
        return GDPGuarantee(inflated(amounts.join(self.pieces), amounts.SLACK / 2 + 2.0**-51), _STATEMENT)

    def update(self, query: Any, state: LedgerState) -> tuple[Array, LedgerState]:
        """Whether ``query`` may run (a bool array) and the state after it.

        Args:
            query: a `Gaussian`, a `GDP`, a `PoissonSampled` one whose rate is concretely 1, a `Composed` of them (all
                or nothing), an upper `PLD` that some Gaussian dominates, or a number mu for any mechanism that is
                mu-GDP given all earlier outputs.
            state: from `init` or `update`. It holds one ledger for each budget; its shape covers the query's.

        Returns:
            ``(admitted, state)``. NaN, negative and infinite mu are refused; a refused query leaves the
            state.

        Raises:
            ValueError: a query that is not GDP (sampling), of another type, or of a shape the state does not
                cover.
        """
        with jax.enable_x64(True):
            cost = gaussian_cost(gaussian_parts(gaussian_of_law(query) if isinstance(query, PLD) else query))
        return _update(self.pieces, cost, state)

    def spent(self, state: LedgerState) -> Array:
        """sqrt(sum of mu_i^2) so far, rounded up, in the caller's float type."""
        return _in_mu(self.pieces, state, "spent", amounts.caller_dtype())

    def remaining(self, state: LedgerState) -> Array:
        """The largest mu that still fits, rounded down, in the caller's float type."""
        return _in_mu(self.pieces, state, "remaining", amounts.caller_dtype())


@jax.enable_x64(True)
@jax.jit
def _update(pieces: Array, cost: ArrayLike, state: LedgerState) -> tuple[Array, LedgerState]:
    mu = amounts.join(pieces)
    fits, charged = amounts.charge(state, jnp.asarray(cost, jnp.float64), mu * mu, amounts.WITH_SLACK)
    return fits, LedgerState(jnp.where(fits[..., None], charged.words, state.words))


@jax.enable_x64(True)
def _in_mu(pieces: Array, state: LedgerState, which: str, dtype: str) -> Array:
    mu = amounts.join(pieces)
    share = amounts.used(state) if which == "spent" else amounts.left(state)
    part = mu * array_module(share).sqrt(share)
    if which == "spent":
        return amounts.outward(inflated(part, 2.0**-50), dtype, up=True)
    # Rounding here is far inside the slack: a query of exactly this much is admitted.
    return amounts.outward(part, dtype, up=False)


def gdp(mu: ArrayLike) -> GDPFilter:
    """A filter that admits GDP queries while the sum of mu_i^2 is at most mu^2.

    Tight: the interaction is mu-GDP exactly as if the mu_i had been fixed in advance (Koskela et al. 2023; Theorem
    2.11 of the f-DP filter paper). Holds for the relation whose sensitivities the queries use.

    The ledger admits up to (1 + 2^-40) mu^2, so that n queries of mu / sqrt(n) fit n times in spite of
    rounding (of float64 rounding: mu_i that were rounded to float32 can sum to 6e-8 more than mu^2, which is
    refused). The guarantee counts it.

    Args:
        mu: the budget, between 1e-18 and 1e30; an array makes one ledger for each entry.

    Raises:
        ValueError: a concrete ``mu`` outside that range.
    """
    amounts.check_budget(mu=mu)
    return GDPFilter(amounts.split(mu))
