"""Finite pairs that dominate a pair (from bounds on its curve at points) or are dominated by it (from tests).

*Above*, the curve through upper bounds at some points is the hockey stick of the pair whose ratios are those points
(Zhu, Dong, Wang 2022). *Below*, the differences of nested events are outcomes of a post-processing. Both:
docs/proofs/random-allocation.md. Which points and events are left out, because others are better, does not matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.allocation.sums import SumBounds
from jaxacct.mechanisms.allocation.window_law import Events

_NOTHING = 1e-19  # a mass under either measure of which no more is to be known
_LEAST = 1e-290  # no smaller probability is worth an atom


class Table(NamedTuple):
    """Losses, sorted, with masses under P and Q: arrays of one size; some atoms are empty.

    The losses are -inf for what P does not have and inf for what Q does not have. From above or from below they are
    bounds as they stand, but for a few units of each number.
    """

    losses: np.ndarray
    p: np.ndarray
    q: np.ndarray


@np.errstate(all="ignore")
def upper_table(bounds: SumBounds, mirrored: bool, size: int) -> Table:
    """``size`` atoms of a pair that dominates (alternative, base), or (base, alternative) if ``mirrored``."""
    (x, calls), (y, puts) = bounds.calls, bounds.puts
    # What bounds a call further left bounds it at 1.
    x, calls = _falling(np.maximum(x, 1.0), calls)
    y, puts = _falling(-y[y <= 1.0], puts[y <= 1.0])
    y = -y
    kept, kept_low = _likely(calls), _likely(puts / y)
    x, calls, y, puts = x[kept], calls[kept], y[kept_low], puts[kept_low]
    if bounds.smallest > 0:
        kept = y > bounds.smallest
        y, puts = np.append(y[kept], deflated(bounds.smallest, 8.0 * UNIT)), np.append(puts[kept], 0.0)
    if mirrored:
        # With 1 / r in place of r: E_P[(1 / r - g)_+] = g E_Q[(1 / g - r)_+].
        calls, puts = (inflated(value / at, 8.0 * UNIT) for at, value in ((x, calls), (y, puts)))
        x, calls, y, puts = 1.0 / y, puts, 1.0 / x, calls
    # Outwards from the middle in both cases: x rises, y falls.
    kept = _hull(x, calls)
    kept = kept[_some(kept.size, size)]
    x, calls, y, puts = x[kept], calls[kept], np.append(0.0, y), np.append(0.0, puts)
    kept = _hull(y, puts)
    kept = kept[_some(kept.size, size)][1:]
    y, puts = y[kept], puts[kept]
    return _joined(x, calls, y[::-1], puts[::-1], size)


def _joined(x: np.ndarray, calls: np.ndarray, y: np.ndarray, puts: np.ndarray, size: int) -> Table:
    """The table of convex calls at ``x`` (rising from about 1) and puts at ``y`` (falling from about 1)."""
    while True:
        if not x.size or not y.size:
            return _padded(np.array([np.inf]), np.ones(1), np.zeros(1), size)
        # What Q has above each x and below each y. Beyond the last x there are only infinite losses; below the last y
        # there is a chord to (0, 0), some mass at ratio 0.
        none = puts[-1] / y[-1]
        above = np.append(inflated((calls[:-1] - calls[1:]) / np.diff(x), 8.0 * UNIT), 0.0)
        below = np.append(inflated((puts[:-1] - puts[1:]) / -np.diff(y), 8.0 * UNIT), inflated(none, 8.0 * UNIT))
        above, below = (np.maximum.accumulate(part[::-1])[::-1] for part in (above, below))
        # In the middle, from (y_0, 1 - y_0 + puts_0) to (x_0, calls_0).
        gap = x[0] - y[0]
        slack = 8.0 * UNIT * (x.size + y.size + 32.0) * max(1.0, x[0])
        between = (1.0 - y[0] + puts[0] - calls[0] + slack) / gap
        at_x, at_y = between - above[0], 1.0 - below[0] - between
        if gap > 0 and at_x >= 0 and at_y >= 0:
            break
        if gap <= 0 or at_x < 0:
            x, calls = x[1:], calls[1:]
        if gap <= 0 or at_y < 0:
            y, puts = y[1:], puts[1:]
    q_above, q_below = np.append(at_x, above[:-1] - above[1:]), np.append(at_y, below[:-1] - below[1:])
    ratio = np.concatenate([y[::-1], x])
    q = np.concatenate([q_below[::-1], q_above])
    p = inflated(ratio * q, 4.0 * UNIT)
    losses = np.concatenate([[-np.inf], np.log(ratio), [np.inf]])
    return _padded(losses, np.concatenate([[0.0], p, calls[-1:]]), np.concatenate([below[-1:], q, [0.0]]), size)


@np.errstate(all="ignore")
def lower_table(bounds: SumBounds, mirrored: bool, size: int) -> Table:
    """``size`` atoms of a pair that (alternative, base), or (base, alternative) if ``mirrored``, dominates."""
    # The events of all windows, of which there may be none.
    above, below = (Events(*np.concatenate([np.zeros((3, 0)), *events], -1)) for events in (bounds.above, bounds.below))
    if mirrored:
        above, below = Events(below.other, below.base, below.slack), Events(above.other, above.base, above.slack)
    q, p, slack = _test(above.base, above.other, above.slack, size)
    # Small sums: the same with the measures exchanged.
    p_low, q_low, slack_low = _test(below.other, below.base, below.slack, size)
    while True:
        dp, dq = np.diff(p, prepend=0.0), np.diff(q, prepend=0.0)
        dp_low, dq_low = np.diff(p_low, prepend=0.0), np.diff(q_low, prepend=0.0)
        rest_p = 1.0 - (p[-1] if p.size else 0.0) - (p_low[-1] if p_low.size else 0.0)
        rest_q = 1.0 - (q[-1] if q.size else 0.0) - (q_low[-1] if q_low.size else 0.0)
        # The last events' lines hold at every gamma.
        if p.size:
            dp[-1] -= slack[-1]
            rest_p += slack[-1]
        if q_low.size:
            dq_low[-1] -= slack_low[-1]
            rest_q += slack_low[-1]
        rest_p, rest_q = rest_p - 8.0 * UNIT, rest_q + 8.0 * UNIT
        fits_above = not p.size or (dp[-1] > 0 and rest_q > 0 and dp[-1] * rest_q >= rest_p * dq[-1])
        fits_below = not p_low.size or (dq_low[-1] > 0 and rest_p > 0 and rest_p * dq_low[-1] >= dp_low[-1] * rest_q)
        if fits_above and fits_below:
            break
        if not fits_above and p.size:
            p, q, slack = p[:-1], q[:-1], slack[:-1]
        if not fits_below and p_low.size:
            p_low, q_low, slack_low = p_low[:-1], q_low[:-1], slack_low[:-1]
    p, q = np.concatenate([dp_low, [rest_p], dp[::-1]]), np.concatenate([dq_low, [rest_q], dq[::-1]])
    p, q = deflated(p, 8.0 * UNIT), inflated(q, 8.0 * UNIT)
    losses = np.where(q > 0, np.log(p) - np.log(q), np.inf)
    losses = np.where(p > 0, losses, -np.inf)
    return _padded(losses, np.maximum(p, 0.0), np.maximum(q, 0.0), size)


def _test(
    small: np.ndarray, large: np.ndarray, slack: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Events with the best probabilities ``large`` for their ``small``, from the least likely on, with ratio >= 1."""
    good = np.flatnonzero((large > _LEAST) & (small >= 0) & (large > small))
    corners = _hull(np.append(0.0, small[good]), np.append(0.0, -large[good]))
    kept = good[corners[corners > 0] - 1]
    kept = kept[np.diff(large[kept], prepend=0.0) > np.diff(small[kept], prepend=0.0)]
    kept = kept[_some(kept.size, size)]
    return small[kept], large[kept], slack[kept]


