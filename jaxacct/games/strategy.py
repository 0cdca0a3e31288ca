"""`Strategy`: an analyst that attains the worst case at one epsilon; it chooses each query by the outcomes so far."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from jaxacct.games.rules import Game
from jaxacct.losses.grids.grid import LossGrid


class Interval(NamedTuple):
    """Play ``query`` (-1: stop) while the loss observed so far lies in [low, high].

    Attributes:
        low: of the losses so far, summed.
        high: see ``low``.
        query: index into the rule's queries, ``len(queries)`` to wait, -1 to stop.
    """

    low: float
    high: float
    query: int


@dataclasses.dataclass(frozen=True, eq=False)
class Strategy:
    """The analyst of a lower table: it aims at one epsilon and plays what the table chose at the epsilon that is left.

    The epsilon left after outcomes of loss l is ``epsilon - l``. Losses are those of the dominated laws on the lattice:
    after a query the analyst draws a lattice loss from its outcome (for losses on the lattice: takes it).

    Attributes:
        game: the unrolled rule.
        grid: the lattice.
        choices: per round, ``(states, grid.size)``.
        point: index of the epsilon aimed at.
        direction: index of the direction (0 remove, 1 add, where they differ).
    """

    game: Game
    grid: LossGrid
    choices: list[np.ndarray]
    point: int
    direction: int

    @property
    def epsilon(self) -> float:
        """The epsilon at which this analyst attains the lower bound."""
        return float(self.grid.losses[self.point])

    def query(self, played: int, state: Hashable, loss: float) -> int:
        """What to play before round ``played`` (from 0) in ``state`` after losses that sum up to ``loss``; -1: stop."""
        if played >= self.game.rounds or state not in self.game.states[played]:
            return -1
        left = self.point - round(loss / self.grid.spacing)
        if not 0 <= left < self.grid.size:
            return -1
        return int(self.choices[played][self.game.states[played].index(state), left])

    def intervals(self, played: int, state: Hashable) -> list[Interval]:
        """The choice before round ``played`` in ``state``, by intervals of the loss observed so far.

        Raises:
            ValueError: a state that the analyst cannot be in.
        """
        if played >= self.game.rounds or state not in self.game.states[played]:
            raise ValueError(f"state must be one before round {played}, got {state!r}")
        row = self.choices[played][self.game.states[played].index(state)][::-1]
        losses = self.epsilon - self.grid.losses[::-1]
        cuts = np.concatenate([[0], np.nonzero(np.diff(row))[0] + 1, [row.size]])
        return [Interval(float(losses[a]), float(losses[b - 1]), int(row[a])) for a, b in itertools.pairwise(cuts)]
