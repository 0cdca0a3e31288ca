"""`natural_filter_cost`: the privacy that a natural filter really guarantees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxacct import _validate
from jaxacct.games import off_lattice
from jaxacct.games.compositions import Compositions
from jaxacct.games.experiment import Query
from jaxacct.games.rules import Rule, check_rounds, unroll
from jaxacct.games.within_budget import Budget
from jaxacct.games.worst_case import WorstCase, solve
from jaxacct.losses.grids.grid import LossGrid

TOLERANCE = 1e-12
"""By how much a composition may exceed the budget and still count as within it."""


@dataclasses.dataclass(frozen=True, eq=False)
class NaturalFilterCost(WorstCase):
    """The exact privacy profile of the natural filter's worst analyst (Theorem 6), enclosed.

    The rule is the filter; its state is how often each member was played. Where members are finite, values come without
    the lattice.

    Attributes:
        undecided: how many compositions may or may not be within the budget. Upper bounds accept them, lower bounds
            refuse them.
    """

    undecided: int


def natural_filter_cost(
    budget: Query,
    family: Sequence[Query],
    rounds: int,
    *,
    relation: str = "add_or_remove",
    tolerance: float = TOLERANCE,
    grid: LossGrid | None = None,
) -> NaturalFilterCost:
    """The cost of the natural filter: the least curve that dominates every analyst whom it lets through (Theorem 6).

    The filter composes the accepted queries' curves as if they had been fixed in advance and refuses what would exceed
    the budget. Unless compositions are totally ordered, analysts can get more than the budget out of it.

    Args:
        budget: a mechanism, PLD or curve; the filter's budget is its curve.
        family: the queries an analyst may play, likewise; each as often as the budget allows.
        rounds: the most queries.
        relation: for mechanisms. Under ``"add_or_remove"`` a query must be within the budget in both directions, and
            the cost is the worse of both.
        tolerance: a composition is within the budget if H <= H_budget + tolerance at every epsilon (mu <= mu_budget
            (1 + tolerance) for a Gaussian budget). Budgets are often met exactly, which floats cannot tell.
        grid: lattice for members that are not finite, and for budgets that are neither finite nor Gaussian.

    Raises:
        ValueError: an empty family, a negative tolerance, curves whose lattices do not match, a batch.
    """
    rounds = check_rounds(rounds)
    _validate.scalar(_validate.nonnegative, tolerance=tolerance)
    return cost_of(Budget(budget, Compositions(family, rounds, relation, grid), float(tolerance)))


def cost_of(tests: Budget) -> NaturalFilterCost:
    """:func:`natural_filter_cost` of a budget and a family that are at hand."""
    compositions = tests.compositions
    # Algorithm 2: a query runs if the composition of all that ran stays within the budget.
    rule = Rule.of_counts(compositions.family, lambda n: tests.test(n).possible, lambda n: tests.test(n).certain)
    game = unroll(rule, compositions.rounds)
    undecided = sum(not tests.test(counts).certain for counts in {state for states in game.states for state in states})
    trees = [off_lattice.grow(game, one) for one in compositions.experiments or []]
    values = [tree for tree in trees if tree is not None]
    if not values or len(values) < compositions.sides:
        values = [solve(game, runs) for runs in compositions.runs]
    return NaturalFilterCost(rule, game, compositions.grid, values, undecided)
