"""Texts and 32-bit words that say what an object is, the same in every process: no addresses, no hash seeds.

A function is what it computes: its code, its defaults, what it closes over, the object that it is a method of, and
those globals of its module that it names, but for other modules' functions, which count by their names. So budget
families that a program makes by ``lambda left: law(scale * left)`` are as many as there are scales.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterable

import jax
import numpy as np
from jax.core import Tracer

_DEEPEST = 16


def word_of(value: object) -> int:
    """32 bits of the SHA-256 of what `described` says of a value."""
    return int.from_bytes(hashlib.sha256(described(value).encode()).digest()[:4], "big")


def described(value: object) -> str:
    """A text for a value: two that may act differently have two texts, as far as Python can look into them."""
    return _text(value, ())


def _text(value: object, within: tuple[int, ...]) -> str:
    """``within`` holds the addresses of what ``value`` is part of, at which descriptions end, as they do far below."""
    if value is None or isinstance(value, bool | str | bytes | np.bool_):
        return repr(value if not isinstance(value, np.bool_) else bool(value))
    if isinstance(value, int | float | np.number) and not isinstance(value, np.complexfloating):
        return str(int(value)) if isinstance(value, int) and value.bit_length() > 53 else float(value).hex()
    if isinstance(value, Tracer | type | types.ModuleType):
        return str(getattr(value, "__qualname__", getattr(value, "__name__", type(value).__qualname__)))
    if id(value) in within or len(within) > _DEEPEST:
        return "above" if id(value) in within else type(value).__qualname__
    within = (*within, id(value))

    def each(parts: Iterable[object]) -> str:
        return f"({','.join(_text(part, within) for part in parts)})"

    if isinstance(value, tuple | list):
        return each(value)
    if isinstance(value, set | frozenset):
        return f"set({','.join(sorted(_text(part, within) for part in value))})"
    if isinstance(value, dict | types.MappingProxyType):
        return f"dict({','.join(sorted(each(pair) for pair in value.items()))})"
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        return f"{array.dtype.str}{array.shape}{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
    if isinstance(value, functools.partial):
        return f"partial{each((value.func, *value.args, *sorted(value.keywords.items())))}"
    if isinstance(value, types.MethodType):
        return f"method{each((value.__func__, value.__self__))}"
    if isinstance(value, types.FunctionType):
        return f"{value.__qualname__}{each(_parts_of(value))}"
    if isinstance(value, types.CodeType):
        return each((value.co_code, value.co_consts, value.co_names, value.co_varnames, value.co_freevars))
    inner = getattr(value, "__wrapped__", None)
    if callable(inner):  # jax.jit, functools.cache
        return f"{type(value).__qualname__}{each((inner,))}"
    if dataclasses.is_dataclass(value):
        held = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        return f"{type(value).__qualname__}{each(held)}"
    name = str(getattr(value, "__qualname__", type(value).__qualname__))
    return name + (_text(vars(value), within) if hasattr(value, "__dict__") else "")


def _parts_of(function: types.FunctionType) -> list[object]:
    """What a function computes with."""
    cells = [_content(cell) for cell in function.__closure__ or ()]
    named = []
    for name in sorted(_names_in(function.__code__) & function.__globals__.keys()):
        found = function.__globals__[name]
        other = callable(found) and getattr(found, "__module__", None) != function.__module__
        named.append((name, getattr(found, "__qualname__", type(found).__qualname__) if other else found))
    return [function.__code__, function.__defaults__, function.__kwdefaults__, cells, named]


def _names_in(code: types.CodeType) -> set[str]:
    """The names of globals (and of attributes) in a function's code and that of the functions it makes."""
    inner = [_names_in(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not yet set
        return None
