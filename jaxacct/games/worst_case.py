"""`worst_case`: the exact worst case of an adaptive analyst under a rule."""

from __future__ import annotations

import dataclasses

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated
from jaxacct.accounting.batch import Bounds
from jaxacct.games.lattice_laws import lattice_for, lattice_index, laws_of
from jaxacct.games.rules import Game, Rule, unroll
from jaxacct.games.runs import both_sides
from jaxacct.games.strategy import Strategy
from jaxacct.games.worst_case_tables import Tables, solve
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import RELATIONS


@dataclasses.dataclass(frozen=True, eq=False)
class WorstCase:
    """The privacy profile of the worst analyst that obeys a rule, enclosed.

    Attributes:
        rule: the rule.
        game: the rule, unrolled.
        grid: the lattice.
        directions: tables of each direction; the worst case is the larger one at each epsilon.
    """

    rule: Rule
    game: Game
    grid: LossGrid
    directions: list[Tables]

    @property
    def profile(self) -> PrivacyProfile:
        """The upper bound as a curve: a guarantee at every epsilon."""
        highest = np.maximum.reduce([t.upper for t in self.directions])
        return unchecked(PrivacyProfile, excess=highest, grid=self.grid, bound="upper")

    def hockey_stick(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of delta(epsilon) = sup over analysts of H(e^epsilon); shape of ``epsilon``.

        No one analyst attains it at all epsilons; see :meth:`strategy`.
        """
        _validate.finite(epsilon=epsilon)
        upper = np.asarray(self.profile.hockey_stick(epsilon))
        each = [lower_at(t.lower, t.upper, self.grid, np.asarray(epsilon, np.float64)) for t in self.directions]
        lower = np.minimum(np.maximum.reduce(each), upper)
        return Bounds(lower[()], upper[()])

    def excess(self, epsilon: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of one direction's H - (1 - gamma)_+ at epsilons (n,), on the lattice or not."""
        tables = self.directions[min(side, len(self.directions) - 1)]
        perfect = -np.expm1(np.minimum(epsilon, 0.0))
        curve = unchecked(PrivacyProfile, excess=tables.upper, grid=self.grid, bound="upper")
        lower = lower_at(tables.lower, tables.upper, self.grid, epsilon)
        return np.maximum(lower - perfect - 4 * EPS, 0.0), np.asarray(curve.hockey_stick(epsilon)) - perfect + 4 * EPS

    def strategy(self, epsilon: float) -> Strategy:
        """The analyst that attains the lower bound at the lattice point next to ``epsilon``.

        Raises:
            ValueError: the choices were not recorded, or an epsilon outside the lattice.
        """
        _validate.finite(epsilon=epsilon)
        point = int(lattice_index(self.grid, epsilon))
        best = max(self.directions, key=lambda t: t.lower[point])
        if self.game.rounds and not best.choices:
            raise ValueError("choices must be recorded for a strategy: worst_case(..., record=True)")
        return Strategy(self.game, self.grid, best.choices, point, self.directions.index(best))


def worst_case(
    rule: Rule, rounds: int, *, relation: str = "add_or_remove", grid: LossGrid | None = None, record: bool = True
) -> WorstCase:
    """The least curve that dominates every adaptive analyst under ``rule``, from above and from below.

    Lemma 1 of the residue paper, PLD(R) = sup over allowed L of L * PLD(R after L), on a lattice: a batch over all
    states of a round, a scan over rounds, two rounds in memory. Queries, truncation and rounding are bounded on either
    side; where finite queries' losses are multiples of the spacing the two agree up to rounding at lattice points.

    Args:
        rule: see :mod:`jaxacct.games.rules`.
        rounds: the most queries that are played, >= 1.
        relation: for mechanisms; under ``"add_or_remove"`` the worse of both directions, each played for itself.
        grid: lattice with loss 0 inside; without it about 4,096 points, on the queries' losses if it can.
        record: keep the choices, a byte per state, round and point.

    Raises:
        ValueError: no query, curves whose lattices do not match, a query with a batch of settings.
    """
    _validate.one_of(RELATIONS, relation=relation)
    _validate.instance(LossGrid | None, grid=grid)
    _validate.truth(record=record)
    game = unroll(rule, rounds)
    grid = lattice_for(rule.queries, rounds, relation) if grid is None else grid
    sides = both_sides([laws_of(query, grid, relation) for query in rule.queries], grid)
    found = [solve(game, runs, record=bool(record)) for runs in sides]
    return WorstCase(rule, game, grid, found)


def lower_at(lower: np.ndarray, upper: np.ndarray, grid: LossGrid, epsilon: np.ndarray) -> np.ndarray:
    """A lower bound of H between lattice points, from a convex curve's bounds at them.

    Beside gamma = 1 the excess E is convex in gamma, increasing before and decreasing after. So it lies above
    a chord extended from the cell before, from the upper bound at its far end through the lower one at the near end.
    """
    position = epsilon / grid.spacing - grid.lowest
    cell = np.clip(np.floor(position), 0, grid.size - 2).astype(np.int64)
    gamma, zero = np.exp(np.clip(epsilon, -745.0, 700.0)), -grid.lowest
    nodes = np.exp(grid.losses)
    flat = np.where(cell >= zero, lower[cell + 1], lower[cell])

    def extended(near: np.ndarray, far: np.ndarray) -> np.ndarray:
        far = np.where(far == near, np.maximum(near - 1, 0) + 2 * (near == 0), far)  # masked below; never itself
        steps = (gamma - nodes[near]) / (nodes[near] - nodes[far])
        value = lower[near] + steps * (lower[near] - upper[far])
        return value - 32 * EPS * (1.0 + np.abs(epsilon)) / grid.spacing * (lower[near] + upper[far])

    same_left = (cell >= 1) & (cell != zero)
    same_right = (cell + 2 < grid.size) & (cell + 1 != zero)
    left = np.where(same_left, extended(cell, np.maximum(cell - 1, 0)), 0.0)
    right = np.where(same_right, extended(cell + 1, np.minimum(cell + 2, grid.size - 1)), 0.0)
    value = np.maximum(np.maximum(flat, left), right)
    # A lattice point itself, as far as a double can tell: E moves by at most gamma |d epsilon|.
    nearest = np.clip(np.rint(position), 0, grid.size - 1).astype(np.int64)
    off = np.abs(epsilon - grid.losses[nearest])
    known = lower[nearest] - (off + 4 * EPS * np.abs(epsilon)) * np.minimum(gamma, 1.0) * 2.0
    value = np.maximum(value, np.where(off < 1e-12, known, 0.0))
    # Outside the lattice nothing is claimed but perfect privacy.
    value = np.where((position < 0) | (position > grid.size - 1 + 1e-9), 0.0, np.maximum(value, 0.0))
    return np.clip(value - deflated(np.expm1(np.minimum(epsilon, 0.0)), 4 * EPS), 0.0, 1.0)
