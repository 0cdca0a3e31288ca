"""`price_lines`: the least price of one query for every budget left, as shares of the whole budget.

V_b is the curve that a box promises with budget b left, and T_L V_a the curve of a query L followed by budget a. L may
run for the price b - a if V_b >= T_L V_a at every order. Both sides are linear: the left one in
b between nodes, the right one in a between nodes. So for a between two nodes, a = (1 - t) a_j + t a_(j + 1), every
b = (1 - t) b' + t b'' above the points (t, b) at which the condition was found to hold is certified, and two numbers
for each interval of a say all: the price b - a at its left end and at its right end.
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.rounding import EPS
from jaxacct.filters.prices.family import UNITS, Family, circular, padded, steady
from jaxacct.filters.prices.kernels import Kernel, Ratios, kernel_of

NEVER = 4.0
"""A price above every budget, which is at most 1."""
_LEAST = 1.0 / UNITS
_ROUNDED = 1e-3  # share of a price that the rounding of transforms may cost
_UP = 1.0 + 2.0**-36
_SUMS = 2.0**-41  # twice 2^-53 for each of 2,048 nodes


def kernel_next_to(atoms: Ratios, family: Family) -> Kernel:
    """The kernel of a discrete law that a family's certificates are asked with."""
    return kernel_of(atoms, family.half_width, family.grid.spacing, family.grid.size)


def runs_of(atoms: Ratios, family: Family) -> float:
    """About how often a query runs until its budget is spent."""
    first, second, _ = price_lines(kernel_next_to(atoms, family), family)
    inside = (family.nodes[1:] <= 1.0) & (first < NEVER)
    return float((np.diff(family.nodes) / (0.5 * (first + second)))[inside].sum())


def added(kernel: Kernel, family: Family) -> np.ndarray:
    """What the query adds to the curve of every node, over sqrt(gamma), rounded up; shape ``(nodes, size)``.

    By transforms, whose rounding is bounded in docs/proofs/fft.md, lemma 3. Where that alone would cost a share of the
    price, at a small delta or a large epsilon, the terms, none negative, are summed one by one: then the error is
    relative to the sum (docs/proofs/arithmetic.md, A3).
    """
    n = family.grid.size
    around = circular(kernel.values, n)
    size = float(np.sqrt((around**2).sum()))
    found = np.fft.irfft(family.spectra * np.fft.rfft(around), padded(n))[:, :n]
    wrong = 48.0 * (np.log2(padded(n)) + 2.0) * EPS * size * family.norms
    paid = family.slack * steady(family.grid, family.half_width, family.far)
    price = float((found[-1] / (family.heights[-1] + paid)).max())
    if wrong[-1] > _ROUNDED * price * float(paid.min()):
        # Row i of the matrix has the kernel's values at offsets -i .. n - 1 - i.
        matrix = np.lib.stride_tricks.sliding_window_view(kernel.values, n)[::-1]
        found, wrong = family.kinks @ np.ascontiguousarray(matrix) * (1.0 + (n + 4.0) * EPS), 1e-300
    left_out = kernel.lost * family.kinks.sum(-1)
    return np.maximum(found, 0.0) * (1.0 + 2.0**-40) + (wrong + left_out)[:, None]


def beyond_ends(kernel: Kernel, family: Family) -> np.ndarray:
    """Prices from which the slack alone covers all orders beyond the lattice, for every node."""
    n, losses = family.grid.size, family.grid.losses
    above = family.kinks @ kernel.single[n - 1 :][::-1]
    below = family.kinks @ kernel.single[:n][::-1]
    given = 0.5 * np.exp(-0.5 * np.abs(losses)) + family.far * np.cosh(0.5 * losses)  # G is far away
    worst = np.maximum(above / given[-1], below / given[0])
    return worst * (1.0 + 2.0**-30) / family.slack


def price_lines(kernel: Kernel, family: Family) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Prices at both ends of every interval between two nodes of the budget that is left *after* the query.

    Returns:
        Prices at the left and at the right ends, `NEVER` at both ends of an interval after which no budget is enough;
        and whether the interval's budgets before the query lie in it and in the next one, and are also enough where V
        goes on beyond the interval as it rises in it. What has that at all corners needs nothing for the bend of V
        between both: where it bends up, the straight line is below V, and where it bends down V is concave.
    """
    nodes, rises = family.nodes, family.rises
    last = nodes.size - 1
    more = added(kernel, family)
    ends = beyond_ends(kernel, family)
    heights = family.heights
    # reach[j]: the first node whose curve is above the query composed with that of node j; least[j] the least budget.
    reach = np.full(last + 1, last + 1)
    least = np.full(last + 1, np.inf)
    at = 1
    for j in range(last):
        at = max(at, j + 1)
        while at <= last and not (_rise(heights, rises, at, j) >= more[j]).all():
            at += 1
        if at > last:
            break
        reach[j] = at
        short = more[j] - _rise(heights, rises, at - 1, j)
        share = min(max(float((short / rises[at - 1]).max()), 0.0), 1.0)
        least[j] = nodes[at - 1] + share * (nodes[at] - nodes[at - 1])
    first, second, straight = np.full(last, NEVER), np.full(last, NEVER), np.zeros(last, bool)
    for j in range(last):
        if reach[j] > last:
            break
        points = [(0.0, least[j] - nodes[j])]
        for k in range(reach[j], min(reach[j + 1], last + 1)):
            beyond = more[j + 1] - _rise(heights, rises, k, j + 1)
            slope = np.maximum(rises[j] + more[j + 1] - more[j], 1e-300)
            before = min(max(float((np.maximum(beyond, 0.0) / slope).max()) * _UP, 0.0), 1.0)
            points.append((1.0 - before, nodes[k] - nodes[j + 1] + before * (nodes[j + 1] - nodes[j])))
        if reach[j + 1] <= last:
            points.append((1.0, least[j + 1] - nodes[j + 1]))
        ahead = float((more[j + 1] / rises[j]).max()) * (nodes[j + 1] - nodes[j])
        short = j + 2 <= last and max(ahead, least[j] - nodes[j]) < 0.75 * (nodes[j + 2] - nodes[j + 1])
        if short and reach[j] == j + 1:
            points.append((1.0, ahead))
        left, right = _above(points)
        floor = max(ends[j], ends[j + 1], _LEAST)
        first[j], second[j] = max(left * _UP, floor), max(right * _UP, floor)
        room = nodes[j + 2] - nodes[j + 1] if j + 2 <= last else 0.0
        straight[j] = short and reach[j] == j + 1 and max(first[j], second[j]) < room
    return first, second, straight


def _rise(heights: np.ndarray, rises: np.ndarray, k: int, j: int) -> np.ndarray:
    """How much V rises from node j to node k, rounded down: sums of many rises are rounded more often than one."""
    if k == j:
        return np.zeros_like(rises[0])
    return rises[j] if k == j + 1 else heights[k] - heights[j] - _SUMS * heights[k]


def _above(points: list[tuple[float, float]]) -> tuple[float, float]:
    """The line above all points that is lowest in the middle, by its values at 0 and 1."""
    left = [p for p in points if p[0] <= 0.5]
    right = [p for p in points if p[0] > 0.5]
    if not right:
        right = [(1.0, max(y for _, y in left))]
    best = max(((y0 + (y1 - y0) * (0.5 - x0) / (x1 - x0), (x0, y0), (x1, y1)) for x0, y0 in left for x1, y1 in right))
    (x0, y0), (x1, y1) = best[1:]
    slope = (y1 - y0) / (x1 - x0)
    return y0 - slope * x0, y0 + slope * (1.0 - x0)
