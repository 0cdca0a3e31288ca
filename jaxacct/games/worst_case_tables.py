"""Computes the worst case of every state of a rule on the grid, from the last round to the first (Lemma 1).

With every query a law on the lattice, an epsilon stays on the lattice whatever is observed, so that values at lattice
points follow from values at lattice points:

    E_n(gamma) = max over allowed q of  E_q(gamma) + sum over losses l of P_q(l) E_next(gamma e^-l),   or 0 to stop,

with E the excess over (1 - gamma)_+ and E_q that of one run. These are sums of non-negative terms, rounded to a side.
The upper table is the worst case of dominating laws, so it dominates (Lemma 1 and Proposition 2). The lower table is
what the recorded choices attain: an analyst may forget all of an outcome but the dominated law's.

Beyond the lattice: above its last point E falls, and does not fall below the probability that a loss becomes
infinite; before its first point E is at most proportional to gamma, and at least 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import on_device, on_host
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.lattice_laws import Law
from jaxacct.games.rules import Game
from jaxacct.losses.grids.grid import LossGrid

_TINY = 1e-290  # more than all products that may have underflowed
_FEW = 24  # atoms up to which shifting is faster than multiplying by a matrix
_BLOCK = 128
_NEGLIGIBLE = 1e-22  # mass of a tail that is not summed
_CHUNK = 8  # rounds of one scan, and between reports of progress
_SMALL = 64  # rows up to which no scan is ended early


class Tables(NamedTuple):
    """The first round's values, and the choices of every round.

    Attributes:
        upper: shape ``(grid.size,)``.
        lower: shape ``(grid.size,)``.
        choices: per round, int8 of shape ``(states, grid.size)``, the move of the lower table, -1 to stop; or empty.
    """

    upper: np.ndarray
    lower: np.ndarray
    choices: list[np.ndarray]


def solve(
    game: Game,
    laws: Sequence[tuple[Law, Law]],
    grid: LossGrid,
    *,
    record: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> Tables:
    """Upper and lower values of the first state, by scans over rounds that hold two rounds' tables.

    ``laws`` has (upper, lower) for each query. With ``record`` the choices are kept: a byte for each state, round and
    point.
    """
    with jax.enable_x64(True):
        upper, lower = (_stacked([_trimmed(pair[side], grid, side == 0) for pair in laws], grid) for side in (0, 1))
        sizes = [max(a.shape[0], len(s)) for a, s in zip(game.after, game.states[1:], strict=True)]
        value = np.zeros((2, sizes[-1] if sizes else 1, grid.size))
        infinite = np.zeros(value.shape[1])
        choices: list[np.ndarray] = []
        stop = game.rounds
        while stop > 0:
            start = _chunk_start(sizes, stop)
            rows = -(-max(sizes[start:stop]) // 8) * 8
            idle = _CHUNK - (stop - start)  # rounds before the first, so that scans of all lengths are one program
            moves = game.after[stop - 1].shape[1]
            after, certain = np.full((_CHUNK, rows, moves), -1, np.int32), np.zeros((_CHUNK, rows, moves), bool)
            for i, (to, sure) in enumerate(zip(game.after[start:stop], game.certain[start:stop], strict=True)):
                after[idle + i, : to.shape[0]], certain[idle + i, : to.shape[0]] = to, sure
            fit = max(0, rows - value.shape[1])
            value = np.pad(value, ((0, 0), (0, fit), (0, 0)))[:, :rows]
            infinite = np.pad(infinite, (0, fit))[:rows]
            active = np.arange(_CHUNK) >= idle
            *ends, found = _scan(value, infinite, active, after, certain, upper, lower, record)
            value, infinite = on_host(ends)
            if record:
                kept = np.asarray(found)[idle:]
                choices = [kept[i, : game.after[start + i].shape[0]].copy() for i in range(stop - start)] + choices
            stop = start
            if progress is not None:
                progress(game.rounds - stop, game.rounds)
        return Tables(np.asarray(value[0, 0]), np.asarray(value[1, 0]), choices)


def _chunk_start(sizes: list[int], stop: int) -> int:
    """Where the scan that ends before round ``stop`` begins: its rounds have about as many states as the last one."""
    start, enough = stop - 1, min(sizes[stop - 1] / 3, sizes[stop - 1] - _SMALL)
    while start > 0 and stop - start < _CHUNK and sizes[start - 1] >= enough:
        start -= 1
    return start


class _Laws(NamedTuple):
    """All queries of one side; the lattice's spacing is in ``edge`` alone, so that all spacings share a program."""

    kernels: Array  # (queries, width): mass at offset `first + j`
    first: Array  # (queries,)
    blocks: Array  # (queries,): of `_BLOCK` points that the kernel and a block of results reach over
    offsets: Array  # (queries, atoms), for few atoms
    masses: Array  # (queries, atoms)
    infinite: Array  # (queries,)
    excess: Array  # (queries, size)
    edge: Array  # (above,): gamma at lattice points before the first, over gamma there
    tail: Array  # (below,): zeros
    limit: Array  # (size,): E cannot exceed it


