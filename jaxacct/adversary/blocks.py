"""Curves that an analyst with a budget certainly attains, by playing each query in blocks: `attained`.

V_j is a lower bound of the worst case with budget j D: the analyst stops, or plays k runs of a query one after the
other, which take at most p D of the budget, and goes on as with (j - p) D left,

    V_j = max(V_(j-1), floor_j, max over blocks of T_block V_(j - p)).

Every inequality goes one way: prices are rounded up to whole nodes, laws are dominated by the query's, what lies beyond
the lattice is dropped, and every convolution is lowered by the error of its transform (docs/proofs/fft.md, lemma 3).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from jaxacct.games.blocks import law_below
from jaxacct.games.lattice_laws import Law
from jaxacct.games.runs import Rest, Runs
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Composed
from jaxacct.mechanisms.base import Mechanism

_PLAYS = 48  # blocks that the whole budget holds, about
_NODES = (1400, 2600)
_LONGER = 1.25  # a block's length may be so many times the least one, where that rounds its price less
_FINE = 5  # of a cell's parts
_MOST_QUERIES = 5  # that the analyst plays: of more, evenly many by cost
_FINER = 5  # a short block has so many times fewer runs


def attained(queries: Sequence[Mechanism], costs: np.ndarray, grid: LossGrid, floors: np.ndarray | None) -> np.ndarray:
    """A lower bound of the worst case's excess over (1 - gamma)_+ at the points of ``grid``, for `remove`.

    ``costs`` are shares of the budget, rounded up by at least 8 units. ``floors``, if there are any, are excesses that
    budgets of ``1 / levels``, ``2 / levels``, ... attain, shape ``(levels, grid.size)``.
    """
    some = np.unique(np.linspace(0, len(queries) - 1, _MOST_QUERIES).astype(int))
    some = np.argsort(costs, kind="stable")[some]
    queries, costs = [queries[i] for i in some], costs[some]
    # Of blocks of many runs the length is chosen, so that it rounds well.
    nodes, _ = whole_nodes(costs * np.maximum(np.floor(1.0 / costs / _PLAYS), 1.0), _NODES, up=True)
    blocks = [block for query, cost in zip(queries, costs, strict=True) for block in _blocks(query, cost, nodes, grid)]
    best = np.zeros(grid.size)
    if not blocks:
        return best if floors is None else floors[-1]
    runs = Runs([law for _, law in blocks], grid, upper=False)
    before: deque[Rest] = deque(maxlen=max(price for price, _ in blocks))  # of earlier nodes, the latest first
    for j in range(nodes + 1):
        if floors is not None and (level := j * len(floors) // nodes):
            best = np.maximum(best, floors[level - 1])
        for block, (price, _) in enumerate(blocks):
            if price <= j:
                best = np.maximum(best, runs.after(block, before[price - 1])[0])
        before.appendleft(runs.before(best[None]))
    return best


def whole_nodes(costs: np.ndarray, tried: tuple[int, int], *, up: bool) -> tuple[int, float]:
    """The number of nodes in a budget of 1 at which rounding costs to whole nodes changes them least, and by how much.

    The change is the largest, relative to a cost.
    """
    nodes = np.arange(*tried)[:, None]
    whole = (np.ceil if up else np.floor)(costs * nodes)
    change = np.abs(whole / (costs * nodes) - 1.0).max(-1)
    best = int(change.argmin())
    return int(nodes[best, 0]), float(change[best])


def _blocks(query: Mechanism, cost: float, nodes: int, grid: LossGrid) -> list[tuple[int, Law]]:
    """A query's blocks, long ones and shorter ones for what is left after them: how many nodes each takes, and its law.

    The law is from below, for `remove`.
    """
    least = max(1, math.floor(1.0 / cost) // _PLAYS)
    found = []
    for length in sorted({least, max(1, least // _FINER), max(1, least // _FINER**2)}):
        tried = np.arange(length, max(length, int(_LONGER * length)) + 1)
        exact = tried * cost * nodes
        best = int((np.ceil(exact) / exact).argmin())
        price, runs = math.ceil(exact[best]), int(tried[best])
        if price <= nodes:
            block = Composed([query], runs) if runs > 1 else query
            found.append((price, law_below(block, grid, "remove", _FINE)))
    return found
