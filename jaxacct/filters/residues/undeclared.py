"""The natural filter for queries that were not declared: a composition on a grid, without a guarantee."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, hosted, on_device
from jaxacct._numerics.pieces import join
from jaxacct.filters.guarantees import ProfileGuarantee
from jaxacct.filters.marks import row_of
from jaxacct.filters.residues.on_grid import ComposedState, admitted_if, law_of, nothing, on_grid
from jaxacct.filters.states import BaseFilter, filter_class
from jaxacct.losses.curves.conversions import pld_excess
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import first_side

_ROUNDING = 1e-10  # what a composition on a grid may exceed its budget by and still count as within it


@filter_class(ComposedState, "natural", "rounds", "relation")
class UndeclaredNaturalFilter(BaseFilter):
    """Exact composition of any queries against a budget, on a grid: no guarantee; see `natural`.

    A query is a mechanism or an upper curve; a `PLD` on this filter's grid is taken as the result of `prepare`. It runs
    if the composition with it stays within the budget at every epsilon. `spent` counts queries, int32; `remaining` is
    the least room to the budget's curve.

    Attributes:
        room: float32[size, 2], the budget's excess at the grid's points, from below.
        grid: static.
        relation: for mechanisms, static.
        rounds: the most queries, static; None for any number.
    """

    room: Array
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    relation: str = dataclasses.field(metadata={"static": True})
    rounds: int | None = dataclasses.field(metadata={"static": True})

    @property
    def guarantee(self) -> ProfileGuarantee:
        """There is none.

        Raises:
            ValueError: always, saying why and what to use instead.
        """
        raise ValueError(
            "family must be declared for a guarantee: composing whatever an adaptive analyst chose as if it had been "
            "fixed in advance can exceed the budget (residue filters, arXiv 2602.15815, Theorem 8); give "
            "natural(budget, family=..., rounds=...), or use gdp_residue, renyi or natural_approximate_dp"
        )

    def _identity(self) -> list[Array]:
        return [row_of(self.room)]

    def _fresh(self) -> ComposedState:
        return nothing(self.grid)

    @in_float64
    def prepare(self, query: object) -> PLD:
        """The query's law on this filter's grid: do it once for a query that is asked again."""
        return on_grid(query, self.grid, first_side(self.relation), symmetric=False)

    def _after(self, query: object, state: ComposedState) -> tuple[Array, ComposedState]:
        ready = isinstance(query, PLD) and query.grid == self.grid and query.bound == "upper"
        law = query if ready else self.prepare(query)
        with jax.enable_x64(True):
            return on_device(_within(law, state, self.room, grid=self.grid, rounds=self.rounds))

    def _spent(self, state: ComposedState) -> Array:
        """How many queries ran, int32."""
        return state.rounds

    def _remaining(self, state: ComposedState) -> Array:
        """The least room to the budget's curve, over all epsilons."""
        _, excess = floats(pld_excess(law_of(state, self.grid), self.grid))
        least = (join(self.room) - excess).min()
        return array_module(least).maximum(least, 0.0)

    def _fraction(self, state: ComposedState) -> Array:
        """The share of the rounds that are over; 0 where any number may run."""
        return state.rounds / np.float32(np.inf if self.rounds is None else self.rounds)


@hosted(static=("grid", "rounds"))
def _within(
    law: PLD, state: ComposedState, room: Array, *, grid: LossGrid, rounds: int | None
) -> tuple[Array, ComposedState]:
    def within(composed: PLD) -> Array:
        xp, excess = floats(pld_excess(composed, grid))
        return xp.all(excess <= join(room) + _ROUNDING)

    return admitted_if(within, law, state, grid, rounds)
