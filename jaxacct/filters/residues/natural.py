"""The natural filter: composes what ran as if it had been fixed in advance, and says what that guarantees."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import at_hand, not_negative, on_device
from jaxacct._numerics.pieces import split_up
from jaxacct._numerics.pytree import replaced
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.guarantees import ProfileGuarantee, raised
from jaxacct.filters.residues.undeclared import UndeclaredNaturalFilter
from jaxacct.filters.states import BaseFilter, filter_class
from jaxacct.games.compositions import Compositions
from jaxacct.games.experiment import Query
from jaxacct.games.freeness import is_free
from jaxacct.games.natural_cost import TOLERANCE, natural_filter_cost
from jaxacct.games.within_budget import Budget
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import RELATIONS, first_side

_MOST_STATES = 200_000
_FREE = (
    "The whole interaction is within the budget's curve, plus {slack:g}, if each query is the declared family's member "
    "it was charged as, given all earlier outputs, and every refusal was obeyed: the natural filter is free for this "
    "family and budget ({reason}; residue filters, arXiv 2602.15815, Theorems 6 to 8, and Tran, Koskela, Räisä, "
    "Honkela, f-Differential Privacy Filters, Theorem 3.6)."
)
_NOT_FREE = (
    "The whole interaction has this profile, NOT the budget's: the natural filter is not known to be free for this "
    "family and budget ({reason}). The curve is the exact cost of the analyst who does most under this filter, rounded "
    "up (residue filters, arXiv 2602.15815, Theorem 6), if each query is the member it was charged as, given all "
    "earlier outputs, and every refusal was obeyed."
)


class NaturalState(NamedTuple):
    """How often each member of the family ran, int32[members]; the filter's mark."""

    counts: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        counts = np.asarray(self.counts).tolist() if at_hand(self.counts) else self.counts
        return f"NaturalState(runs of each member: {counts})"


@dataclasses.dataclass(frozen=True, eq=False)
class _Declared:
    """What the analyst may play: compared by identity, so that it is a static part of the filter."""

    budget: Query
    family: tuple[Query, ...]
    rounds: int
    relation: str
    grid: LossGrid | None


@filter_class(NaturalState, "natural", "members", "rounds")
class NaturalFilter(BaseFilter):
    """Exact composition of a declared family's members against a budget; see `natural`.

    A query is the index of a member of the family (may be traced), or the member: that very object, or one of the same
    kind with the same numbers; another object raises ValueError. `spent` counts queries, int32; `remaining` says which
    members may still run, bool[members].

    Attributes:
        allowed: bool[rounds + 1, ...], an axis for each member: whether these counts are within the budget.
        declared: budget, family and rounds, static.
    """

    allowed: np.ndarray
    declared: _Declared = dataclasses.field(metadata={"static": True})

    @property
    def rounds(self) -> int:
        """The most queries."""
        return self.declared.rounds

    @property
    def members(self) -> int:
        """How many queries the family has."""
        return len(self.declared.family)

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The budget's curve if the filter is certainly free, else the exact worst case; computed once, on demand."""
        return _guarantee(self.declared)

    def _identity(self) -> list[Array]:
        return []  # what is allowed follows from what was declared

    def _fresh(self) -> NaturalState:
        return NaturalState(on_device(np.zeros(len(self.declared.family), np.int32)))

    def _after(self, query: object, state: NaturalState) -> tuple[Array, NaturalState]:
        return _play(self.allowed, self._index(query), state)

    def _covers(self, query: object) -> ArrayLike:
        return (np.arange(self.members) == self._index(query)).any()

    def _index(self, query: object) -> Any:
        if is_scalar_query(query):
            if np.ndim(query):
                raise ValueError(f"query must be one index, got an array of shape {np.shape(query)}")
            if _validate.is_traced(query):
                return not_negative(query)
            # Compared before it is an int32 or a float32 of a program: 2**32 is not 0, nor is 1 + 1e-12 a member.
            value, members = np.asarray(query), len(self.declared.family)
            return int(value) if 0 <= value < members and value == np.floor(value) else -1
        for index, member in enumerate(self.declared.family):
            if member is query or _same(member, query):
                return index
        raise ValueError(f"query must be a member of the declared family, or its index, got {type(query).__name__}")

    def _spent(self, state: NaturalState) -> Array:
        return jnp.sum(state.counts, dtype=jnp.int32)

    def _remaining(self, state: NaturalState) -> Array:
        members = jnp.arange(len(self.declared.family))
        return jax.vmap(lambda i: _play(self.allowed, i, state)[0])(members)

    def _fraction(self, state: NaturalState) -> Array:
        """The share of the rounds that are over."""
        return self._spent(state) / np.float32(self.declared.rounds)


def _same(one: object, other: object) -> bool:
    """Whether two mechanisms or curves are of one kind and have the same, concrete numbers."""
    if _validate.is_traced((one, other)) or jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


