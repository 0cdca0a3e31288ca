"""The natural (epsilon, delta) filter and its guarantee (Theorem 9)."""

from __future__ import annotations

import dataclasses

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, hosted, on_device
from jaxacct._numerics.pytree import mechanism as checked_tree
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import inflated
from jaxacct.adversary.filters.ladder import LadderGuarantee, closed_form, guarantee_of
from jaxacct.filters.residues.on_grid import ComposedState, admitted_if, law_of, nothing, on_grid
from jaxacct.filters.states import BaseFilter, filter_class
from jaxacct.games.experiment import Query
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import RELATIONS

_STATEMENT = (
    "The whole interaction of at most T queries is (epsilon', delta')-DP in both directions, NOT (epsilon, delta)-DP: "
    "composing what was realised along a path is no (epsilon, delta) filter, but fails only by factors polynomial in "
    "log T and log(1 / delta) (residue filters, arXiv 2602.15815, Theorem 9, with constants derived for this library). "
    "It holds if each query's loss given all earlier outputs is dominated by the symmetric law it was charged as, and "
    "every refusal was obeyed."
)


@checked_tree
class SymmetricLaw(PLD):
    """An upper law that dominates a query in both directions, as `NaturalApproximateDPFilter.prepare` makes it.

    A kind of its own, because a `PLD` may be of one direction, and nothing in it says what the other one costs here.
    """


@filter_class(ComposedState, "natural_approximate_dp", "parameters")
class NaturalApproximateDPFilter(BaseFilter):
    """Admits a query while the composition of all that ran is (epsilon, delta)-DP; see `natural_approximate_dp`.

    A query is a mechanism or upper curve, or the result of `prepare`. It is refused if the composition (rounded up)
    exceeds delta at epsilon, or after ``rounds`` queries. `spent` is delta(epsilon) of what ran.

    Attributes:
        parameters: (epsilon, delta, rounds), static.
        grid: of the composed law, static.
        relation: for mechanisms, static.
    """

    parameters: tuple[float, float, int] = dataclasses.field(metadata={"static": True})
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    relation: str = dataclasses.field(default="add_or_remove", metadata={"static": True})

    @property
    def guarantee(self) -> LadderGuarantee:
        """(epsilon', delta') of the whole interaction, a proven bound, larger than the budget; computed on demand."""
        return guarantee_of(*self.parameters, _STATEMENT, natural=True)

    def _identity(self) -> list[Array]:
        return []

    def _fresh(self) -> ComposedState:
        return nothing(self.grid)

    @in_float64
    def prepare(self, query: Query) -> SymmetricLaw:
        """The query's law on this filter's grid, made symmetric: do it once for a query that is asked again.

        Raises:
            ValueError: a curve that is a bound from below, or of another spacing.
        """
        law = on_grid(query, self.grid, self.relation, symmetric=True)
        return unchecked(SymmetricLaw, **vars(law))

    @in_float64
    def _after(self, query: Query, state: ComposedState) -> tuple[Array, ComposedState]:
        law = query if isinstance(query, SymmetricLaw) and query.grid == self.grid else self.prepare(query)
        epsilon, delta, rounds = self.parameters
        return on_device(_step(law.float64(), state, epsilon, delta, rounds=rounds, grid=self.grid))

    def _spent(self, state: ComposedState) -> Array:
        """delta(epsilon) of what ran."""
        _, delta = floats(law_of(state, self.grid).hockey_stick(self.parameters[0]))
        return delta

    def _remaining(self, state: ComposedState) -> Array:
        value = self._spent(state)
        return array_module(value).maximum(self.parameters[1] - value, 0.0)

    def _fraction(self, state: ComposedState) -> Array:
        return inflated(self._spent(state) / self.parameters[1], 2.0**-50)


@hosted(static=("rounds", "grid"))
def _step(
    law: PLD, state: ComposedState, epsilon: ArrayLike, delta: ArrayLike, *, rounds: int, grid: LossGrid
) -> tuple[Array, ComposedState]:
    return admitted_if(lambda made: made.hockey_stick(epsilon) <= delta, law, state, grid, rounds)


def natural_approximate_dp(
    epsilon: float, delta: float, *, rounds: int, grid: LossGrid | None = None, relation: str = "add_or_remove"
) -> NaturalApproximateDPFilter:
    """A filter that composes what ran, exactly but for a grid, and stops before delta(epsilon) exceeds delta.

    What it admits looks (epsilon, delta)-DP along every path; the adaptive interaction as a whole is not, and the
    guarantee says what it is. For a number that equals the budget use `gdp_residue` or `renyi`.

    Args:
        epsilon: above 0.
        delta: in (0, min(1/2, (e^eps - 1) / (e^eps + e^-eps))).
        rounds: T, the most queries; the guarantee grows with its logarithm.
        grid: of the composed loss; without it 4,097 points to twice epsilon plus 1 on either side, with epsilon on one.
        relation: for mechanisms.

    Raises:
        ValueError: values out of range, or a grid without loss 0.
    """
    closed_form(epsilon, delta, rounds)  # its checks
    _validate.instance(LossGrid | None, grid=grid)
    _validate.one_of(RELATIONS, relation=relation)
    if grid is None:
        whole = max(1, round(2048 * float(epsilon) / (2 * float(epsilon) + 1)))
        grid = LossGrid(float(epsilon) / whole, -2048, 4097)
    if not grid.lowest < 0 < grid.highest:
        raise ValueError(f"grid must hold losses on either side of 0, got {grid}")
    return NaturalApproximateDPFilter((float(epsilon), float(delta), int(rounds)), grid, relation)
