"""Root finding for a whole batch: all brackets shrink together, with one batched evaluation per round.

Parameters are searched on a logarithmic axis on which privacy grows. A point *misses* or *meets* its target, and the
search only ever trusts that: the bracket's one end was seen to miss, its other end was seen to meet. A second number
per evaluation, the ``gap`` (0 at the root, about linear on the axis), says where to look next; a wrong gap costs
evaluations and nothing else.
"""

from __future__ import annotations

import numpy as np

_FIRST_STEP = np.log(8.0)  # the longest step before a root is bracketed; doubles while it is not
_PATIENCE = 4  # evaluations within which a bracket must halve, or it is bisected
_SLOPES = (0.01, 50.0)  # slopes of the gap that are more than noise
_LEAST_SLOPE = 0.3  # of an extrapolation


class Brackets:
    """State of ``n`` searches.

    Attributes:
        ends: the most private parameter seen to miss, or the least private one of all; and the least private parameter
            seen to meet, or the most private one of all; shape ``(2, n)``.
        seen: whether the ends were seen.
    """

    def __init__(
        self,
        low: np.ndarray,
        high: np.ndarray,
        *,
        more_is_private: bool,
        whole: bool,
        tolerance: float,
        start: np.ndarray,
        slope: float,
    ) -> None:
        self._sign = 1 if more_is_private else -1
        self._whole, self._tolerance, self._default_slope = whole, tolerance, slope
        self._start = np.clip(start, low, high)
        self.ends = np.stack([low, high][:: self._sign])
        self.seen = np.zeros(self.ends.shape, bool)
        self._most_private = self.ends[1].copy()
        self._gaps = np.full(self.ends.shape, np.nan)
        self._met = np.zeros(low.size, bool)  # which end moved last,
        self._repeats = np.zeros(low.size, int)  # and how often it has since the other one did
        self._slope = np.full(low.size, slope)
        self._width = np.full(low.size, np.inf)  # of the bracket when it last halved,
        self._stalled = np.zeros(low.size, int)  # and evaluations since

    @property
    def meeting(self) -> np.ndarray:
        """The least private parameter seen to meet, or the most private one of all."""
        return self.ends[1]

    @property
    def impossible(self) -> np.ndarray:
        """Where the most private parameter of all was seen to miss."""
        return self.seen[0] & (self.ends[0] == self._most_private)

    @property
    def settled(self) -> np.ndarray:
        """Whether there is nothing left to search: a closed bracket, an end that decides, an impossible target."""
        close = np.abs(np.diff(np.log(self.ends), axis=0)[0]) <= self._tolerance
        if self._whole:
            close |= np.abs(np.diff(self.ends, axis=0)[0]) <= 1.0
        least_meets = self.seen[1] & (self.ends[0] == self.ends[1])
        return self.impossible | least_meets | (close & self.seen.all(0))

    def reject(self, rows: np.ndarray) -> None:
        """Takes back that the meeting ends of ``rows`` meet: they miss, narrowly, and the search goes on from there."""
        self.ends = np.where(rows, np.stack([self.ends[1], self._most_private]), self.ends)
        self.seen = np.where(rows, [[True], [False]], self.seen)
        self._gaps = np.where(rows, 0.0, self._gaps)
        self._met, self._repeats = self._met & ~rows, np.where(rows, 0, self._repeats)

    def _last(self) -> tuple[np.ndarray, np.ndarray]:
        """Where on the axis the last end moved to, and the gap there."""
        points = self._sign * np.log(self.ends)
        return np.where(self._met, points[1], points[0]), np.where(self._met, self._gaps[1], self._gaps[0])

    @np.errstate(all="ignore")
    def propose(self) -> np.ndarray:
        """The next parameter of every search; of settled ones the meeting one once more.

        It is where the gap's slope leads, and a little beyond, so that the root is bracketed: further each time that
        the same end moves.
        """
        (a, b), (last, gap) = self._sign * np.log(self.ends), self._last()
        further = 4.0 ** np.minimum(self._repeats, 60)
        longest = _FIRST_STEP * 2.0 ** np.minimum(self._repeats, 60)
        step = np.abs(gap) / np.maximum(self._slope, _LEAST_SLOPE) + 0.3 * self._tolerance * further
        point = last + np.where(self._met, -1.0, 1.0) * np.fmin(step, longest)
        # The best guess is often next to an end, and then the point just beyond it closes the bracket.
        least = np.minimum(0.9 * self._tolerance * np.maximum(further / 4.0, 1.0), 0.5 * (b - a))
        halve = (self._stalled >= _PATIENCE) | ~np.isfinite(gap)
        inside = np.where(halve, 0.5 * (a + b), np.clip(point, a + least, b - least))
        point = np.where(self.seen.all(0), inside, point)
        # An end that was not seen is tried as it was given, and not as exp(log(end)).
        parameter = np.where(point >= b, self.ends[1], np.where(point <= a, self.ends[0], np.exp(self._sign * point)))
        parameter = np.where(self.seen.any(0), parameter, self._start)
        if self._whole:  # numbers, never one that was already seen
            (low, high), (low_seen, high_seen) = self.ends[:: self._sign], self.seen[:: self._sign]
            parameter = np.clip(np.rint(parameter), low + low_seen, np.maximum(high - high_seen, low + low_seen))
        return np.where(self.settled, self.meeting, parameter)

    def observe(self, parameter: np.ndarray, meets: np.ndarray, gap: np.ndarray) -> np.ndarray:
        """Takes in whether the target was met at the proposed parameters; returns where the meeting end moved.

        ``gap`` falls as privacy grows, about linearly, and is about 0 at the root.
        """
        last, last_gap = self._last()
        with np.errstate(all="ignore"):
            slope = (last_gap - gap) / (self._sign * np.log(parameter) - last)
        believable = (slope > _SLOPES[0]) & (slope < _SLOPES[1])
        self._slope = np.where(believable, slope, self._default_slope)
        self._repeats = np.where((meets == self._met) & self.seen.any(0), self._repeats + 1, 0)
        moved = np.stack([~meets, meets]) & ~self.settled
        self.ends, self._gaps = np.where(moved, parameter, self.ends), np.where(moved, gap, self._gaps)
        self.seen, self._met = self.seen | moved, meets.copy()
        width = np.abs(np.diff(np.log(self.ends), axis=0)[0])
        halved = ~self.seen.all(0) | (width <= 0.5 * self._width)
        self._width, self._stalled = np.where(halved, width, self._width), np.where(halved, 0, self._stalled + 1)
        return moved[1]
