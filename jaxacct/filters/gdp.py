"""The GDP filter: a budget for Gaussian mechanisms chosen with full adaptivity, without any loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.filters import _ledger
from jaxacct.filters._guarantees import GDPGuarantee
from jaxacct.filters._ledger import LedgerState
from jaxacct.filters._protocol import LedgerFilter, is_scalar_query
from jaxacct.mechanisms import GDP, Composed, Gaussian, PoissonSampled
from jaxacct.mechanisms._register import mechanism as _register

__all__ = ["GDPFilter", "gdp"]

_STATEMENT = (
    "The whole interaction is mu-GDP, at every epsilon at once, if each query is mu_i-GDP given all earlier "
    "outputs and every refusal was obeyed: queries run only while the sum of mu_i^2 stays within mu^2 (fully "
    "adaptive GDP filter: Smith, Thakurta 2022; Koskela, Tobaben, Honkela 2023). The mu quoted counts the "
    "filter's rounding slack, a relative 2^-41."
)


@_register
class GDPFilter(LedgerFilter):
    """A budget of mu-GDP; make it with `gdp`. Its own parameter is mu: `spent` and `remaining` are in mu."""

    pieces: Any

    @property
    @jax.enable_x64(True)
    def mu(self) -> Array:
        """The budget, as it was given (float64)."""
        return _ledger.join(self.pieces)

    @property
    @jax.enable_x64(True)
    def guarantee(self) -> GDPGuarantee:
        """(budget, with the slack)-GDP for the whole interaction, a proven bound."""
        return GDPGuarantee(_ledger.join(self.pieces) * (1 + _ledger.SLACK / 2 + 2.0**-51), _STATEMENT)

    def update(self, query: Any, state: LedgerState) -> tuple[Array, LedgerState]:
        """Whether ``query`` may run (a bool array) and the state after it.

        Args:
            query: a `Gaussian`, a `GDP`, a `PoissonSampled` one whose rate is concretely 1, a `Composed` of them (all
                or nothing), or a number mu for any mechanism that is mu-GDP given all earlier outputs.
            state: from `init` or `update`. It holds one ledger for each budget; its shape covers the query's.

        Returns:
            ``(admitted, state)``. NaN, negative and infinite mu are refused; a refused query leaves the
            state.

        Raises:
            ValueError: a query that is not GDP (sampling), of another type, or of a shape the state does not
                cover.
        """
        return _update(self.pieces, _parameters(query), state)

    def spent(self, state: LedgerState) -> Array:
        """sqrt(sum of mu_i^2) so far, rounded up, in the caller's float type."""
        return _in_mu(self.pieces, state, "spent", _ledger.caller_dtype())

    def remaining(self, state: LedgerState) -> Array:
        """The largest mu that still fits, rounded down, in the caller's float type."""
        return _in_mu(self.pieces, state, "remaining", _ledger.caller_dtype())


def _parameters(query: Any) -> list[tuple[Any, Any, Any]]:
    """(sensitivity, sigma, steps) of each part of ``query``; a number mu is a mechanism with sigma 1."""
    if is_scalar_query(query):
        return [(query, 1.0, 1.0)]
    if isinstance(query, Gaussian):
        return [(query.sensitivity, query.sigma, 1.0)]
    if isinstance(query, GDP):
        return [(query.mu, 1.0, 1.0)]
    if isinstance(query, PoissonSampled):
        if _validate.is_traced(query.rate) or np.any(np.asarray(query.rate) != 1):
            raise ValueError(
                "query must be a Gaussian, got PoissonSampled with a rate that is not the number 1: what is "
                "known of a sampled Gaussian is not a mu of GDP; use filters.renyi or filters.approximate_gdp"
            )
        return _parameters(query.mechanism)
    if isinstance(query, Composed):
        return [(p, s, k * steps) for part, steps in query.parts() for p, s, k in _parameters(part)]
    raise ValueError(f"query must be a Gaussian, a Composed of them or a number mu, got {type(query).__name__}")


@jax.enable_x64(True)
@jax.jit
def _update(pieces: Array, parameters: list[tuple[Any, Any, Any]], state: LedgerState) -> tuple[Array, LedgerState]:
    cost = jnp.zeros(())
    for triple in parameters:
        sensitivity, sigma, steps = (jnp.asarray(v, jnp.float64) for v in triple)
        mu = sensitivity / sigma
        good = (sensitivity >= 0) & (sigma > 0) & (sigma < jnp.inf) & (mu < jnp.inf) & (steps >= 1)
        # No under-count: the sum's roundings are covered term by term, the square's by the ledger's margin.
        cost = cost + jnp.where(good, steps * mu * mu, jnp.inf) * (1 + len(parameters) * 2.0**-52)
    mu = _ledger.join(pieces)
    fits, charged = _ledger.charge(state, cost, mu * mu, _ledger.WITH_SLACK)
    return fits, LedgerState(jnp.where(fits[..., None], charged.words, state.words))


@jax.enable_x64(True)
def _in_mu(pieces: Array, state: LedgerState, which: str, dtype: str) -> Array:
    mu = _ledger.join(pieces)
    if which == "spent":
        return _ledger.outward(mu * jnp.sqrt(_ledger.used(state)) * (1 + 2.0**-50), dtype, up=True)
    # Rounding here is far inside the slack: a query of exactly this much is admitted.
    return _ledger.outward(mu * jnp.sqrt(_ledger.left(state)), dtype, up=False)


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
    _ledger.check_budget(mu=mu)
    return GDPFilter(_ledger.split(mu))
