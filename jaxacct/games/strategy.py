"""`Strategy`: an analyst that attains the worst case at one epsilon; it chooses each query by the outcomes so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import numpy as np

from jaxacct.games.rules import Game
from jaxacct.losses.grids.grid import LossGrid


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
