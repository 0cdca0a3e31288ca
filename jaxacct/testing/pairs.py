"""Neighbouring data sets that try a training step: records that are large, opposite, empty, copies or not finite."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._types import PyTree

_WORDS = {"add_or_remove": "is added", "replace": "replaces another"}
RELATIONS = tuple(_WORDS)


class Neighbours(NamedTuple):
    """Two data sets of which one record is another, or is in one of them only.

    Attributes:
        name: what is different, in words.
        data: pytree of arrays (records, ...).
        other: the neighbour, of the same structure.
    """

    name: str
    data: PyTree
    other: PyTree


def neighbours(data: PyTree, relation: str = "add_or_remove") -> list[Neighbours]:
    """Pairs of neighbours made of ``data``.

    Under ``add_or_remove`` a record comes or goes last, so that no other record changes its row; under ``replace`` one
    is exchanged, in one row after the other.

    Args:
        data: pytree of arrays (records, ...), two records or more. A few dozen records are enough.
        relation: ``"add_or_remove"`` or ``"replace"``.

    Raises:
        ValueError: another relation, leaves of different lengths.
    """
    _validate.one_of(RELATIONS, relation=relation)
    _validate.real_arrays(data=data)
    data = jax.tree.map(np.asarray, data)
    lengths = {leaf.shape[0] if leaf.ndim else 0 for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or min(lengths) < 2:
        raise ValueError(f"data must hold arrays of one length above 1, got lengths {sorted(lengths)}")
    count, words = lengths.pop(), _WORDS[relation]

    def changed(held: PyTree, place: int, row: PyTree) -> PyTree:
        return _append(held, row) if relation == "add_or_remove" else _put(held, place, row)

    rows, places = _records(data), itertools.cycle(reversed(range(count)))
    pairs = [Neighbours(f"{name} {words}", data, changed(data, next(places), row)) for name, row in rows.items()]
    crowded = f"a record {words} in a crowd of copies"
    for crowd, row in _crowds(_records(data, seed=1), count):
        pairs.append(Neighbours(crowded, crowd, changed(crowd, -1, row)))
    if relation == "add_or_remove":
        # What is padded or cut to a multiple may change with one record less, and not with one more.
        pairs.append(Neighbours("the last record is taken away", data, jax.tree.map(lambda leaf: leaf[:-1], data)))
    return pairs


def _records(data: PyTree, seed: int = 0) -> dict[str, PyTree]:
    """Records by what they are."""
    first, second = _row(data, 0), _row(data, 1)
    # Of floats, features if there are any: labels may have to stay within a range.
    dimensions = max((leaf.ndim for leaf in jax.tree.leaves(data) if leaf.dtype.kind == "f"), default=0)
    random = np.random.default_rng(seed)

    def features(change: PyTree, row: PyTree) -> PyTree:
        def one(leaf: PyTree, rows: np.ndarray) -> PyTree:
            used = rows.dtype.kind == "f" and rows.ndim == dimensions
            return np.asarray(change(leaf), rows.dtype) if used else leaf

        return jax.tree.map(one, row, data)

    mixed = jax.tree.unflatten(
        jax.tree.structure(first),
        [pair[number % 2] for number, pair in enumerate(zip(*map(jax.tree.leaves, (first, second)), strict=True))],
    )
    made = {"a copy of a record": first, "a record with another's label": mixed}
    for number, factor in enumerate((1, 3, 10, 30, 100, -100)):
        made[f"a record {factor} times as large"] = features(lambda x, by=factor: by * x, _row(data, number % 2))
    for number, factor in enumerate((1, 3, 10, 30)):
        row = _row(data, number % len(jax.tree.leaves(data)[0]))
        made[f"a random record, {factor} times as large"] = features(
            lambda x, by=factor: by * random.normal(size=np.shape(x)), row
        )
    made["a record of zeros"] = jax.tree.map(np.zeros_like, first)
    made[NOT_FINITE] = features(lambda x: np.nan * x, first)
    return made


def _crowds(records: dict[str, PyTree], count: int) -> list[tuple[PyTree, PyTree]]:
    """Copies of one record, and another one that may pull against them all."""
    rows = [row for name, row in records.items() if "0 times" in name]
    return [
        (jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], count, 0), one), other)
        for one, other in itertools.permutations(rows[:5], 2)
    ]


NOT_FINITE = "a record that is not finite"


def _row(data: PyTree, number: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[number], data)


def _append(data: PyTree, row: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, one: np.concatenate([leaf, np.asarray(one, leaf.dtype)[None]]), data, row)


def _put(data: PyTree, number: int, row: PyTree) -> PyTree:
    def put(leaf: np.ndarray, one: PyTree) -> np.ndarray:
        leaf = leaf.copy()
        leaf[number] = one
        return leaf

    return jax.tree.map(put, data, row)


def opposite(data: PyTree, row: int) -> PyTree:
    """``data`` with the opposite features in one row, 100 times as large, and the labels of the row before."""

    def one(leaf: np.ndarray) -> PyTree:
        return -100 * leaf[row] if leaf.dtype.kind == "f" and leaf.ndim > 1 else leaf[row - 1]

    return _put(data, row, jax.tree.map(one, data))
