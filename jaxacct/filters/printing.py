"""How filters and their states print: `gdp(mu=1)`, `SpentState(spent 0.36 of the budget)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np

from jaxacct._numerics.host import at_hand

T = TypeVar("T", bound=type)


def number(value: object) -> str:
    """A number in six digits; an array by its range and shape; a traced value by its dtype and shape."""
    if not at_hand(value):
        return str(jax.typeof(value))
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        return repr(value)
    if array.ndim == 0:
        return f"{array:.6g}"
    if array.size == 0:
        return f"shape {array.shape}"
    return f"{array.min():.6g} to {array.max():.6g}, shape {array.shape}"


def share(fraction: object) -> str:
    """How much of a budget is spent, in words."""
    amount, *shape = number(fraction).split(", ", 1)
    return f"spent {amount} of the budget" + "".join(f", {one}" for one in shape)


def printed_as(name: str, *shown: str) -> Callable[[T], T]:
    """Makes a filter print as the function that makes it, with the properties ``shown``; without any, as it says.

    A class that several functions make has no ``name`` here, and says itself by which one a filter was made.
    """

    def represent(self: object) -> str:
        try:
            return f"{name}({', '.join(f'{one}={_of(getattr(self, one))}' for one in shown)})"
        except (TypeError, ValueError, AttributeError, IndexError):  # JAX puts placeholders into the leaves of trees
            return f"{name}(...)"

    def wrap(cls: T) -> T:
        if shown:
            cls.__repr__ = represent  # type: ignore[method-assign]
        if name:
            cls._name = name  # type: ignore[attr-defined]
        return cls

    return wrap


def _of(value: object) -> str:
    return repr(value) if isinstance(value, str | tuple) or dataclasses.is_dataclass(value) else number(value)
