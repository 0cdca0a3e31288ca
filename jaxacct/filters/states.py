"""`filter_class` makes a class a filter: a frozen pytree that checks its arguments and prints as its maker."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism
from jaxacct.filters.printing import printed_as

T = TypeVar("T", bound=type)
_METHODS = (
    "update", "update_clipped", "spent", "remaining", "remaining_slack", "fraction", "clip_scale", "bounds", "price",
    "epsilon", "loss_bound", "steps_left",
)  # fmt: skip


@dataclass_transform(frozen_default=True, eq_default=False)
def filter_class(state: type, name: str, *shown: str) -> Callable[[T], T]:
    """Makes a class a pytree that keeps states of a type, and prints as the function ``name`` with properties."""
    return lambda cls: printed_as(name, *shown)(keeps(state)(mechanism(cls)))


def keeps(kind: type) -> Callable[[T], T]:
    """Makes the methods of a filter that take a ``state`` raise ValueError where it is no ``kind``."""

    def checked(method: Any) -> Any:
        names = list(inspect.signature(method).parameters)

        @functools.wraps(method)
        def inner(*args: Any, **kwargs: Any) -> Any:
            # An argument that is missing is for Python to complain of.
            given = dict(zip(names, args, strict=False)) | kwargs
            if not isinstance(given.get("state"), kind) and "state" in given:
                raise ValueError(
                    f"state must be what init or update returned, {kind.__name__}, "
                    f"got {_validate.shown(given['state'])}"
                )
            if isinstance(given.get("query"), list | dict | set):
                asked = _validate.shown(given["query"])
                raise ValueError(f"query must be a mechanism, a number or an array, got {asked}")
            _validate.plain(query=given.get("query"))
            if isinstance(given.get("norms"), list | tuple | dict | set | str | None) and "norms" in given:
                _validate.numbers(norms=given["norms"])
            return method(*args, **kwargs)

        return inner

    def wrap(cls: T) -> T:
        for name in _METHODS:
            method = inspect.getattr_static(cls, name, None)
            if inspect.isfunction(method) and "state" in inspect.signature(method).parameters:
                setattr(cls, name, checked(method))
        return cls

    return wrap
