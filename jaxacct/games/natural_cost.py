"""`natural_filter_cost`: the privacy that a natural filter really guarantees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import unchecked
from jaxacct.accounting.batch import Bounds
from jaxacct.games import off_lattice
from jaxacct.games.compositions import Compositions
from jaxacct.games.experiment import Query, whole_curve
from jaxacct.games.rules import Game, Rule, check_rounds, unroll
from jaxacct.games.within_budget import Budget
from jaxacct.games.worst_case import WorstCase
from jaxacct.games.worst_case_tables import solve
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid

TOLERANCE = 1e-12
"""By how much a composition may exceed the budget and still count as within it."""
_CELLS = 20_000_000  # nodes times epsilons at once


@dataclasses.dataclass(frozen=True, eq=False)
class NaturalFilterCost:
    """The exact privacy profile of the natural filter's worst analyst (Theorem 6), enclosed.

    Attributes:
        rule: the filter as a rule; its state is how often each member was played.
        game: the rule, unrolled.
        undecided: how many compositions may or may not be within the budget. Upper bounds accept them, lower bounds
            refuse them.
        table: the lattice's tables, or None where the members are finite and values come without a lattice.
    """

    rule: Rule
    game: Game
    undecided: int
    table: WorstCase | None
    compositions: Compositions
    trees: list[off_lattice.Tree]

    def hockey_stick(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of the cost, delta(epsilon) = sup over analysts of H(e^epsilon); shape of ``epsilon``."""
        _validate.finite(epsilon=epsilon)
        if self.table is not None:
            return self.table.hockey_stick(epsilon)
        at = np.asarray(epsilon, np.float64)
        sides = [self.excess(at.reshape(-1), side) for side in range(len(self.trees))]
        return whole_curve(at, *(np.maximum.reduce(x).reshape(at.shape) for x in zip(*sides, strict=True)))

    def excess(self, epsilon: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of the cost of one direction over (1 - gamma)_+, at epsilons (n,)."""
        if self.table is not None:
            return self.table.excess(epsilon, side)
        tree = self.trees[min(side, len(self.trees) - 1)]
        most = max(s.size for s in tree.states)
        chunks = np.array_split(epsilon, max(1, -(-most * epsilon.size // _CELLS))) if epsilon.size else []
        lower, upper = (
            np.concatenate([*(off_lattice.values(self.game, tree, part, bound) for part in chunks), np.zeros(0)])
            for bound in ("lower", "upper")
        )
        return lower, upper

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The upper bound as a curve: the guarantee that the filter really gives."""
        if self.table is not None:
            return self.table.profile if grid is None else self.table.profile.on(grid)
        grid = self.compositions.grid if grid is None else grid
        found = [self.excess(grid.losses, side)[1] for side in range(len(self.trees))]
        return unchecked(PrivacyProfile, excess=np.maximum.reduce(found), grid=grid, bound="upper")


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
    seen = {state for states in game.states for state in states}
    undecided = sum(1 for counts in seen if not tests.test(counts).certain)
    if compositions.experiments is not None:
        trees = [tree for x in compositions.experiments if (tree := off_lattice.grow(game, x)) is not None]
        if len(trees) == compositions.sides:
            return NaturalFilterCost(rule, game, undecided, None, compositions, trees)
    found = [solve(game, runs) for runs in compositions.runs]
    return NaturalFilterCost(rule, game, undecided, WorstCase(rule, game, compositions.grid, found), compositions, [])
