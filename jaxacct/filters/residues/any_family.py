"""The residue filter for any budget family: every step is certified before it is taken (docs/proofs/filters.md, 2)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import at_hand, floats, hosted, on_device, on_host
from jaxacct._numerics.pytree import replaced
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.described import word_of_function
from jaxacct.filters.given_laws import completed
from jaxacct.filters.guarantees import ProfileGuarantee, raised
from jaxacct.filters.marks import row_of
from jaxacct.filters.printing import number
from jaxacct.filters.residues.on_grid import on_grid
from jaxacct.filters.states import BaseFilter, filter_class
from jaxacct.losses.curves.conversions import grid_of_pld, pld_excess
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import RELATIONS, first_side

_TOLERANCE = 1e-10
_STATEMENT = (
    "The whole interaction of at most {rounds} queries is within the budget family's curve at the first parameter, "
    "plus {slack:g}, in every direction that curve is for, if each query is dominated by the law it was charged as, "
    "given all earlier outputs, and every refusal was obeyed: each update was certified to be a residue, "
    "U(B, L) * L <= B, before it was taken (residue filters, arXiv 2602.15815, Algorithm 1 and Theorem 1)."
)


class ResidueCheck(NamedTuple):
    """Whether after * query <= before for certain, and the most by which the left side exceeds the right one."""

    holds: Array
    excess: Array


class ResidueFilterState(NamedTuple):
    """The budget's parameter, how many queries ran, and the filter's mark."""

    parameter: PyTree
    rounds: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"ResidueFilterState(parameter={number(self.parameter)} after {number(self.rounds)} queries)"


@in_float64
def check_residue(before: PLD, after: PLD, query: PLD, *, tolerance: float = _TOLERANCE) -> ResidueCheck:
    """The residue condition of Theorem 1, certified: both sides are piecewise linear with nodes on one lattice.

    Budgets are taken at their word (the law that the arrays state), the query as the upper bound it is; the
    composition's rounding is on the left side. Beyond the lattice's ends both are lines.

    Args:
        before: B, a `PLD`.
        after: U(B, L), a `PLD` of the same spacing.
        query: L, an upper `PLD` of the same spacing.
        tolerance: by how much the left side may exceed the right one; a filter has to count it.

    Raises:
        ValueError: spacings that do not agree, or a query that is no upper bound.
    """
    _validate.instance(PLD, before=before, after=after, query=query)
    _validate.scalar(_validate.finite, tolerance=tolerance)
    if query.bound != "upper":
        raise ValueError(f"query must be an upper PLD, got bound {query.bound!r}")
    left = replaced(after, bound="upper").compose(query)
    return _compare(left, replaced(before, bound="upper"), float(tolerance))


@hosted
def _compare(left: PLD, right: PLD, tolerance: float) -> ResidueCheck:
    one, other = grid_of_pld(left.grid), grid_of_pld(right.grid)
    lowest, highest = min(one.lowest, other.lowest), max(one.highest, other.highest)
    grid = LossGrid(left.grid.spacing, lowest, highest - lowest + 1)
    xp, high, low = floats(pld_excess(left, grid), pld_excess(right, grid, literal="lower"))
    # At gamma beyond the grid the left side is at most its value at the end; the right one is its atom at infinity,
    # which the last node already has. Below the grid both are lines through no excess at gamma = 0.
    worst = (high - low).max()
    sane = (xp.asarray(left.masses) >= 0).all() & (xp.asarray(right.masses) >= 0).all()
    return ResidueCheck(sane & (worst <= tolerance), worst)


@filter_class(ResidueFilterState, "residue", "parameter", "rounds")
class ResidueFilter(BaseFilter):
    """A budget family, an update, and a certificate for every step; make it with `residue`.

    A query is a mechanism or an upper curve; a `PLD` of the grid's spacing is taken as it is. It runs only if the
    update is certified to leave a residue. `remaining` is the parameter of the budget that is left, `spent` the first
    one less that, and `fraction` the share of the rounds that are over, which says nothing of the budget.

    Attributes:
        parameter: of the first budget, any pytree of arrays.
        curve: from a parameter to the budget's `PLD`, static.
        change: from (parameter, query's `PLD`) to the next parameter, static.
        rounds: the most queries, static.
        grid: of queries, static.
        relation: for mechanisms, static.
        tolerance: of one step, static.
    """

    parameter: PyTree
    curve: Callable[[PyTree], PLD] = dataclasses.field(metadata={"static": True, "written": False})
    change: Callable[[PyTree, PLD], PyTree] = dataclasses.field(metadata={"static": True, "written": False})
    rounds: int = dataclasses.field(metadata={"static": True})
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    relation: str = dataclasses.field(metadata={"static": True})
    tolerance: float = dataclasses.field(metadata={"static": True})

    @property
    @in_float64
    def guarantee(self) -> ProfileGuarantee:
        """The first budget's curve, and the tolerance of every step; a proven bound."""
        slack = self.rounds * self.tolerance
        profile = PrivacyProfile.from_pld(replaced(self.curve(self.init().parameter), bound="upper"))
        return ProfileGuarantee(raised(profile, slack), _STATEMENT.format(rounds=self.rounds, slack=slack))

    def _fresh(self) -> ResidueFilterState:
        """The first parameter, in float32 as programs of either precision keep it."""
        return ResidueFilterState(*on_device((self._first(), np.zeros((), np.int32))))

    def _first(self) -> PyTree:
        return jax.tree.map(lambda x: array_module(x).asarray(x, np.float32), self.parameter)

    def _identity(self) -> list[Array]:
        # The family by what it computes. Another update makes no other filter: each step of it is certified.
        first = self._first()
        return [np.array([word_of_function(self.curve, first)], np.uint32), *map(row_of, jax.tree.leaves(first))]

    @in_float64
    def prepare(self, query: object) -> PLD:
        """The query's upper law on this filter's grid."""
        return on_grid(query, self.grid, first_side(self.relation), symmetric=False)

    @in_float64
    def _after(self, query: object, state: ResidueFilterState) -> tuple[Array, ResidueFilterState]:
        law = query
        if not (isinstance(law, PLD) and law.grid.spacing == self.grid.spacing):
            law = self.prepare(query)
        amounts.check_covered(np.shape(state.rounds), np.shape(law.infinity_mass))
        law = completed(law)
        # What is checked is what is stored: the next parameter after rounding.
        left = self.change(state.parameter, law)
        _validate.real_arrays(update=left)
        state, law, left = on_host((state, law, left))
        after = jax.tree.map(lambda x: array_module(x).asarray(x, np.float32), left)
        if _validate.shapes(after) != _validate.shapes(state.parameter):
            raise ValueError(f"update must return a parameter like {state.parameter!r:.200}, got {left!r:.200}")
        before, first = self._budget(state.parameter), self._budget(on_host(self._first()))
        check = check_residue(before, self._budget(after), law, tolerance=self.tolerance)
        # Whatever the words say, no more is left than there was, and what is left is a law.
        within = _compare(before, first, self.rounds * self.tolerance)
        _, kept, beyond = floats(before.masses, before.infinity_mass)
        lawful = kept.sum() + beyond >= 1.0 - 1e-6
        _, masses, infinity = floats(law.masses, law.infinity_mass)
        sane = (masses >= 0).all() & (infinity >= 0)
        admitted = check.holds & within.holds & lawful & sane & (state.rounds >= 0) & (state.rounds < self.rounds)
        made = ResidueFilterState(after, state.rounds + 1)
        xp = array_module(admitted, made, state)
        return on_device((admitted, jax.tree.map(lambda new, old: xp.where(admitted, new, old), made, state)))

    def _budget(self, parameter: PyTree) -> PLD:
        """The curve at ``parameter``; of a known one by one program for all of its operations."""
        return on_host(jax.jit(self.curve)(parameter)) if at_hand(parameter) else self.curve(parameter)

    def _spent(self, state: ResidueFilterState) -> PyTree:
        """The first parameter less what is left of it, entry by entry."""
        return jax.tree.map(lambda a, b: a - b, on_device(self._first()), state.parameter)

    def _remaining(self, state: ResidueFilterState) -> PyTree:
        return state.parameter

    def _fraction(self, state: ResidueFilterState) -> Array:
        """The share of the rounds that are over, which says nothing of the budget."""
        return state.rounds / np.float32(self.rounds)


def residue(
    family: Callable[[PyTree], PLD],
    update: Callable[[PyTree, PLD], PyTree],
    parameter: PyTree,
    *,
    rounds: int,
    grid: LossGrid,
    relation: str = "add_or_remove",
    tolerance: float = _TOLERANCE,
) -> ResidueFilter:
    """A filter from any budget family and any update (Algorithm 1), which checks each step and refuses unsound ones.

    Args:
        family: from a parameter (a pytree of float32) to the budget's `PLD`, of the grid's spacing and by operations
            that jit. Budgets are exactly these laws, so one that is meant as G_mu should be an upper law of it.
        update: from (parameter, query's `PLD`) to the parameter that is to be left. A step that is not certainly a
            residue is refused, so it should round to its own safe side.
        parameter: of the first budget.
        rounds: the most queries; each adds ``tolerance`` to the guarantee.
        grid: for queries that are mechanisms.
        relation: for mechanisms.
        tolerance: see `check_residue`.

    Raises:
        ValueError: values out of range, or a family that gives no `PLD` of the grid's spacing.
    """
    _validate.function(family=family, update=update)
    _validate.whole(rounds=rounds)
    _validate.scalar(_validate.positive, tolerance=tolerance)
    _validate.instance(LossGrid, grid=grid)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.real_arrays(parameter=parameter)
    if _validate.is_traced(parameter):
        raise ValueError("parameter must be concrete, got a traced one")
    # A copy: whoever writes into the array later changes no budget.
    parameter = jax.tree.map(np.array, on_host(parameter))
    made = ResidueFilter(parameter, family, update, int(rounds), grid, relation, float(tolerance))
    with jax.enable_x64(True):
        first = jax.eval_shape(functools.partial(family), made.init().parameter)
    if not isinstance(first, PLD) or first.grid.spacing != grid.spacing:
        raise ValueError(f"family must give a PLD of spacing {grid.spacing}, got {type(first).__name__}")
    return made
