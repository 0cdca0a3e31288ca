"""`Narrowing`: the bounds of a batch of concrete questions while engines narrow them, one after the other, in NumPy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.mechanisms.pairs.base import Pair

Answer = tuple[Array, Array]  # lower and upper bounds

_TIGHT = {"delta": 9.5e-4, "deep": 5e-3, "epsilon": 5e-4}  # relative width that asks for no second engine
_DEEP = 1e-12  # a delta below which bounds may be as wide as "deep"
_NOTHING = 1e-280  # a delta that no second engine makes smaller
_BESIDE = 0.02  # width of the logarithm of a delta over its distance from a limit that is narrow beside it
_FAR = 10.0  # distance of that logarithm beyond which its width hardly matters

_ROWS = 64  # settings that are worked on at once, more where they are so little work that Python's own would show:
_SHORT = 2**19  # points times square roots of nodes
_LEAST_ROWS = 16  # of which a chunk is worth a thread
_WORK = 2**25  # points times square roots of nodes worked on at once: 256 MiB a table
_KEPT = 2**24  # bytes of an array after which freed memory is not given back at once, to be asked for again


class Options(NamedTuple):
    """How concrete questions are answered.

    Attributes:
        progress: called with (settled, total) numbers of settings.
        limit: deltas, shape ``(batch,)``, for questions that only ask on which side of them delta is. Bounds on one
            side are as narrow as their distance from the limit deserves; where it is inf, nothing is asked.
    """

    progress: Callable[[int, int], object] | None = None
    limit: np.ndarray | None = None


class Narrowing:
    """Bounds of a flat batch of concrete questions.

    The batch is ``sides`` directions of the same settings, one after the other. Only the worst direction of a setting
    counts, so that a direction is settled if it is no worse than another one whose bounds are tight. Members of the
    batch are named by their places in it.

    Attributes:
        kind: ``"delta"`` or ``"epsilon"``.
        groups, counts, goal: the questions; see :func:`jaxacct.losses.engines.choose.grouped`.
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
        """Both the old and the new bounds hold: so does their intersection. NaN is no bound."""
        self.lower[members] = np.fmax(self.lower[members], low)
        self.upper[members] = np.fmin(self.upper[members], high)

    def report(self, settled: int) -> None:
        """Tells the caller's ``progress`` that so many more members are settled."""
        self._done += settled
        if self.options.progress is not None and settled:
            self.options.progress(self._done, self.goal.size)

    def ask(
        self,
        run: Callable[..., Answer],
        each: float,
        members: np.ndarray,
        width: float | None = None,
        more: tuple[Array, ...] = (),
    ) -> np.ndarray:
        """Narrows members as :meth:`asked` does; returns those that are still open.

        ``width`` is the relative width that settles a member; None is :meth:`tight`'s.
        """
        self.asked(run, each, members, more)
        return self.still_open(members, width)

    def asked(self, run: Callable[..., Answer], each: float, members: np.ndarray, more: tuple[Array, ...] = ()) -> None:
        """Narrows members by what ``run`` answers.

        Args:
            run: an engine, which takes groups, counts, goal and ``more``.
            each: the work for one part of one member, in points times square roots of nodes.
            members: who is asked. In a row of members, all are the first but for their goals.
            more: arrays with an entry for each member of the batch.
        """

        def answer(some: np.ndarray) -> Answer:
            with np.errstate(all="ignore"):  # what comes of NaN fails closed
                groups, counts, _ = self.query(some if some.ndim == 1 else some[:, 0])
                return run(groups, counts, *(x[some] for x in (self.goal, *more)))

        chunks = _chunks(members, self.counts.shape[1] * each)
        for some, found in zip(chunks, _in_threads(answer, chunks), strict=True):
            self.narrow(some, *found)

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

    def width(self, members: np.ndarray) -> np.ndarray:
        """Upper over lower bounds less 1."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.upper[members] / np.maximum(self.lower[members], 1e-300) - 1.0

    def tight(self, width: float | None = None) -> np.ndarray:
        """Which bounds of the batch ask for no second engine, and are of at most that relative width."""
        lower, upper = self.lower, self.upper
        tight = (upper == lower) | (upper < np.inf) & (lower >= (1.0 - _TIGHT[self.kind]) * upper)
        if self.kind == "delta":
            tight |= (upper < _DEEP) & (lower >= (1.0 - _TIGHT["deep"]) * upper) | (upper < _NOTHING)
        return tight if width is None else tight & (lower >= (1.0 - width) * upper)

    def worst(self, width: float | None = None) -> np.ndarray:
        """Of every setting the largest upper bound that is tight, or lower bound, of whatever direction."""
        sure = np.where(self.tight(width), self.upper, self.lower)
        return np.tile(sure.reshape(self.sides, -1).max(0), self.sides)

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


def _chunks(members: np.ndarray, each: float) -> list[np.ndarray]:
    """Members that are worked on at once, where ``each`` is as much work."""
    rows = max(1, min(max(_ROWS, int(_SHORT / each)), int(_WORK / each)))
    pieces = max(-(-len(members) // rows), 2 if len(members) >= 2 * _LEAST_ROWS else 1)
    parts = np.array_split(members, pieces + (pieces > 1) * (pieces % 2))  # so that two cores end together
    return [part for part in parts if part.size]


def _in_threads(run: Callable[[np.ndarray], Answer], chunks: list[np.ndarray]) -> Iterator[Answer]:
    """``run`` of each chunk, in order. NumPy holds no lock while it works, so that threads share the cores."""
    np.empty(_KEPT, np.uint8)  # once freed, the C library keeps smaller arrays' memory for the next ones
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = min(len(chunks), cores)
    if workers <= 1:
        yield from map(run, chunks)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(run, chunks)
