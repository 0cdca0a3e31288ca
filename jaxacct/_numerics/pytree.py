"""Registers frozen dataclasses as pytrees whose checks run when a user makes one, not when JAX rebuilds a tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

import jax

from jaxacct._printing import plainly
from jaxacct._types import PyTree

T = TypeVar("T")


def checked(*checks: Callable[..., object], default: object = dataclasses.MISSING) -> Any:
    """A field whose value passes ``checks``, functions of :mod:`jaxacct._validate`; see `check_fields`."""
    return dataclasses.field(default=default, metadata={"checks": checks})


def check_fields(tree: object) -> None:
    """Raises ValueError where the value of a field does not pass its checks."""
    for field in dataclasses.fields(tree):  # pyright: ignore[reportArgumentType]
        for check in field.metadata.get("checks", ()):
            check(**{field.name: getattr(tree, field.name)})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(checked, dataclasses.field))
def mechanism(cls: type[T]) -> type[T]:
    """Makes ``cls`` a frozen dataclass and registers it as a pytree.

    Fields are leaves unless declared with ``dataclasses.field(metadata={"static": True})``. Rebuilding a tree
    skips ``__init__`` and its checks, because JAX rebuilds trees with tracers, axis numbers and placeholders
    in the leaves; only a person's own call is checked.
    """
    made: Any = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    if made.__repr__ is object.__repr__:
        made.__repr__ = lambda self: plainly(self, [field.name for field in dataclasses.fields(self) if field.repr])
    data, static = [], []
    for field in dataclasses.fields(made):
        (static if field.metadata.get("static", False) else data).append(field.name)

    keys = [jax.tree_util.GetAttrKey(name) for name in data]

    def flatten_with_keys(self: object):
        leaves, meta = flatten(self)
        return tuple(zip(keys, leaves, strict=True)), meta

    def flatten(self: object):
        value = vars(self).__getitem__
        return tuple(map(value, data)), tuple(map(value, static))

    def unflatten(meta: tuple[object, ...], leaves: PyTree):
        self = object.__new__(made)
        for name, value in zip(data, leaves, strict=True):
            object.__setattr__(self, name, value)
        for name, value in zip(static, meta, strict=True):
            object.__setattr__(self, name, value)
        return self

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made


def replaced(tree: T, **fields: object) -> T:
    """``tree``, a dataclass, with other values in some fields, not checked."""
    return unchecked(type(tree), **{**vars(tree), **fields})


def unchecked(cls: type[T], **fields: object) -> T:
    """A ``cls`` whose values are not checked: numbers from inside a program may be invalid, and then fail closed."""
    made = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made
