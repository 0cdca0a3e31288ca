"""Chernoff's bounds on the sums of ratios that a window's lattice leaves out; see `window_law`."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import logsumexp
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.allocation.plan import Window, chernoff_gaps

_NEAR = 4096  # places of a lattice that are told apart


def outside(w: Window, laws: list[tuple[np.ndarray, int]]) -> tuple[float, float]:
    """Bounds of E[exp(theta S); S beyond the lattice], in logarithms, and of E[S; S above it].

    ``laws`` are masses on the lattice of ratios and how many ratios have each.
    """
    start, stop = (w.first - 0.5) * w.step, (w.first + w.points - 0.5) * w.step
    tops = [(masses.size - 1) * w.step for masses, _ in laws]
    ends = sum(count * top for (_, count), top in zip(laws, tops, strict=True))
    beyond, mean = -np.inf, 0.0
    gap = chernoff_gaps(w.high, w.deviation)
    blocks = [(*blocks_of(masses, w.step), count) for masses, count in laws]
    for sign, end, reached in ((1.0, stop, ends > stop), (-1.0, start, start > 0)):
        if not reached:
            continue
        tilts = w.tilt + sign * gap
        moments = 0.0
        for logs, low, high, count in blocks:
            found = logsumexp(logs + np.where(tilts[:, None] > 0, tilts[:, None] * high, tilts[:, None] * low))
            error = UNIT * (2.0 * logs.size + 16.0 + 8.0 * (np.abs(tilts) * high[-1] + np.abs(found) + 700.0))
            moments = moments + count * (found + error)
        bound = moments - sign * gap * end + 1e-12 * (np.abs(moments) + gap * abs(end))
        beyond = np.logaddexp(beyond, bound.min())
        if sign > 0:
            useful = np.where(tilts > 0, moments - tilts * end, np.inf)
            best = int(np.argmin(useful))
            if np.isfinite(useful[best]):
                size = end + 1.0 / (np.e * tilts[best])
                exact = 1e-12 * (abs(moments[best]) + tilts[best] * end)  # pyright: ignore[reportIndexIssue]
                mean = float(inflated(size * np.exp(useful[best] + exact), 1e-12))
            else:
                mean = np.inf
    return float(beyond), mean


def mass_below(log_masses: np.ndarray, values: np.ndarray, end: float, count: int, deviation: float) -> float:
    """Bound of the mass of sums of ``count`` of ``values`` of at most ``end``; their deviation steers."""
    if end <= 0:
        return 0.0
    tilts = -np.geomspace(1e-3 / end, max(1e3 / end, 50.0 / deviation), 128)
    logs = logsumexp(log_masses + tilts[:, None] * values)
    size = np.abs(logs) + np.abs(tilts) * float(values[0]) + 700.0
    error = UNIT * (2.0 * values.size + 32.0 + 8.0 * size)
    bound = count * (logs + error) - tilts * end + 1e-12 * (np.abs(count * logs) + np.abs(tilts) * end)
    return float(min(np.exp(bound.min()), 1.0)) if values[0] * count <= end else 0.0


def blocks_of(masses: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logs of masses on multiples of ``step``, far ones together, rounded up; the least and the largest of each."""
    starts = np.arange(min(masses.size, _NEAR))
    if masses.size > _NEAR:
        far = np.geomspace(_NEAR, masses.size, _NEAR).astype(np.int64)
        starts = np.unique(np.append(starts, far[far < masses.size]))
    ends = np.append(starts[1:], masses.size) - 1
    found = inflated(np.add.reduceat(masses, starts), UNIT * (masses.size + 2.0))
    used = found > 0
    return np.log(found[used]), step * starts[used], step * ends[used]
