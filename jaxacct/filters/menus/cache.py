"""Keeps tables on disk under the hash of their inputs; a file with a wrong hash is computed anew.

A digest guards against truncation, corruption and mix-ups, not against somebody who may write to the directory: keep
it as private as the program.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxacct._files import is_regular

Progress = Callable[[int, int], object] | None
"""What is called as ``progress(done, total)`` while a table grows, if anything is."""


def directory() -> pathlib.Path:
    """Where tables lie: ``$JAXACCT_CACHE_DIR``, or ``jaxacct`` in the user's cache directory."""
    given = os.environ.get("JAXACCT_CACHE_DIR")
    if given:
        return pathlib.Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "jaxacct"


def digest(*values: object) -> str:
    """SHA-256 of pytrees of numbers, arrays and strings: structure, types, shapes and bytes."""
    found = hashlib.sha256()
    for value in values:
        leaves, structure = jax.tree.flatten(value)
        found.update(repr(structure).encode())
        for leaf in leaves:
            array = np.asarray(leaf)
            found.update(f"|{array.dtype.str}{array.shape}|".encode() + array.tobytes())
    return found.hexdigest()


def load(key: str) -> dict[str, np.ndarray] | None:
    """The arrays stored under ``key``; None where there are none, or a file that is not what was written."""
    if not is_regular(directory() / f"{key}.npz"):  # a pipe would wait for whoever writes it
        return None
    try:
        with open(directory() / f"{key}.npz", "rb") as raw, np.load(raw, allow_pickle=False) as file:
            # A table is stored as it is: what would grow while it is read was not written here.
            if any(one.file_size != one.compress_size for one in file.zip.infolist()):
                return None
            arrays = {name: file[name] for name in file.files}
        sealed = str(arrays.pop("digest"))
    except Exception:  # whatever a damaged archive makes zipfile and NumPy raise
        return None
    return arrays if sealed == digest(key, arrays) else None


def store(key: str, arrays: dict[str, np.ndarray]) -> None:
    """Writes ``arrays`` in one atomic step; without a word where the directory cannot be written."""
    with contextlib.suppress(OSError):
        directory().mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=directory(), suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                named: dict[str, Any] = {**arrays, "digest": np.array(digest(key, arrays))}
                np.savez(file, **named)
            os.replace(name, directory() / f"{key}.npz")
        except BaseException:
            pathlib.Path(name).unlink(missing_ok=True)
            raise


def kept(key: str, make: Callable[[], dict[str, np.ndarray]], use: bool) -> dict[str, np.ndarray]:
    """The arrays stored under ``key``, or those that ``make`` returns, which are then stored; anew without ``use``."""
    if not use:
        return make()
    arrays = load(key)
    if arrays is None:
        arrays = make()
        store(key, arrays)
    return arrays
