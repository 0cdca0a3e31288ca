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
import scipy.fft

from jaxacct._numerics.rounding import EPS, UNIT, deflated
from jaxacct.games.lattice_laws import Law
from jaxacct.losses.grids.grid import LossGrid

_PLAYS = 48  # blocks that the whole budget holds, about
_NODES = (1400, 2600)
_LONGER = 1.25  # a block's length may be so many times the least one, where that rounds its price less
_FINER = 5  # a short block has so many times fewer runs


class _Block(NamedTuple):
    price: int  # nodes
    offsets: np.ndarray
    masses: np.ndarray
    infinite: float


def attained(laws: Sequence[Law], costs: np.ndarray, grid: LossGrid, floors: np.ndarray | None) -> np.ndarray:
    """A lower bound of the worst case's excess over (1 - gamma)_+ at the points of ``grid``, for budget 1.

    ``laws`` are dominated by the queries', ``costs`` at least theirs, as shares of the budget. ``floors``, if there are
    any, are excesses that budgets ``1 / levels, 2 / levels, ...`` attain, shape ``(levels, grid.size)``.
    """
    # Of blocks of many runs the length is chosen, so that it rounds well.
    nodes, _ = whole_nodes(costs * np.maximum(np.floor(1.0 / costs / _PLAYS), 1.0), _NODES, up=True)
    blocks = [block for law, cost in zip(laws, costs, strict=True) for block in _blocks(law, cost, nodes, grid)]
    losses, n = grid.losses, grid.size
    low = min(int(block.offsets[0]) for block in blocks)
    high = max(int(block.offsets[-1]) for block in blocks)
    size = scipy.fft.next_fast_len(n + high - low, real=True)  # pyright: ignore[reportCallIssue]
    down = 1.0 - 16 * UNIT * (4.0 + np.abs(losses).max() + 2.0 * grid.spacing * max(high, -low))
    kernels = np.zeros((len(blocks), size))
    for row, block in zip(kernels, blocks, strict=True):
        row[block.offsets % size] = block.masses * np.exp(-0.5 * grid.spacing * block.offsets) * down
    spectra = scipy.fft.rfft(kernels)
    error = 48.0 * (math.log2(size) + 2.0) * EPS * np.sqrt((kernels**2).sum(-1))
    scale = np.exp(-0.5 * losses) * down
    alone = np.stack([_excess(block, losses, grid.spacing) for block in blocks]) * scale
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
            played = scipy.fft.irfft(spectra[fits] * moved[before], size)[:, :n]
            played = played - (error[fits] * norms[before])[:, None]
            best = np.maximum(best, deflated(np.maximum(played, 0.0) + alone[fits], 8 * UNIT).max(0))
        curves[j] = best
        moved[j] = scipy.fft.rfft(best, size)
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


def _blocks(law: Law, cost: float, nodes: int, grid: LossGrid) -> list[_Block]:
    runs = math.floor(1.0 / cost)
    least = max(1, runs // _PLAYS)
    lengths = {least, max(1, least // _FINER), max(1, least // _FINER**2)}
    found = []
    for length in sorted(lengths):
        tried = np.arange(length, max(length, int(_LONGER * length)) + 1)
        exact = tried * cost * nodes
        best = int(tried[(np.ceil(exact * (1.0 + 1e-12)) / exact).argmin()])
        price = math.ceil(best * cost * nodes * (1.0 + 1e-12))
        if price <= nodes:
            found.append(_several(law, best, price, grid))
    return found


def _several(law: Law, times: int, price: int, grid: LossGrid) -> _Block:
    """``times`` runs, from below: sums of non-negative terms, and no loss beyond the lattice."""
    start = np.zeros(int(law.offsets[-1] - law.offsets[0]) + 1)
    start[law.offsets - law.offsets[0]] = law.masses
    one, first = (int(law.offsets[0]), start), None
    power = times
    while power:
        if power & 1:
            first = one if first is None else _sum(first, one, grid)
        power >>= 1
        if power:
            one = _sum(one, one, grid)
    lowest, masses = first if first is not None else one
    infinite = -math.expm1(times * math.log1p(-law.infinite)) if law.infinite < 1 else 1.0
    kept = np.flatnonzero(masses > 0)
    units = 2 * times.bit_length() * (len(start) * times + 8) * EPS
    return _Block(price, kept + lowest, deflated(masses[kept], units), deflated(infinite, 16 * EPS * times))


def _sum(first: tuple[int, np.ndarray], second: tuple[int, np.ndarray], grid: LossGrid) -> tuple[int, np.ndarray]:
    lowest, masses = first[0] + second[0], np.convolve(first[1], second[1])
    begin = max(0, grid.lowest - lowest)
    end = min(masses.size, grid.highest - lowest + 1)
    return lowest + begin, masses[begin:end]


def _excess(block: _Block, losses: np.ndarray, spacing: float) -> np.ndarray:
    """E of the block's law without what lies beyond the lattice; sums of non-negative terms on either side of 1."""
    own = spacing * block.offsets
    told = -np.expm1(np.minimum(losses[:, None] - own, 0.0)) @ block.masses + block.infinite
    hidden = np.expm1(np.maximum(losses[:, None] - own, 0.0)) @ block.masses
    found = np.where(losses >= 0, told, hidden)
    return np.maximum(deflated(found, (block.offsets.size + 32) * EPS), 0.0)
