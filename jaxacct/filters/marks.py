"""Marks: a word in every state that says which filter made it, so that no other filter goes on with it.

A state counts in the units of its own filter's budget and table. Under another budget, kind or table the same words
mean another amount. So every state carries the `mark_of` its filter: 32 bits, computed from the very bits of the
filter's arrays and from its static fields, in whole numbers, alike in NumPy and in any compiled program, in every
process. (A filter that a program makes from a traced epsilon may have other last bits than one that was made outside,
and is another filter then.)

A mark guards against mistakes, not against somebody who writes state words: two filters share one by accident with
probability 2^-32, and a state that was set back to an earlier one has its filter's mark. What words can hold is checked
all the same, so that damaged ones admit no more than their filter's budget.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.host import at_hand, on_device, on_host
from jaxacct.filters.base import Around
from jaxacct.filters.described import word_of

State = TypeVar("State")
_GOLDEN = np.uint32(0x9E3779B9)
_NAN = np.uint32(0x7FC00000)
_INFINITY = np.uint32(0x7F800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)


def mark_of(filter: object) -> Any:
    """The mark of a filter, uint32 of its accounts' shape and never 0; None for a filter that marks no states.

    NumPy's where the filter's numbers are at hand, even inside a trace.
    """
    if isinstance(filter, Around):
        return mark_of(filter.filter)
    identity = getattr(filter, "_identity", None)
    if identity is None:
        return None
    kept = vars(filter).get("_mark")
    if kept is None:
        kept = hashed(word_of((type(filter).__name__, *static_of(filter))), identity())
        if isinstance(kept, np.ndarray):
            object.__setattr__(filter, "_mark", kept)
    return kept


def hashed(salt: int, parts: Sequence[ArrayLike]) -> Array:
    """A uint32 for each row of ``parts``, arrays of 32-bit numbers (or truths) whose last axes are the rows."""
    rows = [as_words(part) for part in on_host(list(parts))] or [np.zeros(1, np.uint32)]
    xp = array_module(rows)
    shape = np.broadcast_shapes(*(row.shape[:-1] for row in rows))
    row = xp.concatenate([xp.broadcast_to(one, (*shape, one.shape[-1])) for one in rows], axis=-1)
    places = _mixed(np.arange(1, row.shape[-1] + 1, dtype=np.uint32) * _GOLDEN ^ np.uint32(salt))
    total = _mixed(row ^ places).sum(-1, keepdims=True, dtype=np.uint32)
    return xp.asarray(xp.maximum(_mixed(total ^ np.uint32(salt))[..., 0], np.uint32(1)))


def as_words(value: ArrayLike) -> Array:
    """The bits of float32 or 32-bit whole numbers as uint32; all NaNs are one, and so are both zeros."""
    xp = array_module(value)
    array = xp.asarray(value)
    if array.dtype.kind == "b":
        return array.astype(np.uint32)
    if array.dtype.itemsize != 4:
        raise TypeError(f"marks are made of numbers of 32 bits, not of {array.dtype}")
    words = array.view(np.uint32) if xp is np else jax.lax.bitcast_convert_type(array, np.uint32)
    if array.dtype.kind != "f":
        return words
    size = words & _MAGNITUDE
    words = xp.where(size > _INFINITY, xp.full_like(words, _NAN), words)
    return xp.where(size == 0, xp.zeros_like(words), words)


def _mixed(words: Array) -> Array:
    """Every word scrambled, so that each bit depends on all of it (the last step of MurmurHash3)."""
    for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        words = (words ^ (words >> np.uint32(shift))) * np.uint32(factor)
    return words ^ (words >> np.uint32(16))


def row_of(array: ArrayLike, accounts: int = 0, most: int | None = None) -> Array:
    """An array as one row for each entry of its first axes, those of ``accounts``.

    Of more than ``most`` numbers evenly spaced ones: tables that differ do so nearly everywhere.
    """
    array = on_host(array)
    shape = np.shape(array)[:accounts]
    row = array_module(array).reshape(array, (*shape, -1))
    return row if most is None else row[..., :: max(1, row.shape[-1] // most)]


def static_of(filter: Any) -> list[object]:
    """The static fields that belong to what a filter is."""
    fields = [f for f in dataclasses.fields(filter) if f.metadata.get("static") and f.metadata.get("written", True)]
    return [getattr(filter, field.name) for field in fields]


def shown(state: object) -> str:
    """A state in words, whatever it holds."""
    try:
        return _validate.shown(state)
    except (ValueError, TypeError, IndexError, AttributeError):
        return type(state).__name__


def put_for(filter: object, state: State, mark: Array | None) -> State:
    """`put`, on states of filters that mark theirs: whoever else's are as they are."""
    return state if mark_of(filter) is None else put(state, mark)


def put(state: State, mark: Array | None) -> State:
    """``state`` with another mark: on a state of several accounts, on each; None for none."""
    if not (isinstance(state, tuple) and hasattr(state, "_fields")):
        return state
    if "mark" in state._fields:  # pyright: ignore[reportAttributeAccessIssue]
        return state._replace(mark=mark)  # pyright: ignore[reportAttributeAccessIssue]
    return type(state)(*(put(part, mark) for part in state))


