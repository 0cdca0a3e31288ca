"""Runs an engine on a batch of questions: in NumPy, in chunks that threads share, or inside somebody's program.

Every function that runs has the arguments ``(kind, [size,] pairs or groups, counts, goal)``; :func:`in_chunks` takes
the members of a batch through one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.losses.engines.contour.bounds import Size, contour_bounds
from jaxacct.losses.engines.discrete_laws.bounds import Size as Cells
from jaxacct.losses.engines.discrete_laws.bounds import universal_bounds
from jaxacct.losses.engines.laws.in_program import narrowed_by_laws
from jaxacct.losses.engines.one_run import single_delta, single_epsilon
from jaxacct.mechanisms.pairs.base import Pair

Answer = tuple[Array, Array]  # lower and upper bounds

_ROWS = 64  # of a table of NumPy's, more where they are so short that Python's own work would show:
_SHORT = 2**19  # points times square roots of nodes
_LEAST_ROWS = 16  # of which a table is worth a thread
_KEPT = 2**24  # bytes of an array after which freed memory is not given back at once, to be asked for again
_RUNS = 1024  # single runs worked on at once
_WORK = 2**25  # points times square roots of nodes worked on at once: 256 MiB a table
_TRACED_CELLS = Cells(1024, 4096)

TRACED = Size(512, 1024)
"""Of a contour in a program."""


class Options(NamedTuple):
    """How concrete queries are run.

    Attributes:
        progress: called with (settled, total) numbers of settings.
        limit: deltas, shape ``(batch,)``, for questions that only ask on which side of them delta is. Bounds on one
            side are as narrow as their distance from the limit deserves; where it is inf, nothing is asked.
    """

    progress: Callable[[int, int], object] | None = None
    limit: np.ndarray | None = None


def in_chunks(
    run: functools.partial[Answer], each: float, query: tuple[object, ...], members: np.ndarray
) -> Iterator[tuple[np.ndarray, Array, Array]]:
    """Runs ``members`` of a batch in chunks: ``(members, lower, upper)`` of each."""
    rows = max(1, min(max(_ROWS, int(_SHORT / each)), int(_WORK / each)))
    taken = _RUNS if run.func is single_bounds else rows
    pieces = max(-(-members.size // taken), 2 if members.size >= 2 * _LEAST_ROWS else 1)
    parts = np.array_split(members, pieces + (pieces > 1) * (pieces % 2))  # so that two cores end together
    chunks = [part for part in parts if part.size]
    asked = lambda some: run(*jax.tree.map(lambda x: x[some], query))  # noqa: E731
    for some, (low, high) in zip(chunks, _in_threads(asked, chunks), strict=True):
        yield some, low, high


def _in_threads(run: Callable[[np.ndarray], Answer], chunks: list[np.ndarray]) -> Iterator[Answer]:
    """``run`` of each chunk, in order. NumPy holds no lock while it works, so that threads share the cores."""
    np.empty(_KEPT, np.uint8)  # once freed, the C library keeps smaller arrays' memory for the next ones
    workers = min(
        len(chunks), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if workers <= 1:
        yield from map(run, chunks)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(run, chunks)


_silent = np.errstate(all="ignore")  # what comes of NaN fails closed
by_contour, by_transforms = _silent(contour_bounds), _silent(universal_bounds)
# A mechanism and its witness share one of each.
_contour_program = jax.jit(contour_bounds, static_argnums=(0, 1))
_transforms_program = jax.jit(universal_bounds, static_argnums=(0, 1))
_laws_program = jax.jit(narrowed_by_laws, static_argnums=0)


def single_bounds(kind: str, groups: tuple[Pair, ...], goal: Array) -> Answer:
    """Bounds of one run each; NumPy's in NumPy."""
    (group,) = groups
    pair = jax.tree.map(lambda x: x[:, 0], group)
    return (single_delta if kind == "delta" else single_epsilon)(pair, goal)


def traced_bounds(
    kind: str, most: float | None, contour: bool, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array
) -> Answer:
    """Bounds of a batch inside somebody's trace."""
    if most == 1.0 and counts.shape[-1] == 1:
        return single_bounds(kind, groups, goal)
    if contour:
        found = _contour_program(kind, TRACED, groups[0], counts, goal)
    else:
        found = _transforms_program(kind, _TRACED_CELLS, groups, counts, goal)
    return _laws_program(kind, groups, counts, goal, found)
