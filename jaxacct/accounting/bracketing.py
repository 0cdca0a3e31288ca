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
    """State of ``n`` searches, all arrays of shape ``(n,)``.

    Attributes:
        missing: the most private parameter seen to miss, or the least private one of all while ``~missing_seen``.
        meeting: the least private parameter seen to meet, or the most private one of all while ``~meeting_seen``.
        impossible: the most private parameter of all was seen to miss.
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
        self._sign = 1.0 if more_is_private else -1.0
        self._whole = whole
        self._tolerance = tolerance
        self._start = np.clip(start, low, high)
        self._default_slope = slope
        private, other = (high, low) if more_is_private else (low, high)
        n = low.size
        self.missing, self.meeting = other.astype(float), private.astype(float)
        self._most_private = self.meeting.copy()
        self.missing_seen, self.meeting_seen = np.zeros(n, bool), np.zeros(n, bool)
        self.impossible = np.zeros(n, bool)
        self._gaps = np.full((2, n), np.nan)  # at ``missing`` and at ``meeting``
        self._last = np.full(n, np.nan)  # the last point on the axis, and its gap
        self._last_gap = np.full(n, np.nan)
        self._slope = np.full(n, slope)
        self._repeats = np.zeros(n, int)  # evaluations in a row that moved the same end
        self._moved_meeting = np.zeros(n, bool)
        self._reference = np.full(n, np.inf)  # the bracket's width when it last halved
        self._stalled = np.zeros(n, int)

    def _axis(self, parameter: np.ndarray) -> np.ndarray:
        return self._sign * np.log(parameter)

    @property
    def settled(self) -> np.ndarray:
        """Whether there is nothing left to search: a closed bracket, an end that decides, an impossible target."""
        close = np.abs(self._axis(self.meeting) - self._axis(self.missing)) <= self._tolerance
        if self._whole:
            close |= np.abs(self.meeting - self.missing) <= 1.0
        least_meets = self.meeting_seen & (self.meeting == self.missing)
        return self.impossible | least_meets | (close & self.missing_seen & self.meeting_seen)

    def reject(self, rows: np.ndarray) -> None:
        """Takes back that the meeting ends of ``rows`` meet: they miss, narrowly, and the search goes on from there."""
        end = self.meeting
        self.impossible |= rows & (end == self._most_private)
        self.missing = np.where(rows, end, self.missing)
        self.meeting = np.where(rows, self._most_private, end)
        self.missing_seen |= rows
        self.meeting_seen &= ~rows
        self._moved_meeting &= ~rows
        self._last, self._last_gap = np.where(rows, self._axis(end), self._last), np.where(rows, 0.0, self._last_gap)
        self._gaps = np.where(rows, np.array([[0.0], [np.nan]]), self._gaps)
        self._repeats, self._stalled = np.where(rows, 0, self._repeats), np.where(rows, 0, self._stalled)
        self._reference = np.where(rows, np.inf, self._reference)

    def propose(self) -> np.ndarray:
        """The next parameter of every search; of settled ones the meeting one once more."""
        a, b = self._axis(self.missing), self._axis(self.meeting)
        first = np.isnan(self._last)
        both = self.missing_seen & self.meeting_seen
        with np.errstate(all="ignore"):
            point = np.where(both, self._inside(a, b), self._outside())
        parameter = np.exp(self._sign * np.clip(point, a, b))
        parameter = np.where(first, self._start, parameter)
        # An end that was not seen is tried as it was given, and not as exp(log(end)).
        parameter = np.where(~both & ~first & (point >= b) & ~self.meeting_seen, self.meeting, parameter)
        parameter = np.where(~both & ~first & (point <= a) & ~self.missing_seen, self.missing, parameter)
        if self._whole:
            parameter = self._rounded(parameter)
        return np.where(self.settled, self.meeting, parameter)

    def _inside(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Secant steps, a least step away from both ends, and bisection where that stalls."""
        width = b - a
        gap_a, gap_b = self._gaps
        chord = a + width * gap_a / (gap_a - gap_b)
        secant = self._last + self._last_gap / self._slope
        guess = np.where((secant > a) & (secant < b), secant, chord)
        # One end that moves alone converges, and leaves the other where it was: overshoot to bring that in.
        beyond = 0.5 * self._repeats * np.abs(guess - self._last) * np.where(self._moved_meeting, -1.0, 1.0)
        # Aimed a little beyond the root: a point that hits it neither meets nor provably misses.
        guess = guess + beyond + 0.3 * self._tolerance
        # The best guess is often next to an end, and then the point just beyond it closes the bracket.
        least = np.minimum(0.9 * self._tolerance * 4.0 ** np.maximum(self._repeats - 1, 0), 0.5 * width)
        guess = np.clip(guess, a + least, b - least)
        halve = ~np.isfinite(guess) | (self._stalled >= _PATIENCE)
        return np.where(halve, 0.5 * (a + b), guess)

    def _outside(self) -> np.ndarray:
        """From the last point along the slope, and a little beyond the root so that it is bracketed."""
        gap = self._last_gap
        longest = _FIRST_STEP * 2.0 ** np.minimum(self._repeats, 60)
        least = 0.5 * self._tolerance * 4.0 ** np.minimum(self._repeats, 60)
        step = np.where(np.isfinite(gap), np.abs(gap) / np.maximum(self._slope, _LEAST_SLOPE), np.inf) + least
        return self._last + np.where(self._moved_meeting, -1.0, 1.0) * np.minimum(step, longest)

    def _rounded(self, parameter: np.ndarray) -> np.ndarray:
        """Whole numbers, never one that was already seen."""
        low, high = np.minimum(self.missing, self.meeting), np.maximum(self.missing, self.meeting)
        more = self._sign > 0
        low_seen, high_seen = (self.missing_seen, self.meeting_seen) if more else (self.meeting_seen, self.missing_seen)
        return np.clip(np.rint(parameter), low + low_seen, np.maximum(high - high_seen, low + low_seen))

    def observe(self, parameter: np.ndarray, meets: np.ndarray, gap: np.ndarray) -> np.ndarray:
        """Takes in whether the target was met at the proposed parameters; returns where ``meeting`` moved.

        ``gap`` falls as privacy grows, about linearly, and is about 0 at the root.
        """
        live = ~self.settled
        point = self._axis(parameter)
        with np.errstate(all="ignore"):
            slope = -(gap - self._last_gap) / (point - self._last)
            believable = np.isfinite(slope) & (slope > _SLOPES[0]) & (slope < _SLOPES[1])
            self._slope = np.where(believable, slope, self._default_slope)
        at_private_end = (parameter == self.meeting) & ~self.meeting_seen
        self.impossible |= live & ~meets & at_private_end
        same = (meets == self._moved_meeting) & ~np.isnan(self._last)
        self._repeats = np.where(same, self._repeats + 1, 0)
        moved, missed = live & meets, live & ~meets
        self.meeting = np.where(moved, parameter, self.meeting)
        self.missing = np.where(missed, parameter, self.missing)
        self.meeting_seen |= moved
        self.missing_seen |= missed
        self._gaps = np.where(np.stack([missed, moved]), gap, self._gaps)
        self._moved_meeting, self._last, self._last_gap = meets.copy(), point, gap
        width = np.abs(self._axis(self.meeting) - self._axis(self.missing))
        both = self.missing_seen & self.meeting_seen
        halved = ~both | (width <= 0.5 * self._reference)
        self._stalled = np.where(halved, 0, self._stalled + 1)
        self._reference = np.where(halved, width, self._reference)
        return moved
