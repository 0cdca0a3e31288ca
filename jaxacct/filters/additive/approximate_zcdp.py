"""The approximate zCDP filter: sums of rho and of delta, for queries that fail with a small probability."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import array_module
from jaxacct._numerics.host import floats, on_host
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import in_budget
from jaxacct.filters.additive.costs import approximate_cost
from jaxacct.filters.amounts import LedgerState
from jaxacct.filters.guarantees import ZCDPGuarantee
from jaxacct.filters.printing import printed_as
from jaxacct.filters.states import keeps
from jaxacct.losses.renyi.zcdp import zcdp_from_epsilon

__all__ = ["ApproximateZCDPFilter", "ApproximateZCDPState", "approximate_dp", "approximate_zcdp"]

_STATEMENT = (
    "The whole interaction is delta-approximate rho-zCDP, if each query is delta_i-approximately rho_i-zCDP given all "
    "earlier outputs and every refusal was obeyed (approximate zCDP filter: Whitehouse, Ramdas, Rogers, Wu 2023, of "
    "which their filter for (epsilon_i, delta_i)-DP queries is the case rho_i = epsilon_i^2 / 2; the constant here is "
    "the smaller epsilon_i tanh(epsilon_i / 2)). Numbers quoted count the rounding slack of both ledgers, a relative "
    "2^-40; sampled queries count for add-or-remove neighbours."
)


class ApproximateZCDPState(NamedTuple):
    """What a scan carries: one ledger for rho, one for delta."""

    rho: LedgerState
    delta: LedgerState


@printed_as("approximate_zcdp", "rho", "delta")
@keeps(ApproximateZCDPState)
@_register
class ApproximateZCDPFilter:
    """Budgets of rho and of delta; `spent` and `remaining` are pairs in that order; see `approximate_zcdp`.

    Attributes:
        rho_pieces: the budget rho in exact float32 pieces.
        delta_pieces: the budget delta likewise, of the same shape.
    """

    rho_pieces: Any
    delta_pieces: Any

    @property
    @jax.enable_x64(True)
    def rho(self) -> Array:
        """The budget of rho, as it was given (float64)."""
        return amounts.join(self.rho_pieces)

    @property
    @jax.enable_x64(True)
    def delta(self) -> Array:
        """The budget of delta, as it was given (float64)."""
        return amounts.join(self.delta_pieces)

    @property
    @jax.enable_x64(True)
    def guarantee(self) -> ZCDPGuarantee:
        """delta-approximate rho-zCDP (budgets with the slack) for the whole interaction, a proven bound."""
        rho, delta = (amounts.admissible(pieces) for pieces in (self.rho_pieces, self.delta_pieces))
        return ZCDPGuarantee(rho, _STATEMENT, fails=delta)

    def init(self) -> ApproximateZCDPState:
        """The state with nothing spent; one pair of ledgers for each entry of the budgets' shape."""
        return ApproximateZCDPState(amounts.empty(self.rho_pieces), amounts.empty(self.delta_pieces))

    def update(self, query: Any, state: ApproximateZCDPState) -> tuple[Array, ApproximateZCDPState]:
        """Whether ``query`` may run (a bool array) and the state after it; both budgets must hold it.

        Args:
            query: a pair ``(rho, delta)`` of numbers that hold given all earlier outputs, an `ApproximateDP`
                mechanism (also on a Poisson sample), an upper `PLD`, whose mass at infinity is its delta, anything
                else that `zcdp` accepts (delta 0) but a single number, or a `Composed` of them (all or nothing).
            state: from `init` or `update`; its shape covers the query's.

        Returns:
            ``(admitted, state)``. NaN, negative and infinite costs are refused; a refused query leaves both
            ledgers.

        Raises:
            ValueError: a query of another type, or of a shape that the state does not cover.
        """
        return _update(self, approximate_cost(query), state)

    def spent(self, state: ApproximateZCDPState) -> tuple[Array, Array]:
        """The sums (rho, delta) of the admitted queries, rounded up, in the caller's float type."""
        return self._both(state, "spent")

    def remaining(self, state: ApproximateZCDPState) -> tuple[Array, Array]:
        """The largest (rho, delta) that still fits, rounded down, in the caller's float type."""
        return self._both(state, "remaining")

    def fraction(self, state: ApproximateZCDPState) -> Array:
        """The larger of the two shares that are spent, rounded up, in the caller's float type."""
        return _fraction(state, amounts.caller_dtype())

    def _both(self, state: ApproximateZCDPState, which: str) -> tuple[Array, Array]:
        dtype = amounts.caller_dtype()
        rho = in_budget(self.rho_pieces, state.rho, which, dtype)
        return rho, in_budget(self.delta_pieces, state.delta, which, dtype)


@jax.enable_x64(True)
@jax.jit
def _update(
    ledger: ApproximateZCDPFilter, costs: tuple[Array, Array], state: ApproximateZCDPState
) -> tuple[Array, ApproximateZCDPState]:
    rho, charged = amounts.charge(state.rho, costs[0], amounts.join(ledger.rho_pieces), amounts.WITH_SLACK)
    delta, failed = amounts.charge(state.delta, costs[1], amounts.join(ledger.delta_pieces), amounts.WITH_SLACK)
    admitted = rho & delta
    after = ApproximateZCDPState(charged, failed)
    return admitted, jax.tree.map(lambda new, old: jnp.where(admitted[..., None], new, old), after, state)


@jax.enable_x64(True)
def _fraction(state: ApproximateZCDPState, dtype: str) -> Array:
    rho, delta = amounts.used(state.rho), amounts.used(state.delta)
    return amounts.outward(array_module(rho, delta).maximum(rho, delta), dtype, up=True)


@jax.enable_x64(True)
def approximate_zcdp(rho: ArrayLike, delta: ArrayLike) -> ApproximateZCDPFilter:
    """A filter for delta_i-approximately rho_i-zCDP queries: their rhos and deltas add up, each within its budget.

    Why it is valid: a delta_i-approximately rho_i-zCDP query is a mixture, with weights 1 - delta_i and delta_i, of a
    rho_i-zCDP query and of anything. On no path do the weights of "never anything" multiply to less than 1 - sum
    delta_i >= 1 - delta; a last coin, dropped on the path, makes the product exactly 1 - delta on all of them. So the
    interaction is the mixture, with weights 1 - delta and delta, of an interaction that `zcdp` covers and of anything.

    Args:
        rho: between 1e-18 and 1e30; broadcasts with ``delta``; an array makes one pair of ledgers for each entry.
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


@jax.enable_x64(True)
def approximate_dp(epsilon: ArrayLike, delta: ArrayLike, *, share: ArrayLike = 0.5) -> ApproximateZCDPFilter:
    """The filter of Whitehouse et al. 2023 for (epsilon_i, delta_i)-DP queries under an (epsilon, delta) budget.

    ``share`` of delta is there for the queries' deltas to add up in; the rest goes into advanced composition, by the
    largest rho that :func:`jaxacct.losses.renyi.zcdp.zcdp_epsilon` turns into ``epsilon`` there (they
    have the simpler conversion rho + 2 sqrt(rho log(1 / delta'))). It is `approximate_zcdp` with these two budgets.

    Args:
        epsilon: above 0; an array makes one pair of ledgers for each entry.
        delta: strictly between 0 and 1; broadcasts.
        share: strictly between 0 and 1; broadcasts.

    Raises:
        ValueError: concrete values out of range, or a ``delta * share`` below 1e-18.
    """
    for name, value in (("epsilon", epsilon), ("delta", delta), ("share", share)):
        if value is None:
            raise ValueError(f"{name} must be a number, got None")
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
