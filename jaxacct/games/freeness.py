"""When the natural filter keeps its budget (is "free"): compositions totally ordered, or exact cost within budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import combinations, islice, pairwise
from typing import NamedTuple

import numpy as np

from jaxacct import _validate
from jaxacct.games.compositions import Compositions, multisets_up_to
from jaxacct.games.experiment import Query
from jaxacct.games.natural_cost import TOLERANCE, cost_of
from jaxacct.games.rules import check_rounds
from jaxacct.games.within_budget import Budget
from jaxacct.losses.compare.order import NO, UNDECIDED, WORDS, YES
from jaxacct.losses.grids.grid import LossGrid

_MOST_PRODUCTS = 2000
SLACK = 1e-9
"""By how much a cost may exceed its budget and still count as free: what a tie may hide."""


@dataclasses.dataclass(frozen=True)
class Certified:
    """An answer that is certain or none: ``verdict`` is 1 yes, 0 undecided, -1 no; true only if it is a certain yes."""

    verdict: int

    @property
    def word(self) -> str:
        """The verdict as a word: "yes", "no" or "undecided"."""
        return WORDS[self.verdict]

    def __bool__(self) -> bool:
        return self.verdict == YES


@dataclasses.dataclass(frozen=True)
class Closure(Certified):
    """Whether all products of up to rounds - 1 members are totally ordered.

    Attributes:
        pair: counts of two products that are certainly not ordered (or may not be), None for a yes.
        epsilon: where the first of them certainly exceeds the second, and the other way round, else NaN.
        reason: in words.
        slack: a yes means that neighbours are ordered up to this much.
    """

    pair: tuple[tuple[int, ...], tuple[int, ...]] | None
    epsilon: tuple[float, float]
    reason: str
    slack: float


@dataclasses.dataclass(frozen=True)
class Freeness(Certified):
    """Whether a natural filter keeps its budget; a yes means that it is free.

    Attributes:
        reason: in words.
        excess: the cost certainly exceeds the budget by this much (0 unless the verdict is -1).
        epsilon: where.
        slack: a yes means cost <= budget + slack at every epsilon.
    """

    reason: str
    excess: float
    epsilon: float
    slack: float


def totally_ordered_closure(
    family: Sequence[Query],
    rounds: int,
    *,
    relation: str = "add_or_remove",
    grid: LossGrid | None = None,
    tolerance: float = TOLERANCE,
) -> Closure:
    """Whether the products of at most ``rounds - 1`` members form a chain: the natural filter is then free.

    For finite families this is Q^(<T) of Theorem 8 of the residue paper, and the closure of Definition 3.5 of the
    paper on f-DP filters taken rounds - 2 times (Theorem 3.6): decreasing sequences in a finite family are constant in
    the end. Families of Gaussians, of (0, delta)-DP queries and of a single member are chains in closed form.

    Args:
        family: mechanisms, PLDs or curves.
        rounds: T, at least 1.
        relation: for mechanisms; both directions must be chains in the same order.
        grid: lattice for members that are not finite.
        tolerance: a yes means that neighbours are ordered up to this much at every epsilon.

    Raises:
        ValueError: an empty family, more than 2,000 products.
    """
    rounds = check_rounds(rounds)
    _validate.scalar(_validate.nonnegative, tolerance=tolerance)
    return closure_of(Compositions(family, rounds, relation, grid), rounds - 1, tolerance)


def closure_of(compositions: Compositions, most: int, tolerance: float) -> Closure:
    """:func:`totally_ordered_closure` of compositions that are at hand."""
    nowhere = (float("nan"), float("nan"))
    known = known_chain(compositions)
    if known or most == 0:
        return Closure(YES, None, nowhere, known or "one round: nothing to choose", 0.0)
    every = list(islice(multisets_up_to(len(compositions.family), most), _MOST_PRODUCTS + 1))
    if len(every) > _MOST_PRODUCTS:
        raise ValueError(f"rounds must give at most {_MOST_PRODUCTS} products of {len(compositions.family)} members")
    every = every[1:]  # perfect privacy is below everything
    sides, ranks = range(compositions.sides), _ranks(every, compositions)
    # Of neighbours the first is to be the smaller in every direction.
    slacks = ((pair, max(_differences(*pair, compositions, side).slack for side in sides)) for pair in pairwise(ranks))
    doubtful = next((pair for pair, slack in slacks if slack > tolerance), None)
    if doubtful is None:
        return Closure(YES, None, nowhere, "every two products are ordered", tolerance * len(every))
    for one, other in combinations(ranks, 2):
        for side in sides:
            up, down = (_differences(*x, compositions, side) for x in ((one, other), (other, one)))
            if up.certain > 0 and down.certain > 0:
                reason = f"products {one} and {other} are not ordered"
                return Closure(NO, (one, other), (up.epsilon, down.epsilon), reason, 0.0)
    return Closure(UNDECIDED, doubtful, nowhere, "products are too close to order them", 0.0)


class _Difference(NamedTuple):
    """Of E_one - E_other: certainly reached somewhere (``certain``, at ``epsilon``), and certainly not exceeded."""

    certain: float
    epsilon: float
    slack: float


def _differences(one: tuple[int, ...], other: tuple[int, ...], compositions: Compositions, side: int) -> _Difference:
    # E_one is convex and falls, and E_other a line between its losses: there the difference is largest.
    points = compositions.points([one, other], side)
    (low, high), (other_low, other_high) = (compositions.excess(n, side, points) for n in (one, other))
    certain = low - other_high
    best = int(np.argmax(certain))
    return _Difference(float(certain[best]), float(points[best]), float(np.max(high - other_low)))


def _ranks(every: list[tuple[int, ...]], compositions: Compositions) -> list[tuple[int, ...]]:
    """Sorted by a number that grows with the Blackwell order: a sum of excesses at common orders."""
    losses = compositions.grid.losses
    points = losses[:: max(1, losses.size // 256)]
    keys = [np.sum(compositions.excess(n, 0, points)) for n in every]
    return [every[i] for i in np.argsort(np.asarray(keys), kind="stable")]


def known_chain(compositions: Compositions) -> str | None:
    """Why all products are ordered, where that is known in closed form; else None."""
    if len(compositions.family) == 1:
        return "powers of one query: each is a further run of the one before"
    if None not in compositions.mus:
        return "Gaussian queries: products are Gaussian, ordered by mu (Corollary 5)"
    if compositions.experiments is not None:
        every = [one for side in compositions.experiments for one in side]
        if all(np.all(one.finite == 0.0) and one.infinite == one.singular for one in every):
            return "(0, delta)-DP queries: products are (0, delta)-DP, ordered by delta (Corollary 6)"
    return None


def is_free(
    budget: Query,
    family: Sequence[Query],
    rounds: int,
    *,
    relation: str = "add_or_remove",
    grid: LossGrid | None = None,
    tolerance: float = TOLERANCE,
) -> Freeness:
    """Whether the natural filter with this budget, these queries and ``rounds`` rounds keeps its budget.

    First by Theorem 8 (a totally ordered closure is free for every budget), else by the exact cost of Theorem 6: the
    filter is free iff the cost is dominated by the budget. Where the budget is finite, its own losses are the only
    epsilons to look at (the cost is convex and falls); otherwise all of a lattice is.

    Args:
        budget: a mechanism, PLD or curve.
        family: the queries.
        rounds: the most queries.
        relation: for mechanisms.
        grid: lattice for what is not finite.
        tolerance: see :func:`natural_filter_cost`.

    Raises:
        ValueError: see :func:`natural_filter_cost`.
    """
    rounds = check_rounds(rounds)
    _validate.scalar(_validate.nonnegative, tolerance=tolerance)
    compositions = Compositions(family, rounds, relation, grid)
    try:
        chain = closure_of(compositions, rounds - 1, tolerance)
    except ValueError:  # too many products to compare: the cost alone decides
        chain = None
    if chain is not None and chain.verdict == YES:
        slack = chain.slack * rounds + tolerance
        return Freeness(YES, f"chain: {chain.reason}", 0.0, float("nan"), slack)
    tests = Budget(budget, compositions, float(tolerance))
    cost = cost_of(tests)
    worst, epsilon, slack = 0.0, float("nan"), 0.0
    for side in range(tests.sides):
        own = tests.experiment(side)
        points = compositions.grid.losses if own is None else own.finite
        low, high = cost.directions[min(side, len(cost.directions) - 1)].excess(points)
        room_low, room_high = tests.bounds(points, side)
        certain = low - room_high
        if certain.size and certain.max() > max(worst, SLACK):
            worst, epsilon = float(certain.max()), float(points[np.argmax(certain)])
        if own is None:
            # Between lattice points only lines that lie below the budget say anything.
            room_low = np.asarray(tests.enclosed(side).line)
        slack = max(slack, float(np.max(high - room_low, initial=0.0)))
    if worst > 0:
        return Freeness(NO, "the exact cost exceeds the budget", worst, epsilon, 0.0)
    if slack <= SLACK:
        return Freeness(YES, "the exact cost is within the budget", 0.0, float("nan"), slack)
    return Freeness(UNDECIDED, "the bounds of the cost do not decide it", 0.0, float("nan"), slack)
