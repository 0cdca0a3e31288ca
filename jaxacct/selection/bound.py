"""Bounds of the curve of the best of a random number of runs, from the curve of one run.

With P, Q the pair of one run, T(t) the most that an event of Q-probability t can have under P, and phi the generating
function of the number of runs, the worst order of the outputs has (docs/theorems/private-selection.md)

    delta(epsilon) = max over b of the integral over t of (phi'(T(b) - T(t)) T'(t) - e^epsilon phi'(b - t))_+,

b a function of t that does not rise: outputs of high loss, the likeliest under P on top, are an event; where t of them
have passed, those of the 1 - b lowest losses stand above. Upper bounds take the best b for each t.
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.selection.counts import ROUNDING, NegativeBinomial, Poisson, Table
from jaxacct.summaries.curve import least

Count = Poisson | NegativeBinomial | Table
_PLACES = 700  # in each of two dimensions, of which at least _ADDED are no corners of one run's curve
_ADDED = 300
_FAR = 60.0  # below its largest: from where on log phi' is next to nothing
_EVEN = 1000  # trapezoids, which are above a convex function
_ROWS = 32  # of a table, which stay in a processor's cache
_MOVED = 1e-13  # more than the rounding of a difference of places
_ROUGH = 1e-8  # relative: differences of u, in a derivative that may change by 1e7 of itself for each unit
OUTCOMES = 256


class WorstOrder:
    """The worst order of the outputs in one direction, for one distribution of the number of runs."""

    def __init__(self, count: Count, losses: Array, lower: Array, upper: Array) -> None:
        """Tables of phi', which serve at every epsilon.

        Args:
            count: the number of runs.
            losses: epsilons of one run on a lattice, negative ones as well, shape ``(n,)``.
            lower, upper: both bounds of one run's delta there, in the same direction.
        """
        self.count, self._curve = count, (losses, lower, upper)
        t, most = _trade_off(losses, upper)
        z, number = np.geomspace(1e-15, 1.0, 4000), max(_PLACES - t.size, _ADDED)
        # The event's places t, and the shares under P there, which begin with the infinite losses.
        some = np.unique(np.concatenate([z, np.interp(z, most, t)]))
        some = _apart(count, 1.0 - np.interp(some, t, most), 1.0 - some, some, number)
        self.t = np.unique(np.concatenate([t[t <= some[-1]], some]))
        self.v = np.interp(self.t, t, most)
        infinite = count.derivative(_inside(1.0 - self.v[0] * np.linspace(0.0, 1.0, _EVEN + 1) + _MOVED))
        beyond = float(count.generating(1.0 - self.v[-1]) - count.generating(np.zeros(())))
        self.rest = self.v[0] * np.mean(0.5 * (infinite[1:] + infinite[:-1])) * (1.0 + ROUNDING) + max(beyond, 0.0)
        # What stands above the event, b down to where phi' is next to nothing: from there on it costs nothing.
        some = np.unique(np.concatenate([z, 1.0 - np.interp(1.0 - z, most, t)]))
        some = 1.0 - _apart(count, np.interp(1.0 - some, t, most), 1.0 - some, some, number)
        self.b = np.unique(np.concatenate([t[t >= some[-1]], some]))
        above = np.interp(self.b, t, most)
        used = np.append(self.b[1:], 1.0) > np.append(0.0, self.t[:-1])[:, None]  # some cell around it has b above t
        gain = _extended(count, above - self.v[:, None] + _MOVED)
        cost = np.maximum(self._costs(), 0.0) * (1.0 - ROUNDING)
        cost = np.minimum.accumulate(cost[:, ::-1], 1)[:, ::-1]  # does not fall in b
        cost[:, 0] *= self.b[0] == 0.0
        self.gain, self.cost = np.where(used, gain + ROUNDING * np.abs(gain), 0.0), np.where(used, cost, 0.0)

    def _costs(self) -> Array:
        """Phi' of what is below, less how far a chord may be above it in any cell at that place."""
        t, b = self.t[:, None], self.b
        # phi' is convex, and its second derivative does not fall, so chords are above it by at most this. Where that
        # says too little, a chord is at most the cell's largest value, and phi' at least the smallest.
        large, small = (_extended(self.count, x - _MOVED) for x in (b[1:] - t[:-1], b[:-1] - t[1:]))
        chord = self.count.derivative(_inside(b[1:] - t[:-1]), 3) * (np.diff(t, axis=0) ** 2 + np.diff(b) ** 2) / 8.0
        most = np.zeros((t.size + 1, b.size + 1))
        most[1:-1, 1:-1] = np.where(chord <= small, chord, large - small)
        most = np.maximum(most[1:], most[:-1])
        return _extended(self.count, b - t - _MOVED) - np.maximum(most[:, 1:], most[:, :-1])

    def bound(self, epsilons: Array) -> Array:
        """Upper bounds of delta at ``epsilons``, which rise.

        The best b for a t falls as epsilon rises, and a t that has left the event does not come back.
        """
        found = np.zeros(epsilons.size)
        p, q = np.diff(self.v), np.diff(self.t)
        cells = [(slice(0, p.size), p, q), (slice(1, p.size + 1), p, q)]  # at both ends of each
        for rows, p, q in cells:
            gain, cost = self.gain[rows], self.cost[rows]
            for start in range(0, p.size, _ROWS):
                some = slice(start, start + _ROWS)
                columns, share, price = self.b.size, p[some, None], q[some, None]
                for i, epsilon in enumerate(epsilons):
                    table = share * gain[some, :columns] - np.exp(epsilon) * price * cost[some, :columns]
                    best = np.argmax(table, 1)
                    values = table[np.arange(best.size), best]
                    columns = int(np.max(best, initial=-1, where=values > 0.0)) + 1
                    if columns == 0:
                        break
                    found[i] += 0.5 * np.sum(np.maximum(values, 0.0))
        released = 1.0 - float(self.count.generating(np.zeros(())))  # without a run, nothing is
        return np.minimum(found * (1.0 + ROUNDING) + self.rest, released * (1.0 + ROUNDING))

    def attained(self, epsilon: float) -> tuple[Array, Array]:
        """Probabilities with and without the record of the best run's output, for an order that is bad at ``epsilon``.

        Returns:
            Two tables of OUTCOMES probabilities, the last of what is in no event. They are a post-processing of the
            best run: probabilities under P are rounded down, those under Q up.
        """
        losses, lower, upper = self._curve
        u = np.unique(np.concatenate([self.t, self.b, [1.0]]))
        least_p = least(losses, lower, upper, u)
        v, at = _hull(np.append(0.0, least_p), np.append(0.0, u))
        t, x = self.t, np.interp(self.t, at, v)  # infinite losses are no more than the last finite ones here
        q = np.diff(t)
        p = np.diff(x)
        table = p[:, None] * self.gain[:-1] - np.exp(epsilon) * q[:, None] * self.cost[:-1]
        b = np.minimum.accumulate(self.b[::-1][np.argmax(table[:, ::-1], 1)])  # of several the largest
        fits = np.append(b >= t[1:], False)
        cells = int(np.argmin(fits))
        b, t, q, x, p = b[:cells], t[:cells], q[:cells], x[:cells], p[:cells]
        # phi' is convex: the midpoint's value is below its mean, that of the ends above it.
        gain = p * self.count.derivative(_inside(np.interp(b, at, v) - x - 0.5 * p))
        ends = self.count.derivative(_inside(b - t)) + self.count.derivative(_inside(b - t - q))
        p, q = np.cumsum(gain) * (1.0 - _ROUGH), np.cumsum(0.5 * q * ends) * (1.0 + _ROUGH)
        good = (p < 1.0) & (q < 1.0)
        p, q = np.append(0.0, p[good]), np.append(0.0, q[good])
        p, q = _hull(np.append(p, 1.0), np.append(q, 1.0))  # the rest as well: it may have the largest ratio
        p, q = _thinned(p), _thinned(q)
        p, q = (np.append(np.diff(x), 1.0 - x[-1]) for x in (p, q))
        spare = np.zeros(OUTCOMES - p.size)
        return np.concatenate([spare, p]), np.concatenate([spare, q])


