"""`Narrowing`: the bounds of a batch while engines narrow them, one after the other."""

from __future__ import annotations

import functools

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.losses.engines.run import Answer, Options, in_chunks
from jaxacct.mechanisms.pairs.base import Pair

_TIGHT = {"delta": 9.5e-4, "deep": 5e-3, "epsilon": 5e-4}  # relative width that asks for no second engine
_DEEP = 1e-12  # a delta below which bounds may be as wide as "deep"
_NOTHING = 1e-280  # a delta that no second engine makes smaller
_BESIDE = 0.02  # width of the logarithm of a delta over its distance from a limit that is narrow beside it
_FAR = 10.0  # distance of that logarithm beyond which its width hardly matters


class Narrowing:
    """Bounds of a flat batch of concrete queries.

    The batch is ``sides`` directions of the same settings, one after the other. Only the worst direction of a setting
    counts, so that a direction is settled if it is no worse than another one whose bounds are tight. Members of the
    batch are named by their places in it.

    Attributes:
        kind: ``"delta"`` or ``"epsilon"``.
        groups, counts, goal: the queries; see :func:`jaxacct.losses.engines.choose.grouped`.
        options, sides: see :func:`jaxacct.losses.engines.choose.bounds`.
        lower, upper: the bounds so far.
    """

    def __init__(
        self, kind: str, groups: tuple[Pair, ...], counts: Array, goal: Array, options: Options, sides: int
    ) -> None:
        self.kind, self.groups, self.counts, self.goal = kind, groups, counts, goal
        self.options, self.sides = options, sides
        self.lower, self.upper = np.zeros(goal.size), np.full(goal.size, np.inf if kind == "epsilon" else 1.0)
        self._done = 0

    def members(self) -> np.ndarray:
        """All that were asked for."""
        limit = self.options.limit
        return np.arange(self.goal.size) if limit is None else np.flatnonzero(np.asarray(limit) < np.inf)

    def query(self, members: np.ndarray) -> tuple[tuple[Pair, ...], Array, Array]:
        """Groups, counts and goal of some members."""
        return jax.tree.map(lambda x: x[members], (self.groups, self.counts, self.goal))

    def by_direction(self, members: np.ndarray) -> list[np.ndarray]:
        """The members of each direction."""
        side = members // (self.goal.size // self.sides)
        return [members[side == i] for i in range(self.sides)]

    def narrow(self, members: np.ndarray, low: Array, high: Array) -> None:
        """Both the old and the new bounds hold: so does their intersection."""
        self.lower[members] = np.maximum(self.lower[members], low)
        self.upper[members] = np.minimum(self.upper[members], high)

    def report(self, settled: int) -> None:
        """Tells the caller's ``progress`` that so many more members are settled."""
        self._done += settled
        if self.options.progress is not None and settled:
            self.options.progress(self._done, self.goal.size)

    def ask(
        self,
        run: functools.partial[Answer],
        each: float,
        members: np.ndarray,
        width: float | None = None,
        query: tuple[object, ...] | None = None,
    ) -> np.ndarray:
        """Narrows members by what ``run`` answers.

        Args:
            run: an engine, which takes rows of ``query``.
            each: the work for one part of one member, in points times square roots of nodes.
            members: who is asked.
            width: the relative width that settles a member; None is :meth:`tight`'s.
            query: arrays with a row for each member of the batch; None is groups, counts and goal.

        Returns:
            The members that are still open.
        """
        query = (self.groups, self.counts, self.goal) if query is None else query
        for some, low, high in in_chunks(run, self.counts.shape[1] * each, query, members):
            self.narrow(some, low, high)
        return self.still_open(members, width)

    def still_open(self, members: np.ndarray, width: float | None = None) -> np.ndarray:
        """The members that are not settled; the others are reported."""
        left = members[~self.settled(members, width)]
        self.report(members.size - left.size)
        return left

    def settled(self, members: np.ndarray, width: float | None = None) -> np.ndarray:
        """Which are tight, and of at most that relative width, or no worse than another direction that is."""
        tight = self.tight(width) | (self.upper <= self.worst(width))
        if self.options.limit is not None:
            tight |= self._beside_limit()
        return tight[members]

    def tight(self, width: float | None = None) -> np.ndarray:
        """Which bounds of the batch ask for no second engine, and are of at most that relative width."""
        lower, upper = self.lower, self.upper
        tight = (upper == lower) | (upper < np.inf) & (lower >= (1.0 - _TIGHT[self.kind]) * upper)
        if self.kind == "delta":
            tight |= (upper < _DEEP) & (lower >= (1.0 - _TIGHT["deep"]) * upper) | (upper < _NOTHING)
        return tight if width is None else tight & (lower >= (1.0 - width) * upper)

    def worst(self, width: float | None = None) -> np.ndarray:
        """Of every setting the largest upper bound that is tight, of whatever direction; -inf if none is."""
        tight = np.where(self.tight(width), self.upper, -np.inf)
        return np.tile(tight.reshape(self.sides, -1).max(0), self.sides)

    def _beside_limit(self) -> np.ndarray:
        """Which bounds lie on one side of the limit, and are narrow beside their distance from it or far away."""
        tiny = np.finfo(np.float64).tiny
        low, high, log_limit = (
            np.log(np.maximum(x, tiny)) for x in (self.lower, self.upper, np.asarray(self.options.limit))
        )

        def enough(distance: np.ndarray) -> np.ndarray:
            return (distance >= _FAR) | (distance > 0) & (high - low <= _BESIDE * distance)

        missed = enough(low - log_limit)  # and with it the setting, whatever its other directions
        return np.tile(missed.reshape(self.sides, -1).any(0), self.sides) | enough(log_limit - high)
