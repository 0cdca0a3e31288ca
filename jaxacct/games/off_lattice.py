"""Worst cases of queries with finitely many outcomes, at given epsilons, with no grid: exact up to rounding.

An epsilon left after finitely many outcomes depends on how often each outcome has occurred, not on their sequence. So a
node of the recursion is a state with a vector of counts, and values follow backwards from the last round as in
:mod:`jaxacct.games.worst_case_tables`. The tree is polynomial in the rounds for a fixed number of outcomes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.experiment import Experiment, excess_near
from jaxacct.games.rules import Game

MOST_NODES = 400_000
"""Nodes of one round up to which a tree is grown."""


class Tree:
    """Nodes of every round: rows of ``counts`` (how often each outcome has occurred) and their ``state``.

    Attributes:
        queries: the queries.
        states: per round, shape ``(nodes,)``.
        counts: per round, shape ``(nodes, outcomes)``.
        children: per round, shape ``(nodes, outcomes)``: index in the next round's nodes, -1 where not reached.
        columns: of each query, its outcomes' columns.
        offsets: loss of each column.
    """

    def __init__(self, queries: Sequence[Experiment]) -> None:
        self.queries = queries
        losses = [one.finite for one in queries]
        ends = np.cumsum([0, *(len(finite) for finite in losses)])
        self.columns = [np.arange(first, end) for first, end in itertools.pairwise(ends)]
        self.offsets = np.concatenate(losses)
        self.states = [np.zeros(1, np.int64)]
        self.counts = [np.zeros((1, self.offsets.size), np.int16)]
        self.children: list[np.ndarray] = []

    def losses(self, played: int) -> np.ndarray:
        """The loss observed so far at every node."""
        return self.counts[played] @ self.offsets


def grow(game: Game, queries: Sequence[Experiment]) -> Tree | None:
    """The tree of every epsilon that can be left, or None if it is larger than ``MOST_NODES`` in some round."""
    tree = Tree(queries)
    for after in game.after:
        state, counts = tree.states[-1], tree.counts[-1]
        width = counts.shape[1]
        rows, where = [np.zeros((0, 1 + width), np.int64)], [(np.zeros(0, np.int64), -1)]
        for move in range(after.shape[1]):
            node = np.nonzero(after[state, move] >= 0)[0]
            columns = tree.columns[move] if move < game.queries else [-1]
            for column in columns:
                grown = np.concatenate([after[state[node], move][:, None], counts[node]], 1).astype(np.int64)
                if column >= 0:
                    grown[:, 1 + column] += 1
                rows.append(grown)
                where.append((node, int(column)))
            if sum(len(r) for r in rows) > 8 * MOST_NODES:
                return None
        children = np.full((state.size, width + 1), -1, np.int64)
        unique, inverse = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
        if len(unique) > MOST_NODES:
            return None
        ends = np.cumsum([len(grown) for grown in rows])
        for (node, column), index in zip(where, np.split(inverse.reshape(-1), ends[:-1]), strict=True):
            children[node, column] = index
        tree.children.append(children)
        tree.states.append(unique[:, 0])
        tree.counts.append(unique[:, 1:].astype(np.int16))
    return tree


def values(game: Game, tree: Tree, epsilon: np.ndarray, bound: str) -> np.ndarray:
    """Excess of the worst case at ``epsilon`` (n,), float64, rounded to the side of ``bound``."""
    upper = bound == "upper"
    reach = game.rounds * float(np.abs(tree.offsets).max(initial=0.0))
    blur = game.rounds * max(one.loss_error for one in tree.queries)
    # Epsilons are off by their own rounding; E grows up to gamma = 1 and falls after it.
    shift = blur + 4 * EPS * (game.rounds + 2) * (reach + np.abs(epsilon))
    total = np.zeros((tree.states[-1].size, epsilon.size))
    for played in range(game.rounds - 1, -1, -1):
        after, sure = game.after[played], game.certain[played]
        state, children = tree.states[played], tree.children[played]
        epsilons = epsilon[None] - tree.losses(played)[:, None]
        best = np.zeros((state.size, epsilon.size))
        for move in range(after.shape[1]):
            node = np.nonzero((after[state, move] >= 0) & (upper | sure[state, move]))[0]
            if not node.size:
                continue
            if move == game.queries:
                value = total[children[node, -1]]
            else:
                one = tree.queries[move]
                value = excess_near(one, epsilons[node], shift)[int(upper)]
                for column, p in zip(tree.columns[move], one.p[np.isfinite(one.losses)], strict=True):
                    value = value + p * total[children[node, column]]
                units = (one.p.size + 8) * EPS + one.error
                value = inflated(value, units) if upper else deflated(value, units)
            gains = value > inflated(best[node], 1e-13)
            # A bound from above takes every gain.
            best[node] = np.maximum(best[node], value) if upper else np.where(gains, value, best[node])
        total = np.minimum(best, np.minimum(np.exp(epsilons + shift), 1.0)) if upper else best
    return total[0]