def _trade_off(losses: Array, upper: Array) -> tuple[Array, Array]:
    """Corners of a function that is nowhere below T: places t from 0 to 1, and its values.

    One run's delta is convex in e^loss, so the chords between its upper bounds are above it. T(t) is at most
    delta + e^loss t of each bound; corners are where two that follow each other meet.
    """
    falling, x = _hull(np.append(-1.0, -upper), np.append(0.0, np.exp(losses)))
    t = np.unique(_inside(np.concatenate([[0.0], np.diff(falling) / np.diff(x), [1.0]])))
    most = np.array([np.min(x * one - falling) for one in t]) * (1.0 + ROUNDING)
    return t, np.maximum.accumulate(np.minimum(most, 1.0))


def _apart(count: Count, p: Array, q: Array, places: Array, number: int) -> Array:
    """A ``number`` of ``places``, between which log phi' changes little, up to where that of ``p`` is far down.

    Args:
        count: the number of runs.
        p, q: probabilities at ``places``, which fall from 1.
        places: from 0 to 1.
        number: how many.
    """
    with np.errstate(divide="ignore"):
        logs = [np.log(count.derivative(np.append(1.0, part))) for part in (p, q)]
    falls = [np.minimum(log[0] - log, 2.0 * _FAR) for log in logs]
    change = np.cumsum(np.maximum(*(np.diff(fall) for fall in falls)))
    end = np.sum(falls[0][1:-1] < _FAR)
    found = np.interp(change[end] * np.linspace(0.0, 1.0, number + 1)[1:] ** 1.5, change, places)
    return np.append(found[:-1], places[end])


def _extended(count: Count, x: Array) -> Array:
    """Phi', with its tangent at 0 below."""
    return count.derivative(_inside(x)) + float(count.derivative(np.zeros(()), 2)) * np.minimum(x, 0.0)


def _inside(x: Array) -> Array:
    return np.clip(x, 0.0, 1.0)


def _hull(p: Array, q: Array) -> tuple[Array, Array]:
    """The upper concave hull of the points (q, p), of which the first has the least p and q."""
    kept: list[int] = []
    for i in range(p.size):
        while len(kept) > 1:
            a, b = kept[-2:]
            if (p[b] - p[a]) * (q[i] - q[b]) > (p[i] - p[b]) * (q[b] - q[a]):
                break
            kept.pop()
        if not kept or (p[i] > p[kept[-1]] and q[i] >= q[kept[-1]]):
            kept.append(i)
    return p[kept], q[kept]


def _thinned(x: Array) -> Array:
    return x[np.unique(np.linspace(0, x.size - 1, OUTCOMES - 2).astype(int))]
