"""Writes values as JSON, one text for one value, bit for bit, and reads them back; no pickle, no import by name.

Numbers of Python are themselves; arrays, NumPy or JAX scalars and floats that are not finite are ``{"array": {"data":
base64, "dtype": "<f4", "shape": [2]}}``; a registered dataclass is ``{"fields": {...}, "type": name}``; sequences are
lists, and come back as tuples.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from typing import Any

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._types import Fields
from jaxacct.ledger import registry
from jaxacct.ledger.errors import LedgerCorrupted

_MOST_BYTES = 16 * 2**20
_MOST_DEPTH = 32
_DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")


def dumps(tree: object) -> str:
    """The one text of a tree of JSON's own types."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def loads(text: str) -> Any:
    """The tree in a text."""
    try:
        tree = json.loads(text)
        same = dumps(tree) == text
    except (ValueError, TypeError, RecursionError) as problem:
        raise LedgerCorrupted(f"a record is not JSON: {problem}") from None
    if not same:
        raise LedgerCorrupted("a record is not in canonical form")
    return tree


def digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def encoded(value: object, name: str, depth: int = 0) -> object:
    """``value`` as a tree of JSON's own types: numbers, arrays, strings, None, sequences, registered dataclasses.

    ``name`` is of the argument, for messages; ``depth`` is how deep in a nest it stands, 31 at most.
    """
    if depth > _MOST_DEPTH:
        raise ValueError(f"{name} must not be nested more than {_MOST_DEPTH} deep, got a deeper one")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _checked(value, name)
    if isinstance(value, float | np.generic | np.ndarray | jax.Array):
        plain = type(value) is float and math.isfinite(value)  # JSON has no others
        return value if plain else {"array": _array(value, name)}
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise ValueError(f"{name} must hold whole numbers below 2^63, got one of {value.bit_length()} bits")
        return value
    if isinstance(value, tuple | list):
        return [encoded(item, name, depth + 1) for item in value]
    known = registry.name_of(type(value))
    if known is None:
        raise ValueError(
            f"{name} must be a number or one of jaxacct's own types (or registered by jaxacct.ledger.register), "
            f"got {type(value).__name__}"
        )
    fields = {key: encoded(field, name, depth + 1) for key, field in registry.fields_of(value).items()}
    return {"type": known, "fields": fields}


def decoded(tree: object, depth: int = 0) -> Any:
    """The value of which `encoded` made ``tree``; arrays come back as NumPy's."""
    if depth > _MOST_DEPTH:  # not every Python refuses deep nests by itself
        raise LedgerCorrupted(f"a record holds a value that is nested more than {_MOST_DEPTH} deep")
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, list):
        return tuple(decoded(item, depth + 1) for item in tree)
    if isinstance(tree, dict) and set(tree) == {"array"} and isinstance(tree["array"], dict):
        return _from_bytes(tree["array"])
    if isinstance(tree, dict) and set(tree) == {"type", "fields"} and isinstance(tree["fields"], dict):
        return _dataclass(str(tree["type"]), tree["fields"], depth + 1)
    raise LedgerCorrupted(f"a record holds something that is not a written value: {str(tree)[:80]}")


def _checked(text: str, name: str) -> str:
    if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{name} must be text without NUL and without lone surrogates, got {text[:40]!r}")
    if len(text) > 10_000:
        raise ValueError(f"{name} must have at most 10000 characters, got {len(text)}")
    return text


def _array(value: float | np.generic | np.ndarray | jax.Array, name: str) -> dict[str, object]:
    if _validate.is_traced(value):
        raise ValueError(f"{name} must be concrete, got a traced value: a ledger lives outside jit, vmap and grad")
    if isinstance(value, np.ma.MaskedArray):  # NumPy would hand out what the mask hides
        raise ValueError(f"{name} must hold numbers, got a masked array")
    array = np.asarray(value)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.str not in _DTYPES:
        raise ValueError(f"{name} must hold real numbers of a type of NumPy's, got {array.dtype}")
    if array.nbytes >= _MOST_BYTES:
        raise ValueError(f"{name} must hold arrays below 16 MiB, got one of {array.nbytes} bytes")
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"data": data, "dtype": array.dtype.str, "shape": list(array.shape)}


def _from_bytes(tree: Fields) -> np.ndarray | np.generic:
    try:
        shape = tuple(tree["shape"])
        if set(tree) != {"data", "dtype", "shape"} or tree["dtype"] not in _DTYPES:
            raise ValueError("an unknown type of array")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"shape {shape}")
        raw = base64.b64decode(tree["data"], validate=True)
        return np.frombuffer(raw, np.dtype(tree["dtype"])).reshape(shape)[()]  # which raises where sizes differ
    except (ValueError, TypeError, KeyError) as problem:
        raise LedgerCorrupted(f"a record holds a broken array: {problem}") from None


def _dataclass(name: str, fields: dict[str, object], depth: int) -> object:
    cls = registry.class_of(name)
    if cls is None:
        raise LedgerCorrupted(
            f"a record names a type that is not registered: {name[:80]!r} (jaxacct.ledger.register makes one known)"
        )
    try:
        return cls(**{key: decoded(field, depth) for key, field in fields.items()})
    except (TypeError, ValueError, AttributeError) as problem:
        raise LedgerCorrupted(f"a record holds a broken {name}: {problem}") from None
