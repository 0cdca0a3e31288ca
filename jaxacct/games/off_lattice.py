"""Worst cases of queries with finitely many outcomes, at given epsilons, with no grid: exact up to rounding.

An epsilon left after finitely many outcomes depends on the sum of their losses, not on their sequence. So a node of the
recursion is a state with a sum, and values follow backwards from the last round as in :mod:`.worst_case`. The tree is
polynomial in the rounds for a fixed number of outcomes, and small where all losses are multiples of one number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.experiment import Experiment, excess_near
from jaxacct.games.lattice_laws import common_divisor
from jaxacct.games.rules import Game

_MOST_NODES = 400_000  # of one round
_CELLS = 20_000_000  # nodes times epsilons at once


@dataclasses.dataclass(frozen=True, eq=False)
class Tree:
    """Every epsilon that can be left, in one direction.

    Attributes:
        game: the unrolled rule.
        queries: the queries.
        losses: per round, the loss observed so far at every node.
        moves: per round and query, the nodes at which it may be played, whether it certainly may, and their nodes
            after each finite outcome, shape ``(nodes, outcomes)``.
        blur: the most by which a loss is off.
    """

    game: Game
    queries: Sequence[Experiment]
    losses: list[np.ndarray]
    moves: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]]
    blur: float

    def excess(self, epsilon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of the worst case's H - (1 - gamma)_+ at epsilons (n,)."""
        most = max(losses.size for losses in self.losses)
        chunks = np.array_split(epsilon, max(1, -(-most * epsilon.size // _CELLS)))
        lower, upper = (np.concatenate([self._values(part, side) for part in chunks]) for side in (False, True))
        return lower, upper

    def _values(self, epsilon: np.ndarray, upper: bool) -> np.ndarray:
        # Epsilons are off by their own rounding; E grows up to gamma = 1 and falls after it.
        reach = max(float(np.abs(losses).max(initial=0.0)) for losses in self.losses)
        shift = self.blur + 4 * EPS * (self.game.rounds + 2) * (reach + np.abs(epsilon))
        total = np.zeros((self.losses[-1].size, epsilon.size))
        for losses, moves in zip(reversed(self.losses[:-1]), reversed(self.moves), strict=True):
            left = epsilon - losses[:, None]
            best = np.zeros(left.shape)
            for one, (node, sure, children) in zip(self.queries, moves, strict=True):
                if not upper:
                    node, children = node[sure], children[sure]
                value = excess_near(one, left[node], shift)[int(upper)]
                for child, p in zip(children.T, one.p[np.isfinite(one.losses)], strict=True):
                    value = value + p * total[child]
                units = (one.p.size + 8) * EPS + one.error
                best[node] = np.maximum(best[node], inflated(value, units) if upper else deflated(value, units))
            total = np.minimum(best, np.minimum(np.exp(left + shift), 1.0)) if upper else best
        return total[0]


def grow(game: Game, queries: Sequence[Experiment]) -> Tree | None:
    """The tree of every epsilon that can be left, or None if it has more than 400,000 nodes in some round."""
    every = np.concatenate([one.finite for one in queries])
    # Sums are kept as whole numbers of a unit: the losses' own, or one that is nothing next to them.
    unit = common_divisor(every) or game.rounds * float(np.abs(every).max()) * 2.0**-50
    steps = [np.rint(one.finite / unit) for one in queries]
    pairs = zip(queries, steps, strict=True)
    off = max(float(one.loss_error) + float(np.abs(one.finite - unit * step).max(initial=0.0)) for one, step in pairs)
    state, place = np.zeros(1, np.int64), np.zeros(1)
    losses, moves = [place], []
    for after, certain in zip(game.after, game.certain, strict=True):
        played, found = [], []
        for query, step in enumerate(steps):
            node = np.flatnonzero(after[state, query] >= 0)
            to = after[state[node], query]
            played.append((node, certain[state[node], query], (node.size, step.size)))
            found.append((to[:, None] + 1j * (place[node][:, None] + step)).reshape(-1))
            if sum(x.size for x in found) > 8 * _MOST_NODES:
                return None
        unique, inverse = np.unique(np.concatenate(found), return_inverse=True)
        if unique.size > _MOST_NODES:
            return None
        parts = np.split(inverse.reshape(-1), np.cumsum([x.size for x in found])[:-1])
        moves.append(
            [(node, sure, part.reshape(shape)) for (node, sure, shape), part in zip(played, parts, strict=True)]
        )
        state, place = np.real(unique).astype(np.int64), np.imag(unique)
        losses.append(unit * place)
    return Tree(game, queries, losses, moves, game.rounds * off)
