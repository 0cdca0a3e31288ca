"""Runs an engine on a batch of questions: in NumPy, in chunks that threads share, or as programs on accelerators.

Every function that runs has the arguments ``(kind, [size,] pairs or groups, counts, goal)``; :func:`in_chunks` takes
the members of a batch through one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.losses.engines.contour.bounds import Size, contour_bounds, finish, prepare
from jaxacct.losses.engines.contour.transform import transform_float32
from jaxacct.losses.engines.devices import Spread
from jaxacct.losses.engines.discrete_laws.bounds import Size as Cells
from jaxacct.losses.engines.discrete_laws.bounds import universal_bounds
from jaxacct.losses.engines.laws.bounds import law_bounds
from jaxacct.losses.engines.laws.in_program import narrowed_by_laws
from jaxacct.losses.engines.one_run import single_delta, single_epsilon
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

Answer = tuple[Array, Array]  # lower and upper bounds

_BATCHES = (2, 16, 128, 1024)  # to which batches of a compiled program are padded: every size is a compilation
_CACHED = 128  # larger batches leave a CPU's cache
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
        precision: ``"float64"``, or ``"float32"`` for accelerators without float64: the transforms of the contour run
            there in float32, everything else on the host's CPU.
        devices: over which a batch is spread; None is JAX's default device.
        progress: called with (settled, total) numbers of settings.
        host: whether everything is to run in NumPy on the host, also where there are accelerators: a program is
            waiting, and may not be called from.
        limit: deltas, shape ``(batch,)``, for questions that only ask on which side of them delta is. Bounds on one
            side are as narrow as their distance from the limit deserves; where it is inf, nothing is asked.
    """

    precision: str = "float64"
    devices: Sequence[object] | None = None
    progress: Callable[[int, int], object] | None = None
    host: bool = False
    limit: np.ndarray | None = None


def contour_run(options: Options) -> Callable[..., Answer]:
    """What runs contours: the formulas in NumPy on a CPU, or a program on accelerators."""
    if options.precision == "float32":
        return _contour_float32
    return _contour_program if is_compiled(options) else _contour_numpy


def discrete_run(options: Options) -> Callable[..., Answer]:
    """What runs discrete laws; see :func:`contour_run`."""
    return _universal_program if is_compiled(options) and options.precision == "float64" else _universal_numpy


def single_run(options: Options) -> Callable[..., Answer]:
    """What reads single runs off their tails; see :func:`contour_run`."""
    return _single_batch if options.devices is None else _single_program


def is_compiled(options: Options) -> bool:
    """Whether a program is to run on accelerators, or on named devices."""
    return not options.host and (options.devices is not None or jax.default_backend() != "cpu")


def in_chunks(
    run: functools.partial[Answer], each: float, query: tuple[object, ...], members: np.ndarray, spread: Spread
) -> Iterator[tuple[np.ndarray, Array, Array]]:
    """Runs ``members`` of a batch in chunks of few different sizes: ``(members, lower, upper)`` of each."""
    if run.func in (_contour_numpy, _universal_numpy, law_bounds, _single_batch):
        rows = max(1, min(max(_ROWS, int(_SHORT / each)), int(_WORK / each)))
        taken = _RUNS if run.func is _single_batch else rows
        pieces = max(-(-members.size // taken), 2 if members.size >= 2 * _LEAST_ROWS else 1)
        parts = np.array_split(members, pieces + (pieces > 1) * (pieces % 2))  # so that two cores end together
        chunks = [part for part in parts if part.size]
        asked = lambda some: run(*jax.tree.map(lambda x: x[some], query))  # noqa: E731
        for some, (low, high) in zip(chunks, _in_threads(asked, chunks), strict=True):
            yield some, low, high
        return
    most = _CACHED if jax.default_backend() == "cpu" else _BATCHES[-1]
    sizes = [size for size in _BATCHES if size == _BATCHES[0] or (size * each <= _WORK and size <= most)]
    sizes = [size * spread.shares for size in sizes]
    while members.size:
        # A batch that is filled to three quarters, or else the largest that the members fill.
        filled = [size for size in sizes if size <= members.size]
        size = next((size for size in sizes if 0.75 * size <= members.size <= size), max(filled, default=sizes[0]))
        some, members = members[:size], members[size:]
        index = spread.padded(some, size)
        low, high = run(*spread.place(jax.tree.map(lambda x: x[index], query)))  # noqa: B023
        yield some, spread.gather(low)[: some.size], spread.gather(high)[: some.size]


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


def _single_batch(kind: str, groups: tuple[Pair, ...], goal: Array) -> Answer:
    """Bounds of one run each; NumPy's in NumPy."""
    (group,) = groups
    pair = jax.tree.map(lambda x: x[:, 0], group)
    return (single_delta if kind == "delta" else single_epsilon)(pair, goal)


_silent = np.errstate(all="ignore")  # what comes of NaN fails closed
_contour_numpy, _contour_program = _silent(contour_bounds), jax.jit(contour_bounds, static_argnums=(0, 1))
_universal_numpy, _universal_program = _silent(universal_bounds), jax.jit(universal_bounds, static_argnums=(0, 1))
_single_program = jax.jit(_single_batch, static_argnums=0)
_prepare, _finish = jax.jit(prepare, static_argnums=(0, 1)), jax.jit(finish, static_argnums=0)
_transform = jax.jit(transform_float32, static_argnums=3)


def _contour_float32(kind: str, size: Size, pairs: GaussianPair, counts: np.ndarray, goal: np.ndarray) -> Answer:
    """What needs float64 on the CPU, the transforms in float32 on JAX's default device."""
    prepared = jax.tree.map(np.asarray, _prepare(kind, size, pairs, counts, goal))
    single = lambda x: np.asarray(x, np.float32)  # noqa: E731
    tables = (single(prepared.parts.losses), single(prepared.parts.weights), single(prepared.spacing))
    with jax.default_device(None):
        found = jax.tree.map(lambda x: np.asarray(x, np.float64), _transform(*tables, size.nodes))
    return _finish(kind, prepared, counts, goal, found)


def traced_bounds(
    kind: str, most: float | None, contour: bool, groups: tuple[Pair, ...], counts: jax.Array, goal: jax.Array
) -> Answer:
    """Bounds of a batch inside somebody's trace."""
    if most == 1.0 and counts.shape[-1] == 1:
        return _single_batch(kind, groups, goal)
    if contour:
        found = _contour_program(kind, TRACED, groups[0], counts, goal)
    else:
        found = _universal_program(kind, _TRACED_CELLS, groups, counts, goal)
    return narrowed_by_laws(kind, groups, counts, goal, found)