def _trimmed(law: Law, grid: LossGrid, upper: bool) -> Law:
    """The law without tails of 1e-22: fewer points to sum over. What they could add is added to an upper bound's E.

    A mass p with Q-mass r adds p E(gamma e^-l) <= min(p, gamma r), because E <= min(gamma, 1).
    """
    if law.offsets.size <= _FEW:
        return law
    ends = np.minimum(np.cumsum(law.masses), np.cumsum(law.masses[::-1])[::-1])
    kept = ends > _NEGLIGIBLE
    if not upper:
        return law._replace(offsets=law.offsets[kept], masses=law.masses[kept])
    cut = law.masses[~kept]
    other = inflated((cut * np.exp(-grid.spacing * law.offsets[~kept])).sum(), 1e-9)
    more = np.minimum(inflated(cut.sum(), 1e-9), np.exp(grid.losses) * other)
    return law._replace(offsets=law.offsets[kept], masses=law.masses[kept], excess=law.excess + more)


def _stacked(laws: Sequence[Law], grid: LossGrid) -> _Laws:
    first, last = (np.array([end(x.offsets) for x in laws], np.int32) for end in (np.min, np.max))
    atoms = max(x.offsets.size for x in laws)
    few = atoms <= _FEW
    width = 1 if few else _up(int((last - first).max()) + 1)
    kernels = np.zeros((len(laws), width))
    offsets, masses = (np.zeros((len(laws), atoms if few else 1)) for _ in range(2))
    for i, law in enumerate(laws):
        if few:
            offsets[i, : law.offsets.size], masses[i, : law.offsets.size] = law.offsets, law.masses
        else:
            kernels[i, law.offsets - first[i]] = law.masses
    # As far on either side: a query and its reversal share a compiled program, and so do similar queries.
    reach = _up(max(int(last.max()), -int(first.min()), 1) + (0 if few else _BLOCK))
    edge = np.exp(-grid.spacing * np.arange(reach, 0, -1))
    limit = np.minimum(inflated(np.exp(grid.losses), 16 * EPS), 1.0)
    made: list[Any] = [
        kernels,
        first,
        (last - first + _BLOCK - 1) // _BLOCK + 1,
        offsets.astype(np.int32),
        masses,
        np.array([float(x.infinite) for x in laws]),
        np.stack([x.excess for x in laws]),
        edge,
        np.zeros(reach + _BLOCK),
        limit,
    ]
    return _Laws(*on_device(made))


def _up(n: int) -> int:
    """A power of 2 of at least ``n`` and a block: laws of many lengths share compiled programs."""
    return max(_BLOCK, 1 << (n - 1).bit_length())


def _widened(value: Array, laws: _Laws, highest: Array, lowest: Array) -> Array:
    """The table and bounds beyond its ends: ``above`` points before the first and ``below`` after the last."""
    return jnp.concatenate([lowest[:, None] * laws.edge, value, highest[:, None] + laws.tail], -1)


