"""The pairs of an epoch of random allocation: tables from above and from below, computed once for each setting."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.rows import Row, flattened, settings_shapes
from jaxacct.mechanisms.pairs.table import TablePair

__all__ = ["AllocationPair", "allocation_pair"]

_ATOMS = 4096  # of a table
_MOST = 2**20  # batches
_KEPT = 256  # settings


@mechanism
class AllocationPair(TablePair):
    """A :class:`TablePair` of so many atoms that engines put them into cells of their own."""

    def lists_outcomes(self) -> bool:
        """No: sums of thousands of outcomes are not to be enumerated."""
        return False


def allocation_pair(inner: Any, batches: Any, participations: Any, relation: str, upper: bool) -> AllocationPair:
    """The pair of one epoch, from above (one participation only) or from below.

    Args:
        inner: the pair (P, Q) of one run on a batch with the record, for `remove`.
        batches, participations: t and k, whole numbers in float64; NaN gives a pair of NaN.
        relation: ``"remove"`` or ``"add"``.
        upper: whether the pair is to dominate the epoch or to be dominated by it.

    Traced numbers give a pair of NaN of the right shape, which bounds nothing.
    """
    tree = (inner, batches, participations)
    shape = np.broadcast_shapes(*settings_shapes(tree))
    if _validate.is_traced(tree):
        poison = sum(np.nan * leaf.reshape(-1)[0] for leaf in jax.tree.leaves(tree) if _validate.is_traced(leaf))
        row = Row(poison + np.full((*shape, _ATOMS), np.nan))
        return AllocationPair(row, row, row, np.full((), UNIT), np.full((), UNIT))
    rows = flattened(tree, shape, np)
    size = int(np.prod(shape))
    tables = []
    for i in range(size):
        pair, t, k = jax.tree.map(lambda leaf: leaf[i], rows)  # noqa: B023
        leaves, structure = jax.tree.flatten(pair)
        bad = any(np.isnan(leaf).any() for leaf in (*leaves, t, k)) or t > _MOST
        if bad:
            tables.append(np.full((3, _ATOMS), np.nan))
            continue
        known = tuple((np.asarray(leaf).tobytes(), np.shape(leaf)) for leaf in leaves)
        tables.append(_table(structure, known, int(t), int(k), relation == "add", upper))
    losses, p, q = (np.stack(part).reshape(*shape, _ATOMS) for part in zip(*tables, strict=True))
    finite = np.where(np.isfinite(losses), np.abs(losses), 0.0).max(-1)
    return AllocationPair(Row(losses), Row(p), Row(q), np.full((), 16.0 * UNIT), UNIT * (32.0 + 8.0 * finite))


@functools.lru_cache(maxsize=4 * _KEPT)
def _table(structure: Any, leaves: Any, t: int, k: int, mirrored: bool, upper: bool) -> Any:
    from jaxacct.losses.allocation.tables import lower_table, upper_table

    return (upper_table if upper else lower_table)(_bounds(structure, leaves, t, k), mirrored, _ATOMS)


@functools.lru_cache(maxsize=_KEPT)
def _bounds(structure: Any, leaves: Any, t: int, k: int) -> Any:
    """Both directions, from above and from below, read these."""
    from jaxacct.losses.allocation.ratios import ratio_cells
    from jaxacct.losses.allocation.sums import sum_of_ratios

    pair = jax.tree.unflatten(structure, [np.frombuffer(data).reshape(shape) for data, shape in leaves])
    with np.errstate(all="ignore"):
        return sum_of_ratios(ratio_cells(pair), t, k)
