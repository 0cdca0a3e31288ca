"""Plans the windows of `sums`: lattices, steps and tilts, chosen from a rough law of the sum of ratios.

Nothing here is certified, and nothing that is certified depends on it: a bad plan makes wide bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import logsumexp
from jaxacct.mechanisms.allocation.ratios import RatioCells

_DEEPEST = 48.0  # e-foldings of calls and puts that are of interest
_PART = 24.0  # e-foldings of a window
_LEAST = 4.0  # a window of so few is not made smaller
ALIAS = 46.0  # e-foldings of what comes round
_TIERS = (
    (14.0, (1e-4, 1e-3), 3 * 2**17),
    (20.0, (3e-4, 1e-3), 3 * 2**16),
    (26.0, (5e-3, 2e-2), 3 * 2**16),
    (np.inf, (5e-2, 2e-1), 2**16),
)
"""Up to so many e-foldings: relative changes of calls by rounding aimed at, at both ends of a window; most points."""
_POINTS = tuple(sorted(2**n * factor for n in range(7, 17) for factor in (4, 5, 6)))
_SKETCH = (8.0, 16.0)  # points of the rough law, for large and for small sums, between square roots of e-foldings
_SORTED = 2**15  # places of a rough law that are sorted
_RANGE = 25.0  # standard deviations on a lattice, about
_MOST = 16  # windows on a side
_ORDERS = 8.0  # a window over a larger ratio of sums is halved geometrically
_EASE, _EASIEST = 20.0, 30.0  # lengths in a sum beyond which a relative change of calls matters less; times as much
_BAD = 30.0  # times what is aimed at
_TRIALS = 10  # of smaller and smaller windows
_INSIDE = np.append(0.0, np.geomspace(0.003, 1.0, 12))  # parts of a window at which it is judged
_TOGETHER = 6  # cells of ratios that a plan takes as one
_ROUNDING = 1.6e-14  # of an entry of an FFT
_TINY = 1e-300  # what is divided by is no less


class Window(NamedTuple):
    """See :mod:`jaxacct.mechanisms.allocation.sums`.

    Attributes:
        upper: whether it is for calls and large sums, or for puts and small ones.
        low, high: the values of the sum that it is for.
        cut: index of the last cell of ratios that takes part.
        tilt: theta.
        step: of the lattice; a float64 with some 20 digits, so that multiples are exact.
        first, points: the lattice of sums, in steps; ``points`` is 2^k, 3 2^k or 5 2^k.
        deviation: about the standard deviation of the tilted sum.
    """

    upper: bool
    low: float
    high: float
    cut: int
    tilt: float
    step: float
    first: int
    points: int
    deviation: float


@np.errstate(all="ignore")
def planned(cells: RatioCells, t: int) -> list[Window]:
    """Windows for the sum of ``t`` ratios, first upwards and then downwards from its mean."""
    law = _Law(cells, t)
    sketches = [_powered(*_merged(law.values, np.exp(law.logs), points), t, points) for points in _SKETCH]
    return [
        window
        for upper, sketch in zip((True, False), sketches, strict=True)
        for window in _one_side(law, upper, *sketch)
    ]


def _one_side(law: _Law, upper: bool, values: np.ndarray, masses: np.ndarray) -> list[Window]:
    """Windows from the mean upwards, or downwards, for a rough law of the sum."""
    side, t = (1.0 if upper else -1.0), float(law.t)
    s, masses = (side * values, masses) if upper else (side * values[::-1], masses[::-1])
    # In units of ``side`` both are calls: rising s, falling curves.
    beyond = np.append(np.cumsum(masses[::-1])[::-1][1:], 0.0)
    calls = np.append(np.cumsum((beyond[:-1] * np.diff(s))[::-1])[::-1], 0.0)
    good = (calls > 0) & (beyond > 0)
    s, depths, lengths, tails = s[good], -np.log(calls[good] / t), calls[good] / beyond[good], -np.log(beyond[good])
    if not s.size or s[-1] <= side * t:
        return []
    end = float(s[min(np.searchsorted(depths, _DEEPEST), s.size - 1)])
    depth = lambda at: float(np.interp(at, s, depths))  # noqa: E731
    length = lambda at: float(np.interp(at, s, lengths))  # noqa: E731
    start, windows = side * t, []
    while end - start > 1e-9 * t and len(windows) < _MOST:
        stop = min(float(np.interp(depth(start) + _PART, depths, s)), end)
        stop = stop if stop > start else end
        best, worst, last = None, np.inf, stop
        sharp, most = next(tier[1:] for tier in _TIERS if depth(start) < tier[0])
        for _ in range(_TRIALS):
            at = start + (stop - start) * _INSIDE
            curves = np.interp(at, s, tails), np.interp(at, s, depths)
            ends, lengths_there = (start, stop), (length(start), length(stop))
            # What a relative change of calls does to epsilon is that times the length over the sum.
            eased = sharp * np.clip((np.abs(ends) / (_EASE * np.array(lengths_there))) ** 2, 1.0, _EASIEST)
            window, blur = law.window(side, at, *curves, lengths_there, tuple(eased), most)
            if best is not None and blur > 0.6 * worst and worst < _BAD:
                break  # a smaller part does not help
            best, worst, last = window, blur, stop
            if blur <= 1.0 or depth(stop) - depth(start) < _LEAST or len(windows) == _MOST - 1:
                break
            # Over many orders of magnitude, half of them.
            many = max(stop / start, start / stop) > _ORDERS
            stop = side * (start * stop) ** 0.5 if many else start + (stop - start) / np.clip(blur**0.5, 1.5, 20.0)
        windows.append(best)
        start = last
    return windows


class _Law:
    """The ratio's law, and what a window of its sum needs."""

    def __init__(self, cells: RatioCells, t: int) -> None:
        self.first, mass, mean = merged_cells(cells)
        self.values, self.logs = mean / mass, np.log(mass)
        self.right = cells.right[np.minimum(self.first + _TOGETHER, cells.right.size) - 1]
        self.cells, self.t = cells, t
        tilts = -np.geomspace(1e-4, 1e7, 80) / t
        self.least = float((-(self._moments(tilts, slice(None)) + ALIAS) / -tilts).max())

    def _moments(self, tilts: np.ndarray, own: slice | np.ndarray) -> np.ndarray:
        return self.t * logsumexp(self.logs[own] + tilts[:, None] * self.values[own])

    def window(
        self,
        side: float,
        at: np.ndarray,
        tails: np.ndarray,
        depths: np.ndarray,
        lengths: tuple[float, float],
        sharp: tuple[float, float],
        most: int,
    ) -> tuple[Window, float]:
        """A window of at most ``most`` points for sums ``at``, and how much worse it is than what is aimed at.

        Tails and calls are exp(-``tails``) and exp(-``depths``) there. Calls fall on ``lengths`` at both ends, and may
        have the relative errors ``sharp`` by rounding there.
        """
        t, cells = self.t, self.cells
        sums = side * at
        high = float(sums.max())
        # Where large ratios are rare enough, or decide alone, they are not worth a tilted place.
        cut = int(min(np.searchsorted(cells.right, high * (1.0 + 1e-6)), cells.right.size - 1))
        if side > 0:
            alone = cells.right >= high - max(self.least, 0.0) * (t - 1.0) / t
            rare = cells.other_over[1] + t * cells.base_over[1] <= 1e-5 * np.exp(-depths[-1])
            cut = int(np.argmax(alone | rare)) if (alone | rare).any() else cut
        own = self.first <= cut
        own = own if own.sum() > 1 else slice(None)
        tilts = np.append(0.0, side * np.geomspace(0.1, 60.0, 16) / abs(at[-1] - at[0]))
        moments = self._moments(tilts, own)
        # In the tilted law, next to what rounding may be there: the more of it the rarer the sums are.
        allowed = np.log(sharp[1]) + np.clip((depths - 20.0) / 2.0, 0.0, 4.0)
        weight = (tilts[:, None] * sums - tails - moments[:, None] + allowed).min(-1)
        values = self.values[own]
        weights = np.exp(self.logs[own] + tilts[:, None] * values - moments[:, None] / t)
        means = (weights * values).sum(-1, keepdims=True)
        deviations = np.maximum((t * (weights * (values - means) ** 2).sum(-1)) ** 0.5, 1e-9 * t)
        shortest = min(length * aim**0.5 for length, aim in zip(lengths, sharp, strict=True))
        reached = (t / 12.0) ** 0.5 * np.maximum(_RANGE * deviations, high - sums.min()) / most / shortest
        # Errors of tails add up over the length on which the weights fall.
        added = np.minimum(1.0 / np.maximum(np.abs(tilts), 1e-300), _RANGE * deviations) / min(lengths) + 1.0
        best = int(np.argmin(np.maximum(reached**2, 12.0 * _ROUNDING * t * added * np.exp(-weight))))
        tilt, faint, here = float(tilts[best]), float(-weight[best]), float(moments[best])
        deviation, weights = float(deviations[best]), weights[best]
        gaps = chernoff_gaps(high, deviation)
        # Of the alternative, which has one larger ratio; and no ratio is less than it is.
        right = np.minimum(self.right[own], cells.right[cut])
        sized, tilts = self.logs[own] + np.log(right), (tilt + gaps)[:, None]
        larger = logsumexp(sized + tilts * right) - logsumexp(sized + tilt * right)
        several = t * logsumexp(self.logs[own] + np.where(tilts > 0, tilts * right, tilts * values))
        top = float(((several - here + larger + ALIAS) / gaps).min())
        bottom = float((-(self._moments(tilt - gaps, own) - here + ALIAS) / gaps).max())
        top = min(max(top, high), t * float(right[-1])) + 0.01 * deviation
        bottom = max(min(bottom, float(sums.min())), 0.0)
        allowed = 2.0 * min(max(length**2, _TINY) * aim for length, aim in zip(lengths, sharp, strict=True))
        step, first, points, blur = lattice(bottom, top, most, values, t * weights, allowed)
        window = Window(side > 0, float(sums.min()), high, cut, tilt, step, first, points, deviation)
        floor = _ROUNDING * (12.0 * t + points / (1.0 + 2.5 * deviation / step)) * np.exp(faint) * float(added[best])
        return window, max(blur, floor)


