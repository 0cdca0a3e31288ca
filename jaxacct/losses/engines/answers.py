"""The answers to a batch of concrete questions while engines work on them: bounds so far, and which are settled."""

from __future__ import annotations

import functools

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.losses.engines.devices import Spread
from jaxacct.losses.engines.run import Answer, Options, in_chunks
from jaxacct.mechanisms.pairs.base import Pair

_NOTHING = 1e-280  # a delta that no second engine makes smaller
_DEEP = 1e-12
_TIGHT = {"delta": 9.5e-4, "deep": 5e-3, "epsilon": 5e-4}  # relative width that asks for no second engine
_BESIDE = 0.02  # width of the logarithm of a delta over its distance from a limit that is narrow beside it
_FAR = 10.0  # distance of that logarithm beyond which its width hardly matters


Query = tuple[tuple[Pair, ...], Array, Array]  # groups of pairs, how often each runs, and the goals


class Answers:
    """Bounds ``lower`` and ``upper``, shape ``(batch,)``, which engines narrow in turn; NumPy's.

    Questions are named by their places in the batch, ``members``. Where several engines answered, the intersection of
    their bounds holds. The batch is ``sides`` directions of the same settings, one after the other, of which only the
    worst counts.
    """

    def __init__(self, kind: str, query: Query, options: Options, sides: int) -> None:
        self.kind, self.query, self.options, self.sides = kind, query, options, sides
        self.total = query[-1].size
        self.lower, self.upper = np.zeros(self.total), np.full(self.total, np.inf if kind == "epsilon" else 1.0)
        self._spread, self._done = Spread(options.devices), 0

    def some(self, members: np.ndarray) -> Query:
        """The questions of these members."""
        return jax.tree.map(lambda x: x[members], self.query)

    def by_direction(self, members: np.ndarray) -> list[np.ndarray]:
        """The members of each direction."""
        return [members[members // (self.total // self.sides) == side] for side in range(self.sides)]

    def attempt(
        self,
        run: functools.partial[Answer],
        each: float,
        members: np.ndarray,
        width: float | None = None,
        query: tuple[object, ...] | None = None,
    ) -> np.ndarray:
        """Takes what ``run`` answers; returns the members that are still open, wider than ``width`` among them.

        One part of a question is work of size ``each`` (:func:`in_chunks`). ``run`` takes ``query`` if not all is.
        """
        parts = self.query[1].shape[1]
        for some, low, high in in_chunks(run, parts * each, query or self.query, members, self._spread):
            self.narrow(some, low, high)
        return self.still_open(members, width)

    def narrow(self, members: np.ndarray, low: Array, high: Array) -> None:
        """Takes further bounds."""
        self.lower[members] = np.maximum(self.lower[members], low)
        self.upper[members] = np.minimum(self.upper[members], high)

    def still_open(self, members: np.ndarray, width: float | None = None) -> np.ndarray:
        """The members that are not settled; reports how many are."""
        left = members[~self.settled(members, width)]
        self.report(members.size - left.size)
        return left

    def report(self, settled: int) -> None:
        """Tells the caller that so many more are settled."""
        self._done += settled
        if self.options.progress is not None and settled:
            self.options.progress(self._done, self.total)

    def settled(self, members: np.ndarray, width: float | None = None) -> np.ndarray:
        """Which are tight, and of at most that relative width, or no worse than another direction that is."""
        tight = self.narrow_enough(width)
        tight = tight | (self.upper <= self.worst(tight))
        if self.options.limit is not None:
            tight |= _beside(self.lower, self.upper, self.options.limit, self.sides)
        return tight[members]

    def narrow_enough(self, width: float | None = None) -> np.ndarray:
        """Which bounds are tight, and of at most that relative width."""
        tight = _tight(self.kind, self.lower, self.upper)
        return tight if width is None else tight & (self.lower >= (1.0 - width) * self.upper)

    def worst(self, tight: np.ndarray) -> np.ndarray:
        """Of every setting the largest upper bound that is tight, of whatever direction; -inf if none is."""
        return np.tile(np.where(tight, self.upper, -np.inf).reshape(self.sides, -1).max(0), self.sides)


def _tight(kind: str, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    tight = (upper == lower) | (upper < np.inf) & (lower >= (1.0 - _TIGHT[kind]) * upper)
    if kind == "epsilon":
        return tight
    return tight | (upper < _DEEP) & (lower >= (1.0 - _TIGHT["deep"]) * upper) | (upper < _NOTHING)


def _beside(lower: np.ndarray, upper: np.ndarray, limit: np.ndarray, sides: int) -> np.ndarray:
    """Which bounds lie on one side of the limit, and are narrow beside their distance from it or far away."""
    tiny = np.finfo(np.float64).tiny
    low, high, log_limit = (np.log(np.maximum(x, tiny)) for x in (lower, upper, limit))

    def enough(distance: np.ndarray) -> np.ndarray:
        return (distance >= _FAR) | (distance > 0) & (high - low <= _BESIDE * distance)

    missed = enough(low - log_limit)  # and with it the setting, whatever its other directions
    return np.tile(missed.reshape(sides, -1).any(0), sides) | enough(log_limit - high)
