"""Computes the worst case of every state of a rule on the grid, from the last round to the first (Lemma 1).

    E_n(gamma) = max over allowed q of  E_q(gamma) + sum over losses l of P_q(l) E_next(gamma e^-l),   or 0 to stop,

by :mod:`jaxacct.games.runs`. The upper table is the worst case of dominating laws, so it dominates (Lemma 1 and
Proposition 2). The lower table is what the recorded choices attain: an analyst may forget all of an outcome but the
dominated law's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.rules import Game
from jaxacct.games.runs import Runs
from jaxacct.losses.grids.grid import LossGrid

_ROWS = 256  # curves that are transformed at once


class Tables(NamedTuple):
    """The first round's values, and the choices of every round.

    Attributes:
        upper: shape ``(grid.size,)``.
        lower: shape ``(grid.size,)``.
        choices: per round, int8 of shape ``(states, grid.size)``, the move of the lower table, -1 to stop; or empty.
    """

    upper: np.ndarray
    lower: np.ndarray
    choices: list[np.ndarray]


class Round(NamedTuple):
    """Of every state before a round: its excesses ``(states, grid.size)``, and how likely a loss becomes infinite."""

    values: np.ndarray
    infinite: np.ndarray

    @classmethod
    def over(cls, states: int, grid: LossGrid) -> Round:
        """The round in which nothing is played any more."""
        return cls(np.zeros((states, grid.size)), np.zeros(states))


def earlier(later: Round, moves: np.ndarray, runs: Runs) -> tuple[Round, np.ndarray]:
    """The most that an analyst gets out of every state one round earlier, and the moves that do it, -1 to stop.

    ``moves`` has the index of the later state, -1 where a move is not allowed; those beyond the queries are to wait.
    """
    found = Round.over(len(moves), runs.grid)
    choice = np.full(found.values.shape, -1, np.int8)
    for start in range(0, len(later.values), _ROWS):
        values, infinite = (x[start : start + _ROWS] for x in later)
        rest = runs.before(values, infinite)
        for move in range(moves.shape[1]):
            rows = np.flatnonzero((moves[:, move] >= start) & (moves[:, move] < start + _ROWS))
            if not rows.size:
                continue
            played, ever = values, infinite
            if move < len(runs.laws):
                played, law = runs.after(move, rest), runs.laws[move]
                ever = deflated(law.infinite + law.masses.sum() * infinite, 2 * runs.grid.size * EPS)
            to = moves[rows, move] - start
            played, best = played[to], found.values[rows]
            found.infinite[rows] = np.maximum(found.infinite[rows], ever[to])
            if runs.upper:
                found.values[rows] = np.maximum(played, best)
                continue
            # A gain within rounding is none: choices would flicker where nothing is left to gain.
            gains = played > inflated(best, 1e-12) + 1e-15
            found.values[rows] = np.where(gains, played, best)
            choice[rows] = np.where(gains, np.int8(move), choice[rows])
    return found, choice


def solve(game: Game, sides: tuple[Runs, Runs], *, record: bool = True) -> Tables:
    """Upper and lower values of the first state; two rounds' tables are in memory.

    ``sides`` are runs from above and from below. With ``record`` the choices are kept: a byte for each state, round and
    point.
    """
    upper = lower = Round.over(len(game.states[-1]), sides[0].grid)
    choices: list[np.ndarray] = []
    for played in reversed(range(game.rounds)):
        after = game.after[played]
        upper, _ = earlier(upper, after, sides[0])
        lower, choice = earlier(lower, np.where(game.certain[played], after, -1), sides[1])
        if record:
            choices.insert(0, choice)
    return Tables(upper.values[0], lower.values[0], choices)
