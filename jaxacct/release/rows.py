"""Checks columns of private data; what an error says shows none of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct import _validate

_WORDS = {"b": "True or False", "iuf": "numbers", "biufUSO": "numbers, truth values or texts"}


def as_rows(name: str, column: object, kinds: str) -> np.ndarray[Any, Any]:
    """``column`` as an array (rows,) whose NumPy kind is one of ``kinds``; raises ValueError, also for NaN."""
    wanted = f"{name} must be one column of {_WORDS[kinds]}"
    if _validate.is_traced(column) or isinstance(column, np.ma.MaskedArray):
        raise ValueError(f"{wanted}, got a {type(column).__name__}")
    try:
        # As objects where texts are allowed: in a list, NumPy would make one row's type that of all others.
        array = np.asarray(column, object if "O" in kinds and not hasattr(column, "dtype") else None)
    except (ValueError, TypeError):
        raise ValueError(f"{wanted}, got something ragged, or no array") from None
    if array.ndim == 1 and not array.size:
        return array.astype(bool if kinds == "b" else float)
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise ValueError(f"{wanted}, got an array of shape {array.shape} and type {array.dtype}")
    if array.dtype.kind == "O" and not all(
        isinstance(value, str | bytes | int | float | np.generic) for value in array
    ):
        raise ValueError(f"{wanted}, got objects of other types (None among them, perhaps)")
    if array.dtype.kind in "fO" and np.any(array != array):
        raise ValueError(f"{wanted}, got NaN: drop or replace such rows by a rule that looks at one row at a time")
    return array