def _falling(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points sorted, with bounds of a curve that does not rise: each the least so far."""
    order = np.argsort(x, kind="stable")
    x, values = x[order], np.minimum.accumulate(values[order])
    # Of several bounds at one point the last, which is the least.
    last = np.append(np.diff(x) > 0, True) if x.size else np.zeros(0, bool)
    return x[last], values[last]


def _likely(values: np.ndarray) -> np.ndarray:
    """Which of falling values are needed: those that are more than nothing, and the last one if it is 0."""
    kept = values > _NOTHING
    kept[-1:] |= values[-1:] == 0.0
    return kept


def _hull(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Indices of the corners of the lower convex hull of points, sorted."""
    kept: list[int] = []
    at, of = x.tolist(), values.tolist()
    for i in np.lexsort((values, x)).tolist():
        while len(kept) > 1:
            a, b = kept[-2:]
            if (of[b] - of[a]) * (at[i] - at[a]) < (of[i] - of[a]) * (at[b] - at[a]):
                break
            kept.pop()
        kept.append(i)
    return np.array(kept, np.int64)


def _some(points: int, size: int) -> np.ndarray:
    """Indices of all points, or of as many of them as half a table of ``size`` atoms has room for."""
    most = size // 2 - 4
    return np.arange(points) if points <= most else np.linspace(0, points - 1, most).astype(np.int64)


def _padded(losses: np.ndarray, p: np.ndarray, q: np.ndarray, size: int) -> Table:
    """``size`` atoms, sorted by loss."""
    order = np.argsort(losses, kind="stable")
    spare = size - losses.size
    filled = zip((-np.inf, 0.0, 0.0), (losses, p, q), strict=True)
    return Table(*(np.append(np.full(spare, nothing), part[order]) for nothing, part in filled))
