"""Keeps tables on disk under the hash of their inputs; a file with a wrong hash is computed anew.

A digest guards against truncation, corruption and mix-ups, not against somebody who writes a table of their own. So the
directory is made for this user alone, and it and a file in it are read only if they belong to the user who runs the
program and nobody else may write to them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import tempfile
import warnings
from collections.abc import Callable

import numpy as np

from jaxacct._files import not_ones_own
from jaxacct._progress import Report as Progress
from jaxacct._progress import progress as terminal_progress
from jaxacct._types import Fields
from jaxacct.filters.described import described


def directory() -> pathlib.Path:
    """Where tables lie: ``$JAXACCT_CACHE_DIR``, or ``jaxacct`` in the user's cache directory."""
    given = os.environ.get("JAXACCT_CACHE_DIR")
    if given:
        return pathlib.Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "jaxacct"


def digest(*values: object) -> str:
    """SHA-256 of what `described` says of values."""
    return hashlib.sha256(described(values).encode()).hexdigest()


def load(key: str) -> dict[str, np.ndarray] | None:
    """The arrays stored under ``key``; None where there are none, or a file that is not what was written.

    None, with a warning, where somebody else may have written it.
    """
    path = directory() / f"{key}.npz"
    try:
        _refuse_others(path.parent.stat(), path.parent)
        with open(path, "rb", opener=_no_link) as raw:
            _refuse_others(os.fstat(raw.fileno()), path)  # of what is read, whatever has become of the folder
            with np.load(raw, allow_pickle=False) as file:
                # A table is stored as it is: what would grow while it is read was not written here.
                if any(one.file_size != one.compress_size for one in file.zip.infolist()):
                    return None
                arrays = {name: file[name] for name in file.files}
        sealed = str(arrays.pop("digest"))
    except Exception:  # none is there, or whatever a damaged archive makes zipfile and NumPy raise
        return None
    return arrays if sealed == digest(key, arrays) else None


def store(key: str, arrays: dict[str, np.ndarray]) -> None:
    """Writes ``arrays`` in one atomic step; without a word where the directory is another's or cannot be written."""
    with contextlib.suppress(OSError):
        if not own_folder():
            return
        handle, name = tempfile.mkstemp(dir=directory(), suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                named: Fields = {**arrays, "digest": np.array(digest(key, arrays))}
                np.savez(file, **named)
            os.replace(name, directory() / f"{key}.npz")
        except BaseException:
            pathlib.Path(name).unlink(missing_ok=True)
            raise


def own_folder(*below: str) -> bool:
    """Whether the directory, and the folders ``below`` it, are this user's alone; made with mode 0700 where missing."""
    folder = directory()
    folder.parent.mkdir(parents=True, exist_ok=True)
    for name in ("", *below):
        folder /= name
        folder.mkdir(mode=0o700, exist_ok=True)
        if not_ones_own(folder.stat()):
            return False
    return True


def _no_link(path: str, flags: int) -> int:
    """Opens neither a link, nor a pipe, which would wait for whoever writes it."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _refuse_others(found: os.stat_result, path: pathlib.Path) -> None:
    why = not_ones_own(found)
    if why is not None:
        warnings.warn(
            f"tables in {path} are computed anew, because it {why}: make it yours alone (chown, chmod go-w), or set "
            "JAXACCT_CACHE_DIR to a folder that is",
            RuntimeWarning,
            stacklevel=2,
        )
        raise PermissionError(f"{path} {why}")


def kept(
    key: str, make: Callable[[Progress], dict[str, np.ndarray]], use: bool, progress: Progress = None
) -> dict[str, np.ndarray]:
    """The arrays stored under ``key``, or those that ``make`` returns, which are then stored; anew without ``use``.

    ``make`` is given ``progress``, or where that is None a bar on the terminal, if there is one.
    """
    arrays = load(key) if use else None
    if arrays is None:
        with terminal_progress("table of prices") as shown:
            arrays = make(progress or shown)
        if use:
            store(key, arrays)
    return arrays
