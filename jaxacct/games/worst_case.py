"""`worst_case`: the exact worst case of an adaptive analyst under a rule.

States of a round are valued from the last round to the first (Lemma 1 of the residue paper), by :mod:`.runs`:

    E_n(gamma) = max over allowed q of  E_q(gamma) + sum over losses l of P_q(l) E_next(gamma e^-l),   or 0 to stop.

The upper values are the worst case of dominating laws, so they dominate (Lemma 1 and Proposition 2). The lower ones are
attained: an analyst may forget all of an outcome but the dominated law's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated
from jaxacct.accounting.batch import Bounds
from jaxacct.games.enclosure import Enclosure
from jaxacct.games.experiment import whole_curve
from jaxacct.games.lattice_laws import lattice_for, laws_of
from jaxacct.games.rules import Game, Rule, unroll
from jaxacct.games.runs import Runs, both_sides
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import RELATIONS

_ROWS = 8  # curves at once: what is computed of them stays in a processor's cache


class Value(Protocol):
    """What the worst analyst gets in one direction."""

    def excess(self, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of H - (1 - gamma)_+ at epsilons (n,)."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class WorstCase:
    """The privacy profile of the worst analyst that obeys a rule, enclosed.

    Attributes:
        rule: the rule.
        game: the rule, unrolled.
        grid: the lattice.
        directions: the worst case in each direction; the larger one counts at each epsilon.
    """

    rule: Rule
    game: Game
    grid: LossGrid
    directions: Sequence[Value]

    def hockey_stick(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of delta(epsilon) = sup over analysts of H(e^epsilon); shape of ``epsilon``.

        No one analyst attains it at all epsilons.
        """
        _validate.finite(epsilon=epsilon)
        at = np.asarray(epsilon, np.float64)
        sides = zip(*(one.excess(at.reshape(-1)) for one in self.directions), strict=True)
        return whole_curve(at, *(np.maximum.reduce(side).reshape(at.shape) for side in sides))

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The upper bound as a curve: a guarantee at every epsilon; on ``grid``, or the lattice without it."""
        grid = self.grid if grid is None else grid
        highest = np.maximum.reduce([one.excess(grid.losses)[1] for one in self.directions])
        return unchecked(PrivacyProfile, excess=highest, grid=grid, bound="upper")


def worst_case(rule: Rule, rounds: int, *, relation: str = "add_or_remove", grid: LossGrid | None = None) -> WorstCase:
    """The least curve that dominates every adaptive analyst under ``rule``, from above and from below.

    Lemma 1 of the residue paper, PLD(R) = sup over allowed L of L * PLD(R after L), on a lattice: a batch over all
    states of a round, two rounds in memory. Queries, truncation and rounding are bounded on either side; where finite
    queries' losses are multiples of the spacing the two agree up to rounding at lattice points.

    Args:
        rule: see :mod:`jaxacct.games.rules`.
        rounds: the most queries that are played, >= 1.
        relation: for mechanisms; under ``"add_or_remove"`` the worse of both directions, each played for itself.
        grid: lattice with loss 0 inside; without it about 4,096 points, on the queries' losses if it can.

    Raises:
        ValueError: no query, curves whose lattices do not match, a query with a batch of settings.
    """
    _validate.one_of(RELATIONS, relation=relation)
    _validate.instance(LossGrid | None, grid=grid)
    game = unroll(rule, rounds)
    grid = lattice_for(rule.queries, rounds, relation) if grid is None else grid
    sides = both_sides([laws_of(query, grid, relation) for query in rule.queries], grid)
    return WorstCase(rule, game, grid, [solve(game, runs) for runs in sides])


class _Round(NamedTuple):
    """Of every state before a round: its excesses ``(states, grid.size)``, and how likely a loss becomes infinite."""

    values: np.ndarray
    infinite: np.ndarray

    @classmethod
    def over(cls, states: int, grid: LossGrid) -> _Round:
        """The round in which nothing is played any more."""
        return cls(np.zeros((states, grid.size)), np.zeros(states))


def solve(game: Game, sides: tuple[Runs, Runs]) -> Enclosure:
    """The value of the first state; ``sides`` are runs from above and from below."""
    grid = sides[0].grid
    upper = lower = _Round.over(len(game.states[-1]), grid)
    for after, certain in zip(reversed(game.after), reversed(game.certain), strict=True):
        upper = _earlier(upper, after, sides[0])
        lower = _earlier(lower, np.where(certain, after, -1), sides[1])
    profile = unchecked(PrivacyProfile, excess=upper.values[0], grid=grid, bound="upper")
    return Enclosure(profile, lower.values[0], grid)


def _earlier(later: _Round, moves: np.ndarray, runs: Runs) -> _Round:
    """The most that an analyst gets out of every state one round earlier.

    ``moves`` has the index of the later state, -1 where a query is not allowed.
    """
    found = _Round.over(len(moves), runs.grid)
    for start in range(0, len(later.values), _ROWS):
        values, infinite = (x[start : start + _ROWS] for x in later)
        rest = runs.before(values, infinite)
        for query, law in enumerate(runs.laws):
            rows = np.flatnonzero((moves[:, query] >= start) & (moves[:, query] < start + _ROWS))
            if not rows.size:
                continue
            to = moves[rows, query] - start
            ever = deflated(law.infinite + law.masses.sum() * infinite, 2 * runs.grid.size * EPS)
            found.infinite[rows] = np.maximum(found.infinite[rows], ever[to])
            found.values[rows] = np.maximum(found.values[rows], runs.after(query, rest)[to])
    return found