@jax.jit
def _play(allowed: Array, index: Array, state: NaturalState) -> tuple[Array, NaturalState]:
    allowed, index = jnp.asarray(allowed), jnp.asarray(index)
    # An index that is no whole number, NaN among them, matches no member.
    hit = jnp.arange(state.counts.shape[0]) == index
    counts = state.counts + hit.astype(jnp.int32)
    inside = jnp.all((state.counts >= 0) & (counts < allowed.shape[0])) & jnp.any(hit)
    place = tuple(jnp.minimum(counts, allowed.shape[0] - 1))
    admitted = inside & allowed[place]
    return admitted, NaturalState(jnp.where(admitted, counts, state.counts))


@functools.lru_cache(maxsize=16)
def _guarantee(declared: _Declared) -> ProfileGuarantee:
    how = {"relation": declared.relation, "grid": declared.grid}
    free = is_free(declared.budget, declared.family, declared.rounds, **how)
    if free:
        curve = _budget_curve(declared)
        return ProfileGuarantee(raised(curve, free.slack), _FREE.format(slack=free.slack, reason=free.reason))
    cost = natural_filter_cost(declared.budget, declared.family, declared.rounds, **how)
    return ProfileGuarantee(cost.profile(), _NOT_FREE.format(reason=free.reason))


def _budget_curve(declared: _Declared) -> PrivacyProfile:
    budget, grid = declared.budget, declared.grid
    if isinstance(budget, PrivacyProfile):
        return budget
    if isinstance(budget, PLD):
        return PrivacyProfile.from_pld(replaced(budget, bound="upper"))
    if isinstance(budget, TradeOff):
        made = Compositions(declared.family, declared.rounds, declared.relation, grid)
        return replaced(budget, bound="lower").profile(made.grid if grid is None else grid)
    return PrivacyProfile.from_mechanism(budget, "upper", relation=declared.relation, grid=grid)


def natural(
    budget: Query,
    family: Sequence[Query] | None = None,
    rounds: int | None = None,
    *,
    relation: str = "add_or_remove",
    grid: LossGrid | None = None,
) -> NaturalFilter | UndeclaredNaturalFilter:
    """The natural filter (Algorithm 2 of the residue paper, Definition 3.1 of the f-DP filter paper).

    With a declared family of queries and a number of rounds, its ``guarantee`` is the budget's curve if the filter
    passes the freeness test of `jaxacct.adversary.is_free`, and else the exact worst case, which is more than the
    budget. Without them it runs, and has no guarantee: asking for one raises.

    Args:
        budget: a mechanism, PLD or curve; the filter's budget is its curve.
        family: the queries that may be asked, mechanisms or curves of one setting each.
        rounds: the most queries.
        relation: for mechanisms.
        grid: lattice for what is not finite; without a family needed, of the composed law, with loss 0 inside.

    Raises:
        ValueError: a family without rounds, too many states, no grid where one is needed, or curves that do not match.
    """
    _validate.one_of(RELATIONS, relation=relation)
    _validate.instance(LossGrid | None, grid=grid)
    if rounds is not None:
        _validate.whole(rounds=rounds)
    if not isinstance(family, Sequence | None) or isinstance(family, str | bytes):
        raise ValueError(f"family must be a sequence of queries, got {family!r:.200}")
    if family is None:
        if grid is None or not grid.lowest < 0 < grid.highest:
            raise ValueError(f"grid must hold losses on either side of 0 where no family is declared, got {grid}")
        with jax.enable_x64(True):
            one = first_side(relation)
            line = np.asarray(families.enclose(budget, grid, one).line)
            # Pieces are rounded up, by far less than what is taken off.
            room = on_device(split_up(np.maximum(line - 2.0**-44 * line, 0.0)))
        return UndeclaredNaturalFilter(room, grid, relation, rounds)
    if rounds is None:
        raise ValueError("rounds must be given with a family, got None")
    # Copies: whoever writes into an array later declares nothing else.
    budget, members = jax.tree.map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, (budget, tuple(family)))
    most = int(rounds)
    states = (most + 1) ** len(members)
    if states > _MOST_STATES:
        raise ValueError(f"rounds must give at most {_MOST_STATES} counts of {len(members)} members, got {states}")
    tests = Budget(budget, Compositions(members, most, relation, grid), TOLERANCE)
    allowed = np.zeros((most + 1,) * len(members), bool)
    for counts in itertools.product(range(most + 1), repeat=len(members)):
        # What is not within the budget is not so with one more query either.
        before = [tuple(n - (i == j) for j, n in enumerate(counts)) for i, n in enumerate(counts) if n]
        if sum(counts) <= most and all(allowed[c] for c in before):
            allowed[counts] = tests.test(counts).certain
    return NaturalFilter(allowed, _Declared(budget, members, most, relation, grid))
