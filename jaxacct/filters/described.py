"""Texts and 32-bit words that say what an object is, the same in every process: no addresses, no hash seeds."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable

import jax
import numpy as np
from jax.core import Tracer


def word_of(value: object) -> int:
    """32 bits of the SHA-256 of what `described` says of a value."""
    return int.from_bytes(hashlib.sha256(described(value).encode()).digest()[:4], "big")


def word_of_function(function: Callable[..., object], *arguments: object) -> int:
    """32 bits for what a function computes of arrays like these: the StableHLO of it, with all constants."""
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), arguments)
    with jax.enable_x64(True):
        return word_of(jax.jit(function).trace(*shapes).lower(lowering_platforms=("cpu",)).as_text())


def described(value: object) -> str:
    """A text for a value of numbers, texts, arrays, sequences and dataclasses of them: two values have two texts."""
    if value is None or isinstance(value, bool | str | bytes | np.bool_):
        return repr(value if not isinstance(value, np.bool_) else bool(value))
    if isinstance(value, int | float | np.number) and not isinstance(value, np.complexfloating):
        return str(int(value)) if isinstance(value, int) and value.bit_length() > 53 else float(value).hex()
    if isinstance(value, Tracer | type):
        return getattr(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, tuple | list):
        return _each(value)
    if isinstance(value, dict):
        return _each(sorted(value.items()))
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        return f"{array.dtype.str}{array.shape}{hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
    if dataclasses.is_dataclass(value):
        return type(value).__qualname__ + _each((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
    held = sorted(vars(value).items()) if hasattr(value, "__dict__") else ()
    return str(getattr(value, "__qualname__", type(value).__qualname__)) + _each(held)


def _each(parts: Iterable[object]) -> str:
    return f"({','.join(map(described, parts))})"
