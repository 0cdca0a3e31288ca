"""Computes the table of a box: reference queries, the family of curves, and prices at the corners of a grid.

Between the corners of a grid in (sigma, rate) a query is dominated by a mixture of the four corners whose label is
public. Its price is the mean of the corners' plus what the curvature of V in b asks for (`_bent`;
docs/theorems/prices.md, Between the grid's points).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxacct._numerics.rounding import inflated
from jaxacct.filters.prices.family import UNITS, Family
from jaxacct.filters.prices.kernels import atoms_of
from jaxacct.filters.prices.lines import NEVER, kernel_next_to, price_lines
from jaxacct.filters.prices.packed import least_of, packed
from jaxacct.filters.prices.references import Fineness, chosen_families
from jaxacct.filters.queries import charged_as
from jaxacct.mechanisms.base import Mechanism

DEAR = 2**31 - 1
"""The price of what never fits: above every budget."""


_NARROW = Fineness(50.0, 0.0014, 0.01, 0.03, 0.002)  # one rate or one noise multiplier: some tens of corners
_SMALL = Fineness(30.0, 0.006, 0.02, 0.10, 0.001)  # hardly any range: seconds
_RARE = Fineness(50.0, 0.004, 0.03, 0.03, 0.002)  # the same at a small rate, where prices hardly bend
_WIDE = Fineness(30.0, 0.0018, 0.05, 0.08, 0.005)  # both move: some hundreds
_SMALL_RATE = 0.003
_FAR = 1.3  # between the ends of a range


def box_tables(
    sigma: tuple[float, float],
    rate: tuple[float, float],
    records: int,
    epsilon: float,
    delta: float,
    extra: Sequence[Mechanism],
    two: bool,
    report: Callable[[int, int], object],
) -> list[dict[str, np.ndarray]]:
    """The arrays of a box's table; of two tables where ``two`` may be and are better.

    Raises:
        ValueError: a box of which nothing meets the target even once.
    """
    fine = _WIDE if sigma[0] < sigma[1] and rate[0] < rate[1] else _NARROW
    if fine is _NARROW and rate[1] < _SMALL_RATE:
        fine = _RARE
    if rate[0] == rate[1] and sigma[1] < _FAR * sigma[0]:
        fine = _SMALL
    sigmas, rates = grid_of(sigma, fine.sigma), grid_of(rate, fine.rate)
    total = sigmas.size * rates.size + len(extra)
    before = max(total // 4, 8)  # the families take about that long
    told = lambda done, of: report(int(before * done / of), before + total)  # noqa: E731
    chosen = functools.partial(
        chosen_families, *(sigma, rate, records, epsilon, delta, fine, fine is not _SMALL, two and fine is _WIDE), told
    )
    families, lost = chosen([]), []
    for one in extra:
        if any((lines_in_units(one, family) == DEAR).all() for family in families):
            lost.append(one)
    if lost:  # curves that follow these too
        families = chosen(lost)
    work = before + total * len(families)
    return [
        _table(family, sigmas, rates, records, extra, lambda done, start=before + i * total: report(start + done, work))
        for i, family in enumerate(families)
    ]


def _table(
    family: Family,
    sigmas: np.ndarray,
    rates: np.ndarray,
    records: int,
    extra: Sequence[Mechanism],
    report: Callable[[int], object],
) -> dict[str, np.ndarray]:
    """The prices of one family, and what it is read back from."""
    count = int(np.searchsorted(family.nodes, 1.0))  # intervals within the budget
    lines = [_units(corner_prices(family, sigmas, rates, count, report, records)).reshape(2, -1, count)]
    for i, query in enumerate(extra):
        own = lines_in_units(query, family)
        if (own == DEAR).all():
            raise ValueError(
                f"extra must hold queries that fit beside those of the range, got one at position {i} that does not "
                "fit even once: use more noise, a larger epsilon, or filters.menu, for what takes a whole target"
            )
        lines.append(own[:, None])
        report(sigmas.size * rates.size + i + 1)
    promised = family.curve(1.0, family.width) * np.exp(0.5 * family.grid.losses)
    positive = family.excess > 0  # small budgets reach less far
    support = np.stack([positive.argmax(1), family.grid.size - positive[:, ::-1].argmax(1)], 1)
    return {
        "sigmas": sigmas,
        "rates": rates,
        "nodes": np.rint(family.nodes * UNITS).astype(np.int64),
        "lines": np.concatenate(lines, 1),
        "promised": inflated(promised, 2.0**-40),
        "support": support.astype(np.int32),
        "excess": packed(family.excess[within(support, family.grid.size)], least_of(family.slack, family.far)),
        "width": np.array(family.width),
        "slack": np.array(family.slack),
        "far": np.array(family.far),
        "spacing": np.array(family.grid.spacing),
        "lowest": np.array(family.grid.lowest),
    }


def corner_prices(
    family: Family, sigmas: np.ndarray, rates: np.ndarray, count: int, report: Callable[[int], object], records: int = 1
) -> np.ndarray:
    """Prices at both ends of the first ``count`` intervals, shape (2, sigmas, rates, count).

    Between the corners of the grid the mean price of a cell's corners, with the weights of docs/theorems/prices.md,
    lemma 1, is certified.
    """
    first, second = (np.full((sigmas.size, rates.size, count), NEVER) for _ in range(2))
    straight = np.zeros(first.shape, bool)
    for i, s in enumerate(sigmas):
        for k, q in enumerate(rates):
            atoms = atoms_of(charged_as(float(s), float(q), records), family.grid)
            kernel = kernel_next_to(atoms, family)
            first[i, k], second[i, k], straight[i, k] = (x[:count] for x in price_lines(kernel, family))
            report(i * rates.size + k + 1)
    return np.stack(_bent(first, second, straight, family))


def within(support: np.ndarray, size: int) -> np.ndarray:
    """Which of ``size`` points lie in intervals ``[first, last)``, shape ``(intervals, size)``."""
    points = np.arange(size)
    return (points >= support[:, :1]) & (points < support[:, 1:])


def lines_in_units(query: Mechanism, family: Family) -> np.ndarray:
    """A mechanism's own least prices at both ends of every interval within the budget, int32, shape (2, intervals)."""
    with jax.enable_x64(True):
        lines = np.stack(price_lines(kernel_next_to(atoms_of(query, family.grid), family), family)[:2])
    return _units(lines[:, : np.searchsorted(family.nodes, 1.0)])


