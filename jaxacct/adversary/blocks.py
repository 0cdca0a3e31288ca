"""Curves that an analyst with a budget certainly attains, by playing each query in blocks: `attained`.

V_j is a lower bound of the worst case with budget j D: the analyst stops, or plays k runs of a query one after the
other, which take at most p D of the budget, and goes on as with (j - p) D left,

    V_j = max(V_(j-1), floor_j, max over blocks of T_block V_(j - p)).

Every inequality goes one way: prices are rounded up to whole nodes, laws are dominated by the query's, what lies beyond
the lattice is dropped, and every convolution is lowered by the error of its transform (docs/proofs/fft.md, lemma 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, UNIT, deflated
from jaxacct.games.blocks import lines_below
from jaxacct.losses.compare.suprema import infimum
from jaxacct.losses.curves.conversions import pld_excess
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Composed
from jaxacct.mechanisms.base import Mechanism

_PLAYS = 48  # blocks that the whole budget holds, about
_NODES = (1400, 2600)
_LONGER = 1.25  # a block's length may be so many times the least one, where that rounds its price less
_FINE = 5  # of a cell's parts
_MOST_QUERIES = 5  # that the analyst plays: of more, evenly many by cost
_FINER = 5  # a short block has so many times fewer runs


class _Block(NamedTuple):
    price: int  # nodes
    offsets: np.ndarray
    masses: np.ndarray
    excess: np.ndarray  # at the points of the lattice


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
    losses, n = grid.losses, grid.size
    if not blocks:
        return np.zeros(n) if floors is None else floors[-1]
    low = min(int(block.offsets[0]) for block in blocks)
    high = max(int(block.offsets[-1]) for block in blocks)
    size = 1 << (n + high - low - 1).bit_length()
    down = 1.0 - 16 * UNIT * (4.0 + np.abs(losses).max() + 2.0 * grid.spacing * max(high, -low))
    kernels = np.zeros((len(blocks), size))
    for row, block in zip(kernels, blocks, strict=True):
        row[block.offsets % size] = block.masses * np.exp(-0.5 * grid.spacing * block.offsets) * down
    spectra = np.fft.rfft(kernels)
    error = 48.0 * (math.log2(size) + 2.0) * EPS * np.sqrt((kernels**2).sum(-1))
    scale = np.exp(-0.5 * losses) * down
    alone = np.stack([block.excess for block in blocks]) * scale
    prices = np.array([block.price for block in blocks])
    curves = np.zeros((nodes + 1, n))
    moved = np.zeros((nodes + 1, size // 2 + 1), np.complex128)
    norms = np.zeros(nodes + 1)
    for j in range(nodes + 1):
        best = curves[j - 1] if j else curves[0]
        if floors is not None and (level := j * len(floors) // nodes):
            best = np.maximum(best, floors[level - 1] * scale)
        fits = np.flatnonzero(prices <= j)
        if fits.size:
            before = j - prices[fits]
            played = np.fft.irfft(spectra[fits] * moved[before], size)[:, :n]
            played = played - (error[fits] * norms[before])[:, None]
            best = np.maximum(best, deflated(np.maximum(played, 0.0) + alone[fits], 8 * UNIT).max(0))
        curves[j] = best
        moved[j] = np.fft.rfft(best, size)
        norms[j] = math.sqrt(float((best**2).sum()))
    return curves[-1] / scale * (1.0 - 8 * UNIT) * down


def whole_nodes(costs: np.ndarray, tried: tuple[int, int], *, up: bool) -> tuple[int, float]:
    """The number of nodes in a budget of 1 at which rounding costs to whole nodes changes them least, and by how much.

    The change is the largest, relative to a cost.
    """
    nodes = np.arange(*tried)[:, None]
    whole = (np.ceil if up else np.floor)(costs * nodes)
    change = np.abs(whole / (costs * nodes) - 1.0).max(-1)
    best = int(change.argmin())
    return int(nodes[best, 0]), float(change[best])


def _blocks(query: Mechanism, cost: float, nodes: int, grid: LossGrid) -> list[_Block]:
    """A query's blocks: long ones, and shorter ones for what is left after them."""
    least = max(1, math.floor(1.0 / cost) // _PLAYS)
    found = []
    for length in sorted({least, max(1, least // _FINER), max(1, least // _FINER**2)}):
        tried = np.arange(length, max(length, int(_LONGER * length)) + 1)
        exact = tried * cost * nodes
        best = int((np.ceil(exact) / exact).argmin())
        price = math.ceil(exact[best])
        if price <= nodes:
            # The curve need not be convex where it was rounded; its hull is, and has a law.
            hull = infimum([_below(query, int(tried[best]), grid)])
            masses = np.asarray(hull.to_pld().masses)
            used = np.flatnonzero(masses > 0)
            found.append(_Block(price, used + grid.lowest, masses[used], np.asarray(hull.excess)))
    return found


def _below(query: Mechanism, runs: int, grid: LossGrid) -> PrivacyProfile:
    """The curve of so many runs from below, for `remove`, linear in gamma between points of ``grid``.

    Composed on a lattice five times finer, and put on ``grid`` by one line in each cell (`lines_below`).
    """
    fine = LossGrid(grid.spacing / _FINE, grid.lowest * _FINE, (grid.size - 1) * _FINE + 1)
    block = Composed([query], runs) if runs > 1 else query
    law = PLD.from_mechanism(block, "lower", relation="remove", grid=fine)
    excess = lines_below(np.asarray(pld_excess(law, fine)), np.exp(fine.losses), _FINE)
    return unchecked(PrivacyProfile, excess=excess, grid=grid, bound="lower")
