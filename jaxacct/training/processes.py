"""What the processes of one run (``jax.distributed``) tell one another: bytes, so that a NaN is equal to itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxacct._types import Fields

_KINDS = (ValueError, OSError)
Told = TypeVar("Told")


def from_first(data: bytes) -> bytes:
    """The ``data`` of process 0, in every process; theirs may be of any length. All of them must call it."""
    if jax.process_count() == 1:
        return data
    length = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    told = np.zeros(length, np.uint8)
    if is_first():
        told[:] = np.frombuffer(data, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(told)).tobytes() if length else b""


def from_all(data: bytes) -> list[bytes]:
    """The ``data`` of each process, all of one length, in their order. All of them must call it."""
    if jax.process_count() == 1:
        return [data]
    told = multihost_utils.process_allgather(np.frombuffer(data, np.uint8))
    return [row.tobytes() for row in np.asarray(told)]


def is_first() -> bool:
    """Whether this is process 0, which speaks for all."""
    return jax.process_index() == 0


def led(action: Callable[[], Told]) -> Told:
    """What ``action()`` returns, JSON, in process 0, the only one that runs it; what it raises is raised in all."""
    if jax.process_count() == 1:
        return action()
    told: Fields = {}
    if is_first():
        try:
            told = {"value": action()}
        except Exception as problem:
            kind = next((kind.__name__ for kind in _KINDS if isinstance(problem, kind)), "RuntimeError")
            told = {"kind": kind, "text": str(problem)}
    told = json.loads(from_first(json.dumps(told).encode()))
    if "kind" in told:
        raise {kind.__name__: kind for kind in (*_KINDS, RuntimeError)}[told["kind"]](told["text"])
    return told["value"]


def agree(**named: str) -> None:
    """Raises ValueError, in every process, where one text is not the same in all of them."""
    ((name, value),) = named.items()
    if len(set(from_all(hashlib.sha256(value.encode()).digest()))) > 1:
        raise ValueError(f"{name} must be the same in every process, got here {value:.200}")