def grid_of(ends: tuple[float, float], step: float) -> np.ndarray:
    """Numbers from the first to the second, evenly spaced in logarithm; one where they agree."""
    low, high = ends
    if low == high:
        return np.array([low])
    found = np.geomspace(low, high, math.ceil(math.log(high / low) / step) + 1)
    found[0], found[-1] = low, high
    return found


def _bent(first: np.ndarray, second: np.ndarray, straight: np.ndarray, family: Family) -> tuple[np.ndarray, np.ndarray]:
    """Corner prices from which interpolated ones are certified, by more than the curvature of V in b asks for.

    With budgets b_c of mean m and weights w_c, the mean of V_(b_c) must not exceed V at m + bend; `_curvature` says
    how large a bend is enough. Where it is dearer, the cell is charged as its dearest corner.
    """
    if first.shape[0] == first.shape[1] == 1:
        return first, second
    # Each cell's corners: views of the table, the dearest (least sigma, largest rate) first.
    spans = [[slice(None)] if n == 1 else [slice(0, n - 1), slice(1, n)] for n in first.shape[:2]]
    corners = [(row, column) for row in spans[0] for column in reversed(spans[1])]
    ends = np.stack([np.stack([x[at] for at in corners]) for x in (first, second)])  # (end, corner, cells..., interval)
    low, high = ends.min((0, 1)), ends.max((0, 1))
    plain = np.stack([straight[at] for at in corners]).all(0)
    once = _curvature(family, low, high)
    bend = _curvature(family, low, high + 2.0 * once)
    bend = np.where(plain, 0.0, bend)
    raised = ends * (1.0 + bend / low)
    snapped = np.maximum(ends, ends[:, :1])  # the cell charged as its dearest corner needs nothing more
    beyond = family.nodes[1 : 1 + low.shape[-1]] + high + 2.0 * once > family.nodes[-1]
    dear = beyond | ~(bend <= 2.0 * once) | (raised.mean((0, 1)) >= snapped.mean((0, 1)))
    found = np.where(high >= NEVER, NEVER, np.where(dear, snapped, raised))
    whole = np.stack([first, second])
    for place, at in enumerate(corners):
        for end in range(2):
            whole[end][at] = np.maximum(whole[end][at], found[end, place])
    return whole[0], whole[1]


def _curvature(family: Family, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How much curvature asks for, for budgets between an interval's beginning and ``low``, its end and ``high``.

    Two bounds, of which the smaller one counts. Let D be the rise of V, of which it is the integral over b.

    - If D is at most R times as large after any budget as before it, then (R - 1) E (b_c - m)_+ is enough, and the
      last factor is at most (high - low) / 4.
    - If D grows at most like exp(g b) from interval to interval, of lengths at most d, the mean of exp(g b_c) counts
      in place of V, up to what the steps of D add: g (high - low)^2 / 8 (Hoeffding's lemma) and g d^2 / 2, times
      exp(g (high - low + 2 d)).
    """
    nodes, lengths = family.nodes, np.diff(family.nodes)
    logs = np.concatenate([[0.0, 0.0], np.cumsum(np.log(family.growth))])  # of all growth at nodes below
    count = low.shape[-1]
    first = np.minimum(np.searchsorted(nodes, nodes[:count] + low, side="right"), nodes.size - 1)
    last = np.minimum(np.searchsorted(nodes, nodes[1 : count + 1] + high, side="left"), nodes.size - 1)
    width = high - low
    steep = np.expm1(np.clip(logs[last] - logs[first], 0.0, 50.0) + 1e-9) * 0.25 * width
    pace = np.concatenate([[0.0], np.log(family.growth) / (0.5 * (lengths[1:] + lengths[:-1])), [0.0]])
    pace, length = _most_in(pace, first, last), _most_in(lengths, np.maximum(first - 1, 0), last)
    smooth = pace * (width**2 / 8 + length**2 / 2) * np.exp(np.minimum(pace * (width + 2.0 * length), 50.0))
    return np.minimum(steep, smooth + 1e-9 * width)


def _most_in(values: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The largest of ``values[first:last]``, 0 of none."""
    each = [values[one:end].max(initial=0.0) for one, end in zip(first.flat, last.flat, strict=True)]
    return np.reshape(each, first.shape)


def _units(prices: np.ndarray) -> np.ndarray:
    return np.where(prices <= 1.0, np.ceil(prices * (1.0 + 1e-12) * UNITS), DEAR).astype(np.int32)
