"""Neighbouring data sets that try a training step: records that are large, opposite, empty, copies or not finite."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxacct import _validate

RELATIONS = "add_or_remove", "replace", "replace_special"


class Neighbours(NamedTuple):
    """Two data sets of which one record is another, or is in one of them only.

    Attributes:
        name: what is different, in words.
        data: pytree of arrays (records, ...).
        other: the neighbour, of the same structure.
    """

    name: str
    data: Any
    other: Any


def neighbours(data: Any, relation: str = "add_or_remove", *, null: Any = None) -> list[Neighbours]:
    """Pairs of neighbours made of ``data``.

    Under ``add_or_remove`` a record comes last, so that no other record changes its row; under ``replace`` the first or
    the last record is exchanged; under ``replace_special`` the last one becomes ``null``.

    Args:
        data: pytree of arrays (records, ...), two records or more. A few dozen records are enough.
        relation: ``"add_or_remove"``, ``"replace"`` or ``"replace_special"``.
        null: one record (a tree like a row of ``data``) that the step counts as nothing, for ``replace_special``.

    Raises:
        ValueError: another relation, no ``null`` where it is needed, leaves of different lengths.
    """
    _validate.one_of(RELATIONS, relation=relation)
    data = jax.tree.map(np.asarray, data)
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or min(lengths) < 2:
        raise ValueError(f"data must hold arrays of one length above 1, got lengths {sorted(lengths)}")
    if (relation == "replace_special") == (null is None):
        raise ValueError(f"null must be given for replace_special, and for it alone, got {relation!r} and {null!r:.80}")
    count = lengths.pop()
    first, second = _row(data, 0), _row(data, 1)
    crowd = jax.tree.map(lambda leaf: np.repeat(leaf[:1], count, 0), data)
    labels = sorted({leaf.ndim for leaf in jax.tree.leaves(data) if leaf.dtype.kind == "f"})

    def times(factor: float, row: Any = first) -> Any:
        # Of floats, features if there are any: labels may have to stay within a range.
        return jax.tree.map(
            lambda leaf, rows: leaf * rows.dtype.type(factor) if labels and rows.ndim == labels[-1] and rows.dtype.kind == "f" else leaf,
            row,
            data,
        )

    mixed = jax.tree.unflatten(
        jax.tree.structure(first),
        [pair[number % 2] for number, pair in enumerate(zip(*map(jax.tree.leaves, (first, second)), strict=True))],
    )
    made = {
        "a record 100 times as large": times(1e2),
        LARGEST: times(1e4),
        "its opposite, 100 times as large": times(-1e2),
        "a copy of the first record": first,
        "parts of two records": mixed,
        "zeros": jax.tree.map(np.zeros_like, first),
        "a record that is not finite": times(np.nan),
    }
    if relation == "add_or_remove":
        pairs = [Neighbours(f"{name} is added", data, _append(data, row)) for name, row in made.items()]
        opposite = made["its opposite, 100 times as large"]
        return [*pairs, Neighbours("the opposite of all others is added", crowd, _append(crowd, opposite))]
    if relation == "replace_special":
        base = _put(data, -1, null)
        return [Neighbours(f"{name} for nothing", base, _put(data, -1, row)) for name, row in made.items()]
    opposite = _put(data, -1, times(-1e2)), _put(data, 0, times(-1e2))
    pairs = [Neighbours(f"{name} for its opposite", opposite[0], _put(data, -1, row)) for name, row in made.items()]
    return [
        *pairs,
        Neighbours("a large first record for its opposite", opposite[1], _put(data, 0, times(1e2))),
        Neighbours("the opposite of all others for one of them", crowd, _put(crowd, -1, times(-1e2))),
    ]


LARGEST = "a record 10,000 times as large"


def _row(data: Any, number: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[number], data)


def _append(data: Any, row: Any) -> Any:
    return jax.tree.map(lambda leaf, one: np.concatenate([leaf, np.asarray(one, leaf.dtype)[None]]), data, row)


def _put(data: Any, number: int, row: Any) -> Any:
    def put(leaf: np.ndarray, one: Any) -> np.ndarray:
        leaf = leaf.copy()
        leaf[number] = one
        return leaf

    return jax.tree.map(put, data, row)