def marks_in(state: object) -> list[Array | None]:
    """The marks that a state carries."""
    if not (isinstance(state, tuple) and hasattr(state, "_fields")):
        return []
    if "mark" in state._fields:  # pyright: ignore[reportAttributeAccessIssue]
        return [state.mark]  # pyright: ignore[reportAttributeAccessIssue]
    return [mark for part in state for mark in marks_in(part)]


def belongs(filter: object, state: object) -> Array:
    """Whether each account in ``state`` is one of ``filter``'s: a bool array of the accounts' shape, NumPy's if known.

    True for all states of a filter that marks none.

    Raises:
        ValueError: what is no state of this kind of filter: another structure, another shape, floats in place of whole
            numbers. Whole numbers of another width, as all that only values tell, make the answer False.
    """
    mine = mark_of(filter)
    if mine is None:
        return cast(Array, np.True_)
    shape, same, _ = _compared(filter, state)
    marks = marks_in(state)
    if not same or any(mark is None or _dtype(mark) != np.uint32 for mark in marks):
        return np.zeros(shape, bool)
    alike = [on_host(mark) == mine for mark in marks]
    found = functools.reduce(lambda one, other: one & other, alike)
    return array_module(found).broadcast_to(found, np.broadcast_shapes(shape, np.shape(found)))


def check_state(filter: object, state: object) -> None:
    """Raises ValueError, with the reason, unless ``state`` is one of ``filter``'s own.

    What a filter's ``update`` refuses without a word, because a compiled program has none: ask this before a state
    from a file goes on. Of traced states it checks types and shapes.

    Args:
        filter: from `jaxacct.filters`.
        state: from its `init` or `update`, perhaps written and read in between.

    Raises:
        ValueError: a state of another kind of filter, budget or table, or damaged types; what to do.
    """
    _validate.methods("init", "update", filter=filter)
    fits = belongs(filter, state)
    if not at_hand(fits) or np.all(np.asarray(fits)):
        return
    _, _, wrong = _compared(filter, state)
    if wrong:
        raise ValueError(f"state must hold {wrong}: write and read states bit for bit, as numpy.savez does")
    if any(mark is None for mark in marks_in(state)):
        raise ValueError(
            f"state must be what init or update returned, which carries the filter's mark, got {shown(state)}"
        )
    raise ValueError(
        f"state must be one of this filter, {filter!r:.120}: {shown(state)} was made by another kind of filter, budget "
        "or table. Go on with the filter that made it, take it over by filters.lower_budget, or begin anew with init()"
    )


def _compared(filter: object, state: object) -> tuple[tuple[int, ...], bool, str]:
    """The accounts' shape, whether all types are those of `init`, and which one is not, in words."""
    wanted, structure, rank = _layout(filter)
    found, other = jax.tree.flatten(put(state, None))
    if structure != other:
        raise ValueError(f"state must be what this filter's init or update returned, got {shown(state)}")
    shapes, wrong = set(), ""
    for i, (leaf, like) in enumerate(zip(found, wanted, strict=True)):
        tail, shape, dtype = like.shape[rank:], np.shape(leaf), _dtype(leaf)
        lead = shape[: len(shape) - len(tail)]
        if (dtype.kind == "f") != (like.dtype.kind == "f") or dtype.kind not in "fiu" or lead + tail != shape:
            size = ", ".join(map(str, (*["..."] * (rank > 0), *tail)))
            raise ValueError(
                f"state must hold {like.dtype}[{size}] in {_name(state, i)}, as init made it, got {dtype}{list(shape)}"
            )
        shapes.add(lead)
        if dtype != like.dtype:
            wrong = f"{like.dtype} in {_name(state, i)}, got {dtype}"
    if len(shapes) != 1:
        raise ValueError(f"state must hold accounts of one shape, got {sorted(shapes)}")
    return shapes.pop(), not wrong, wrong


def _dtype(leaf: ArrayLike) -> np.dtype[Any]:
    return leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype  # pyright: ignore[reportAttributeAccessIssue]


def _name(state: object, number: int) -> str:
    path, _ = jax.tree_util.tree_leaves_with_path(put(state, None))[number]
    return jax.tree_util.keystr(path).lstrip(".")


def _layout(filter: Any) -> tuple[list[jax.ShapeDtypeStruct], Any, int]:
    """What `init` makes, but for marks, as shapes and types and a structure, and how many axes of accounts it has."""
    if isinstance(filter, Around):
        return _layout(filter.filter)
    kept = vars(filter).get("_layout")
    if kept is None:
        mark = mark_of(filter)
        made = put(jax.eval_shape(lambda: filter.init()), None)
        kept = (*jax.tree.flatten(made), 0 if mark is None else mark.ndim)
        object.__setattr__(filter, "_layout", kept)
    return kept


def marked(filter: object, state: State) -> State:
    """A state of ``filter``'s own making, with its mark."""
    mark = mark_of(filter)
    return state if mark is None else put(state, on_device(mark))


def chosen(fits: Array, new: State, old: State) -> State:
    """``new`` where ``fits``, which has the accounts' shape, else ``old``."""
    xp = array_module(fits, new, old)

    def one(new: Array, old: Array) -> Array:
        return xp.where(xp.reshape(fits, fits.shape + (1,) * (np.ndim(new) - fits.ndim)), new, old)

    return jax.tree.map(one, new, old)
