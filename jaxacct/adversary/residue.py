"""Residues: what is left of a budget after a query, and the residue condition (Theorems 1 and 7, Remark 4)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxacct import _validate
from jaxacct.games.compositions import Compositions, multisets_up_to
from jaxacct.games.experiment import Query, excess, experiments_of, to_trade_off
from jaxacct.games.freeness import Certified
from jaxacct.games.natural_cost import TOLERANCE
from jaxacct.games.rules import check_rounds, one_more
from jaxacct.games.within_budget import Budget
from jaxacct.losses.compare.order import NO, UNDECIDED, YES
from jaxacct.losses.compare.suprema import supremum
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.renyi import renyi
from jaxacct.mechanisms import RenyiDP
from jaxacct.mechanisms.base import Mechanism

_MOST_PLANS = 20_000


@dataclasses.dataclass(frozen=True)
class ResidueCondition(Certified):
    """Whether U(B, L) * L <= B, for the U of Theorem 7; a yes up to 1e-9.

    Attributes:
        excess: H of U(B, L) * L certainly exceeds H of B by this much (0 unless the verdict is -1).
        epsilon: where.
    """

    excess: float
    epsilon: float


def natural_residue(
    budget: Query, query: int, family: Sequence[Query], rounds: int, *, relation: str = "add_or_remove"
) -> TradeOff | None:
    """U(B, L) = sup{L' : L * L' <= B, L' a product of at most rounds - 1 members}; None where L itself exceeds B.

    The update of Theorem 7: the natural filter is free for every budget exactly if U(B, L) * L <= B always.

    Args:
        budget: B, a mechanism, PLD or curve.
        query: the index of L in ``family``.
        family: finite members: mechanisms, PLDs or curves with few outcomes.
        rounds: T.
        relation: for mechanisms that have one direction for it.

    Raises:
        ValueError: members that are not finite, or with two directions.
    """
    compositions, plans = _plans(budget, query, family, rounds, relation)
    if not plans:
        return None
    return supremum([to_trade_off(compositions.exact(n, 0)) for n in plans])


def renyi_residue(budget: RenyiDP, query: Mechanism, *, relation: str = "add_or_remove") -> RenyiDP | None:
    """The Rényi budget left after ``query``: its epsilon less the query's divergence; None where that is more.

    Remark 4: divergences of one order add up under adaptive composition, so this update keeps the residue condition,
    and `jaxacct.filters.renyi`, which makes it at every step, is a residue filter.

    Args:
        budget: a scalar, concrete `RenyiDP`.
        query: a mechanism with a Rényi curve.
        relation: for the query's divergence, which is rounded up.

    Raises:
        ValueError: a budget of another kind, a batch of either, a query without a Rényi curve.
    """
    _validate.instance(RenyiDP, budget=budget)
    _validate.instance(Mechanism, query=query)
    left = np.asarray(budget.epsilon, np.float64) - np.asarray(renyi(query, budget.order, relation=relation))
    _validate.number(left=left)
    return RenyiDP(budget.order, float(left) * (1.0 - 2.0**-52)) if left >= 0 else None


def residue_condition(
    budget: Query, query: int, family: Sequence[Query], rounds: int, *, relation: str = "add_or_remove"
) -> ResidueCondition:
    """Whether U(B, L) * L <= B for a finite budget, see :func:`natural_residue` (condition (iii) of Theorem 7).

    Raises:
        ValueError: see :func:`natural_residue`, or a budget that is not finite.
    """
    found = experiments_of(budget, relation)
    if found is None or len(found) != 1:
        raise ValueError("budget must be finite, with one direction")
    compositions, plans = _plans(budget, query, family, rounds, relation)
    points = found[0].finite
    if not plans or not points.size:
        return ResidueCondition(YES, 0.0, float("nan"))
    low, high = compositions.followed(query, plans, 0, points)
    room_low, room_high = excess(found[0], points)
    best = int(np.argmax(low - room_high))
    certain = float((low - room_high)[best])
    if certain > 1e-9:
        return ResidueCondition(NO, certain, float(points[best]))
    return ResidueCondition(YES if np.all(high <= room_low + 1e-9) else UNDECIDED, 0.0, float("nan"))


def _plans(
    budget: Query, query: int, family: Sequence[Query], rounds: int, relation: str
) -> tuple[Compositions, list[tuple[int, ...]]]:
    rounds = check_rounds(rounds)
    compositions = Compositions(family, rounds, relation)
    if not compositions.finite or compositions.sides != 1:
        raise ValueError("family must have finite members with one direction each")
    members = compositions.family
    if math.comb(rounds - 1 + len(members), rounds - 1) > _MOST_PLANS:
        raise ValueError(f"rounds must give at most {_MOST_PLANS} products of the family, got {rounds}")
    if not isinstance(query, int | np.integer) or not 0 <= query < len(members):
        raise ValueError(f"query must be an index below {len(members)}, got {query!r:.200}")
    tests = Budget(budget, compositions, TOLERANCE)
    every = multisets_up_to(len(members), rounds - 1)
    return compositions, [counts for counts in every if tests.test(one_more(counts, int(query))).certain]
