"""`Row`: a pytree leaf that holds a vector for every setting instead of one number."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TypeVar

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, xp

_Tree = TypeVar("_Tree")


@jax.tree_util.register_pytree_node_class
class Row:
    """``values`` of shape ``(..., size)``: the last axis belongs to the pair, those before it are settings.

    Queries broadcast and concatenate leaves over settings; a ``Row`` marks the axis that they leave alone. The
    size is part of the tree's structure, so that tables of different length are not stacked.
    """

    def __init__(self, values: Array) -> None:
        self.values = values
        self.size = values.shape[-1]

    @classmethod
    def of(cls, numbers: Sequence[Array]) -> Row:
        """Numbers whose shapes are those of settings, and broadcast, side by side."""
        return cls(xp.stack(xp.broadcast_arrays(*numbers), -1))

    def tree_flatten(self) -> tuple[tuple[Array], int]:
        """The values; the size is static."""
        return (self.values,), self.size

    @classmethod
    def tree_unflatten(cls, size: int, leaves: tuple[Array]) -> Row:
        """The inverse of :meth:`tree_flatten`, which checks nothing because JAX puts placeholders into leaves."""
        row = object.__new__(cls)
        row.values, row.size = leaves[0], size
        return row


def settings_shapes(tree: object) -> list[tuple[int, ...]]:
    """The shape of the settings of every leaf of ``tree``: all of it, or all but the last axis of a ``Row``."""
    leaves = jax.tree.leaves(tree, is_leaf=_is_row)
    return [np.shape(leaf.values)[:-1] if _is_row(leaf) else np.shape(leaf) for leaf in leaves]


def flattened(tree: _Tree, shape: tuple[int, ...], xp: ModuleType) -> _Tree:
    """Leaves in float64, broadcast over settings to ``shape``, which becomes one axis."""

    def flat(leaf: Array | Row) -> Array | Row:
        own = (leaf.size,) if isinstance(leaf, Row) else ()
        values = xp.asarray(leaf.values if isinstance(leaf, Row) else leaf, np.float64)
        values = xp.broadcast_to(values, (*shape, *own)).reshape(-1, *own)
        return Row(values) if own else values

    return jax.tree.map(flat, tree, is_leaf=_is_row)


def poisoned(tree: _Tree, bad: Array | bool) -> _Tree:
    """``tree`` with NaN in the settings where ``bad`` holds; settings broadcast."""
    nan = xp.where(bad, np.nan, 0.0)
    return jax.tree.map(
        lambda leaf: Row(leaf.values + nan[..., None]) if _is_row(leaf) else leaf + nan, tree, is_leaf=_is_row
    )


def _is_row(value: object) -> bool:
    return isinstance(value, Row)
