"""The pairs of an epoch of random allocation: tables from above and from below, computed once for each setting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.rows import Row, flattened, settings_shapes
from jaxacct._types import PyTree
from jaxacct.mechanisms.allocation.ratios import has_cells, ratio_cells
from jaxacct.mechanisms.allocation.sums import SumBounds, sum_of_ratios
from jaxacct.mechanisms.allocation.tables import Table, lower_table, upper_table
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.table import TablePair

ATOMS = 4096
"""Of a table."""

_MOST = 2**20
BATCHES = (_validate.count, functools.partial(_validate.at_most, _MOST))
"""Checks of the number of batches of an epoch."""

_KEPT = 256  # settings
_FAINT = 0.03  # losses of an epoch that are turned round


@mechanism
class AllocationPair(TablePair):
    """A :class:`TablePair` of so many atoms that engines put them into cells of their own."""

    def lists_outcomes(self) -> bool:
        """No: sums of thousands of outcomes are not to be enumerated."""
        return False


def allocation_pair(inner: Pair, batches: Array, participations: Array, relation: str, upper: bool) -> AllocationPair:
    """The pair of one epoch, from above (one participation only) or from below.

    Args:
        inner: the pair (P, Q) of one run on a batch with the record, for `remove`.
        batches, participations: t and k, whole numbers in float64; NaN gives a pair of NaN.
        relation: ``"remove"`` or ``"add"``.
        upper: whether the pair is to dominate the epoch or to be dominated by it.

    Traced numbers give a pair of NaN of the right shape, which bounds nothing.
    """

    def table(pair: Pair, t: Array, k: Array) -> Table | None:
        leaves, structure = jax.tree.flatten(pair)
        if any(np.isnan(leaf).any() for leaf in (*leaves, t, k)) or t > _MOST:
            return None
        known = tuple((np.asarray(leaf).tobytes(), np.shape(leaf)) for leaf in leaves)
        return _table(structure, known, int(t), int(k), relation == "add", upper)

    return tabled((inner, batches, participations), table)


def tables_help(inner: Pair, relation: str) -> bool:
    """Whether `allocation_pair` has a table of use for some setting of ``inner``, a pair of known numbers.

    It has none of noise that hides next to nothing (losses beyond what doubles hold the ratios of) or all but
    everything; and what is read off a table for ``replace`` needs more digits.
    """
    shape = np.broadcast_shapes(*settings_shapes(inner))
    least = _FAINT if relation == "replace" else 0.0
    return any(has_cells(pair, least) for pair in _settings(inner, shape))


def _settings(tree: object, shape: tuple[int, ...]) -> Iterator[PyTree]:
    """``tree`` for each of the settings of ``shape``."""
    rows = flattened(tree, shape, np)
    for i in range(math.prod(shape)):
        yield jax.tree.map(lambda leaf: leaf[i], rows)  # noqa: B023


def tabled(tree: tuple[PyTree, ...], table: Callable[..., Table | None]) -> AllocationPair:
    """Tables of ``ATOMS`` atoms, ``table(*tree)`` for each setting; None is one of NaN, and so are all of traced trees.

    No table can be made of traced numbers.
    """
    shape = np.broadcast_shapes(*settings_shapes(tree))
    if _validate.is_traced(tree):
        poison = sum(np.nan * leaf.reshape(-1)[0] for leaf in jax.tree.leaves(tree) if _validate.is_traced(leaf))
        row = Row(poison + np.full((*shape, ATOMS), np.nan))
        return AllocationPair(row, row, row, np.full((), UNIT), np.full((), UNIT))
    found = [table(*setting) for setting in _settings(tree, shape)]
    rows = [np.full((3, ATOMS), np.nan) if one is None else one for one in found]
    losses, p, q = np.moveaxis(np.reshape(rows, (*shape, 3, ATOMS)), -2, 0)
    finite = np.where(np.isfinite(losses), np.abs(losses), 0.0).max(-1)
    return AllocationPair(Row(losses), Row(p), Row(q), np.full((), 16.0 * UNIT), UNIT * (32.0 + 8.0 * finite))


def without_zeros(pair: AllocationPair) -> AllocationPair:
    """A pair that dominates ``pair``: outcomes that P does not have get the least ratio of the others.

    P has more of them then, some 1e-20, and no less of anything. A ratio of 0 turned round is an infinite loss.
    """
    losses, p, q = (part.values for part in (pair.losses, pair.p, pair.q))
    least = xp.where((q > 0) & (losses > -np.inf), losses, np.inf).min(-1, keepdims=True)
    empty = (losses == -np.inf) & (q > 0)
    p = xp.where(empty, q * xp.exp(least) * (1.0 + 8.0 * UNIT), p)
    return AllocationPair(Row(xp.where(empty, least, losses)), Row(p), pair.q, pair.mass_error, pair.loss_slack)


def better(first: AllocationPair, second: AllocationPair) -> AllocationPair:
    """Of two tables from below, setting by setting, the one of larger divergence; each is a bound by itself."""

    def divergence(pair: AllocationPair) -> Array:
        losses, p = pair.losses.values, pair.p.values
        return xp.where(p > 0, p * xp.clip(losses, -1e3, 1e3), 0.0).sum(-1)

    one, other = divergence(first), divergence(second)
    chosen = one >= other
    losses, p, q = jax.tree.map(
        lambda x, y: xp.where(chosen[..., None], x, y), *((pair.losses, pair.p, pair.q) for pair in (first, second))
    )
    slack = xp.maximum(first.loss_slack, second.loss_slack)
    return AllocationPair(losses, p, q, first.mass_error, slack)


@functools.lru_cache(maxsize=4 * _KEPT)
def _table(
    structure: object, leaves: tuple[tuple[bytes, tuple[int, ...]], ...], t: int, k: int, mirrored: bool, upper: bool
) -> Table | None:
    bounds = _bounds(structure, leaves, t, k)
    return None if bounds is None else (upper_table if upper else lower_table)(bounds, mirrored, ATOMS)


@functools.lru_cache(maxsize=_KEPT)
def _bounds(structure: object, leaves: tuple[tuple[bytes, tuple[int, ...]], ...], t: int, k: int) -> SumBounds | None:
    """Both directions, from above and from below, read these."""
    pair = jax.tree.unflatten(structure, [np.frombuffer(data).reshape(shape) for data, shape in leaves])
    with np.errstate(all="ignore"):
        return sum_of_ratios(ratio_cells(pair), t, k) if has_cells(pair) else None