def merged_cells(cells: RatioCells) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A few hundred points, neighbouring cells as one: the first cell of each, and its masses in the middle."""
    base, other = (0.5 * (low + high) for low, high in (cells.base, cells.other))
    starts = np.arange(0, base.size, _TOGETHER)
    mass, mean = np.add.reduceat(base, starts), np.add.reduceat(other, starts)
    return starts[mass > 0], mass[mass > 0], mean[mass > 0]


def lattice(
    low: float, high: float, most: int, values: np.ndarray, weights: np.ndarray, allowed: float, finest: float = 0.0
) -> tuple[float, int, int, float]:
    """``(step, first, points, blur)`` of the coarsest lattice of sums that is fine enough, or one of ``most`` points.

    Steps have 20 digits. ``values`` rounded to it at random, each ``weights`` times, add ``blur`` times ``allowed`` to
    the variance of a sum.
    """
    points, step, blur = 0, np.inf, np.inf
    for points in (points for points in _POINTS if points <= most):
        mantissa, exponent = np.frexp(max((high - low) / (points - 8), finest))
        step = float(np.ldexp(np.ceil(mantissa * 2.0**20) / 2.0**20, exponent))
        part = values / step
        part = part - np.floor(part)
        blur = float((weights * part * (1.0 - part)).sum()) * step**2 / allowed
        if blur <= 1.0:
            break
    return step, max(int(np.floor(low / step)) - 2, 0), points, blur


def chernoff_gaps(high: float, deviation: float) -> np.ndarray:
    """Differences to a tilt at which Chernoff's bound may be good, for sums up to about ``high``."""
    return np.geomspace(min(0.2 / deviation, 1.0 / high), 50.0 / deviation, 32)