def _expected(wide: Array, laws: _Laws, query: Array, size: int) -> Array:
    """sum over losses of P(l) E(gamma e^-l): a convolution of every row with the query's masses."""
    above = laws.edge.shape[0]
    if laws.kernels.shape[-1] == 1:
        offsets, masses = laws.offsets[query], laws.masses[query]

        def add(j: Array, total: Array) -> Array:
            return total + masses[j] * jax.lax.dynamic_slice_in_dim(wide, above - offsets[j], size, 1)

        return jax.lax.fori_loop(0, offsets.shape[0], add, jnp.zeros((wide.shape[0], size)))
    # Results in blocks of `_BLOCK` points, each from as many blocks of points as the kernel reaches over: a block of
    # points times a small Toeplitz matrix, which is the same for all blocks of results.
    kernel, count = laws.kernels[query], laws.blocks[query]
    rows, results = wide.shape[0], -(-size // _BLOCK)
    start = above - laws.first[query] - (count - 1) * _BLOCK
    row, column = jnp.arange(_BLOCK)[:, None], jnp.arange(_BLOCK)[None]

    def add_block(c: Array, total: Array) -> Array:
        tap = (count - 1 - c) * _BLOCK + column - row
        inside = (tap >= 0) & (tap < kernel.shape[0])
        matrix = jnp.where(inside, kernel[jnp.clip(tap, 0, kernel.shape[0] - 1)], 0.0)
        points = jax.lax.dynamic_slice_in_dim(wide, start + c * _BLOCK, results * _BLOCK, 1)
        return total + points.reshape(rows * results, _BLOCK) @ matrix

    found = jax.lax.fori_loop(0, count, add_block, jnp.zeros((rows * results, _BLOCK)))
    return found.reshape(rows, results * _BLOCK)[:, :size]


@functools.partial(jax.jit, static_argnames="record")
def _scan(
    value: Array, infinite: Array, active: Array, after: Array, certain: Array, upper: _Laws, lower: _Laws, record: bool
) -> tuple[Array, Array, Array | None]:
    size = value.shape[-1]
    queries = upper.infinite.shape[0]

    def level(carry: tuple[Array, Array], moves: tuple[Array, Array]):
        value, infinite = carry
        to, sure = moves
        rows = to.shape[0]

        def play(query: Array, best: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            top, bottom, reached, choice = best
            index, allowed = jnp.maximum(to[:, query], 0), to[:, query] >= 0
            found = []
            for side, laws in enumerate((upper, lower)):
                rest = value[side][index]
                highest = rest[:, -1] if side == 0 else infinite[index]
                lowest = rest[:, 0] if side == 0 else jnp.zeros(rows)
                total = laws.excess[query] + _expected(_widened(rest, laws, highest, lowest), laws, query, size)
                units = (max(laws.kernels.shape[-1], laws.offsets.shape[-1]) + 16) * EPS
                total = inflated(total, units) + _TINY if side == 0 else deflated(total, units)
                found.append(jnp.minimum(total, laws.limit))
            law = lower
            ever = law.infinite[query] + law.masses[query].sum() * infinite[index]
            ever = deflated(ever + law.kernels[query].sum() * infinite[index], 2 * size * EPS)
            top = jnp.maximum(top, jnp.where(allowed[:, None], found[0], 0.0))
            can = (allowed & sure[:, query])[:, None]
            # A gain within rounding is none: choices would flicker where nothing is left to gain.
            gains = can & (found[1] > inflated(bottom, 1e-12) + 1e-15)
            bottom = jnp.where(gains, found[1], bottom)
            reached = jnp.maximum(reached, jnp.where(can[:, 0], ever, 0.0))
            return top, bottom, reached, jnp.where(gains, query.astype(jnp.int8), choice)

        nothing = jnp.zeros((rows, size))
        best = (nothing, nothing, jnp.zeros(rows), jnp.full((rows, size), -1, jnp.int8))
        best = jax.lax.fori_loop(0, queries, lambda q, b: play(jnp.asarray(q, jnp.int32), b), best)
        top, bottom, reached, choice = best
        if to.shape[1] > queries:  # a timed rule: waiting keeps the state
            index = jnp.maximum(to[:, queries], 0)
            waits = to[:, queries] >= 0
            top = jnp.maximum(top, jnp.where(waits[:, None], value[0][index], 0.0))
            gains = waits[:, None] & (value[1][index] > bottom)
            bottom = jnp.where(gains, value[1][index], bottom)
            reached = jnp.maximum(reached, jnp.where(waits, infinite[index], 0.0))
            choice = jnp.where(gains, jnp.int8(queries), choice)
        return (jnp.stack([top, bottom]), reached), (choice if record else None)

    def step(carry: tuple[Array, Array], now: tuple[Array, ...]):
        idle = lambda carry, _: (carry, jnp.zeros((after.shape[1], size), jnp.int8) if record else None)  # noqa: E731
        return jax.lax.cond(now[0], level, idle, carry, now[1:])

    (value, infinite), choices = jax.lax.scan(step, (value, infinite), (active, after, certain), reverse=True)
    return value, infinite, choices
