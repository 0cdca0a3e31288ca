"""Leaves of a pair that hold a row of numbers for every setting instead of one."""

from __future__ import annotations

from typing import Any

import jax

__all__ = ["Row", "is_row"]


@jax.tree_util.register_pytree_node_class
class Row:
    """``values`` of shape ``(..., size)``: the last axis belongs to the pair, those before it are settings.

    The front desk broadcasts and concatenates leaves over settings; a ``Row`` tells it which axis to leave alone. The
    size is part of the tree's structure, so that tables of different length are not stacked.
    """

    def __init__(self, values: Any) -> None:
        self.values = values
        self.size = values.shape[-1]

    def tree_flatten(self) -> tuple[tuple[Any], int]:
        """The values; the size is static."""
        return (self.values,), self.size

    @classmethod
    def tree_unflatten(cls, size: int, leaves: tuple[Any]) -> Row:
        """The inverse of :meth:`tree_flatten`, which checks nothing because JAX puts placeholders into leaves."""
        row = object.__new__(cls)
        row.values, row.size = leaves[0], size
        return row


def is_row(value: Any) -> bool:
    """Whether ``value`` is a :class:`Row`: the ``is_leaf`` of tree functions over settings."""
    return isinstance(value, Row)
