"""`bar`: one line on a terminal's standard error that says how far long work has come."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

Progress: TypeAlias = Callable[[int, int], object]
"""Takes how much is done, and of how much."""

_DELAY = 1.0  # seconds of work before anything is said about it
_WIDTH = 30
_CLEAR = "\r\033[K"


@contextlib.contextmanager
def bar(label: str, quiet: bool = False) -> Iterator[Progress]:
    """A function to call as ``progress(done, total)``; it draws once the work took a second, and only on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    start = time.monotonic()

    def write(text: str) -> None:
        sys.stderr.write(f"{_CLEAR}{text}")
        sys.stderr.flush()

    hint = threading.Timer(_DELAY, write, [f"{label} ..."])
    hint.daemon = True
    hint.start()

    def report(done: int, total: int) -> None:
        if time.monotonic() - start < _DELAY:
            return
        hint.cancel()
        share = min(done / max(total, 1), 1.0)
        filled = int(_WIDTH * share)
        write(f"{label}  [{'#' * filled}{'-' * (_WIDTH - filled)}]  {done}/{total}")

    try:
        yield report
    finally:
        hint.cancel()
        if time.monotonic() - start >= _DELAY:
            write("")
