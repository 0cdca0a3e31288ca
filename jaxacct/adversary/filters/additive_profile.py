"""The additive filter: a budget for every band of the privacy loss (Algorithm 3 of the residue paper)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import not_negative
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct._types import PyTree
from jaxacct.adversary.filters.ladder import LadderGuarantee, closed_form, guarantee_of, ladder
from jaxacct.adversary.generalized_response import GeneralizedResponse
from jaxacct.filters import amounts
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.given_laws import completed
from jaxacct.filters.marks import row_of
from jaxacct.filters.states import BaseFilter, filter_class
from jaxacct.games.experiment import Query
from jaxacct.losses.curves.pld import PLD

_STATEMENT = (
    "The whole interaction of at most T queries is (epsilon', delta')-DP in both directions if each query's loss, "
    "given all earlier outputs, is dominated by the generalised randomised response whose band masses were charged, "
    "and every refusal was obeyed (residue filters, arXiv 2602.15815, Algorithm 3 and Theorem 15, with constants "
    "derived for this library; on the lattice: Lemma 7 and Theorem 16)."
)


@filter_class(SpentState, "additive_profile", "parameters")
class AdditiveProfileFilter(BaseFilter):
    """Budgets b_1 to b_k for P(|L| in band i), summed up over queries; make it with `additive_profile`.

    A query is band masses, shape ``(k,)``, of `prepare` (fast, may be traced), or what `prepare` takes. Masses that are
    NaN, negative or sum up to less than 1 (but for rounding) are refused, and so is the query after ``rounds`` of them;
    masses of another shape raise ValueError. `spent` and `remaining` are sums of band masses, shape ``(k,)``.

    Attributes:
        pieces: the budgets in exact float32 pieces, shape ``(k + 1, 3)``; the last one counts rounds.
        parameters: (epsilon, delta, rounds), static.
    """

    pieces: Array
    parameters: tuple[float, float, int] = dataclasses.field(metadata={"static": True})

    @property
    def epsilons(self) -> np.ndarray:
        """Upper ends of the bands, the last inf."""
        return ladder(*self.parameters).epsilons

    @property
    def guarantee(self) -> LadderGuarantee:
        """What the whole interaction satisfies, a proven bound; computed on demand (an FFT)."""
        return guarantee_of(*self.parameters, _STATEMENT, natural=False)

    def _identity(self) -> list[Array]:
        return [row_of(self.pieces)]

    def _fresh(self) -> SpentState:
        return amounts.empty(jnp.asarray(self.pieces))

    def prepare(self, query: Query, *, relation: str = "add_or_remove") -> Array:
        """Band masses of a query, rounded up into higher bands: what `update` charges.

        Args:
            query: a mechanism or curve with a symmetric loss.
            relation: for mechanisms.

        Raises:
            ValueError: a loss that is not symmetric.
        """
        if isinstance(query, PLD):
            with jax.enable_x64(True):
                query = completed(query)
        _, up = GeneralizedResponse.enclosing(query, self.epsilons[:-1], relation=relation)
        order = np.argsort(up.epsilons)
        # float32 rounded up, so that a float32 program charges as much; totals may exceed 1 by that.
        high = up.masses[order].astype(np.float32)
        return np.where(high < up.masses[order], np.nextafter(high, np.float32(np.inf)), high)  # pyright: ignore

    def _after(self, query: PyTree, state: SpentState) -> tuple[Array, SpentState]:
        masses = not_negative(query) if is_scalar_query(query) else self.prepare(query)
        bands = np.shape(self.pieces)[0] - 1
        if np.shape(masses) != (bands,):
            raise ValueError(f"query must have one mass for each of {bands} bands, got shape {np.shape(masses)}")
        return _update(self.pieces, masses, state)

    def _spent(self, state: SpentState) -> Array:
        return inflated(amounts.join(self.pieces)[:-1] * amounts.used(_bands(state)), 2.0**-51)

    def _remaining(self, state: SpentState) -> Array:
        return deflated(amounts.join(self.pieces)[:-1] * amounts.left(_bands(state)), 2.0**-51)

    def _fraction(self, state: SpentState) -> Array:
        """The largest share of a band's budget that is spent."""
        return amounts.used(_bands(state)).max()


@in_float64
@jax.jit
def _update(pieces: Array, masses: ArrayLike, state: SpentState) -> tuple[Array, SpentState]:
    masses = jnp.asarray(masses, jnp.float64)
    costs = jnp.append(masses, 1.0)
    fits, charged = amounts.charge(state, costs, amounts.join(pieces), amounts.EXACT)
    admitted = jnp.all(fits) & (jnp.sum(masses) >= 1.0 - 1e-12)
    return admitted, SpentState(jnp.where(admitted, charged.words, state.words))


def _bands(state: SpentState) -> SpentState:
    """All accounts but that of the rounds."""
    return SpentState(state.words[:-1])


def additive_profile(epsilon: float, delta: float, *, rounds: int) -> AdditiveProfileFilter:
    """A filter that sums up, band by band of a dyadic ladder, how likely queries' losses are to be that large.

    It admits every sequence of symmetric losses that the natural (epsilon, delta) filter admits (Theorem 14), and many
    more; its guarantee is larger than (epsilon, delta) by factors that are polynomial in log T and log(1 / delta).

    Args:
        epsilon: above 0.
        delta: in (0, min(1/2, (e^eps - 1) / (e^eps + e^-eps))).
        rounds: T, the most queries.

    Raises:
        ValueError: values out of range; they must be concrete, as the ladder's length depends on them.
    """
    closed_form(epsilon, delta, rounds)  # its checks
    bands = ladder(float(epsilon), float(delta), int(rounds))
    with jax.enable_x64(True):
        # Half a round more, as charges are rounded up.
        pieces = np.asarray(amounts.split(np.append(bands.budgets, rounds + 0.5)))
    return AdditiveProfileFilter(pieces, (float(epsilon), float(delta), int(rounds)))