def _merged(values: np.ndarray, masses: np.ndarray, points: float) -> tuple[np.ndarray, np.ndarray]:
    """A law on a hundred points or two: even in the square roots of the e-foldings of its tails."""
    order = np.argsort(values)
    values, masses = values[order], masses[order]
    means = values * masses
    below, above = np.cumsum(masses), np.cumsum(means[::-1])[::-1]
    place = np.log(np.maximum(below, 1e-300)) - np.log(np.maximum(above, 1e-300))
    place = np.sign(place) * np.sqrt(np.abs(place))
    group = np.floor(place * points)
    starts = np.flatnonzero(np.append(True, np.diff(group) > 0))
    total, mean = np.add.reduceat(masses, starts), np.add.reduceat(means, starts)
    kept = (total > 1e-60) | (mean > 1e-60)
    return mean[kept] / total[kept], total[kept]


def _powered(values: np.ndarray, masses: np.ndarray, t: int, points: float) -> tuple[np.ndarray, np.ndarray]:
    """The rough law of a sum of ``t``."""
    result = (values, masses)
    for bit in bin(t)[3:]:
        result = _added(result, result, points)
        if bit == "1":
            result = _added(result, (values, masses), points)
    return result


def _added(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray], points: float):
    """The rough law of the sum of two; many places are put together by distance from the mean and from 0, to 2^-6."""
    values = np.add.outer(first[0], second[0]).ravel()
    masses = np.multiply.outer(first[1], second[1]).ravel()
    kept = masses * np.maximum(values, 1.0) > 1e-50
    values, masses = values[kept], masses[kept]
    if values.size > _SORTED:
        center = float((first[0] * first[1]).sum() + (second[0] * second[1]).sum())
        far, least = values - center, np.float64(2.0**-20 * center).view(np.int64) >> 46
        places = np.maximum((np.abs(far).view(np.int64) >> 46) - least, 0)
        places = np.where(far < 0, -places, places) + (values.view(np.int64) >> 46)
        places -= places.min()
        masses, means = np.bincount(places, masses), np.bincount(places, masses * values)
        values, masses = means[masses > 0] / masses[masses > 0], masses[masses > 0]
    return _merged(values, masses, points)
