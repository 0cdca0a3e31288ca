"""Says on a terminal how far long work has come: one line and a bar on standard error, and nothing anywhere else."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[[int, int], object] | None
"""Takes how much is done, and of how much; None where nothing is to be said."""

_DELAY = 1.0  # seconds of work before anything is said about it
_OUTER: contextvars.ContextVar[_Line | None] = contextvars.ContextVar("jaxacct_progress", default=None)


class _Line:
    """One line of a terminal, empty for the first second. ``own`` is set once who opened it has reported."""

    def __init__(self, label: str, quiet: bool):
        self.label, self.quiet, self.own = label, quiet, False
        self.start, self.bar = time.monotonic(), None
        self.hint = threading.Timer(_DELAY, self._written, [f"{label} ..."])
        self.hint.daemon = True
        if not quiet:
            self.hint.start()

    def report(self, done: int, total: int) -> None:
        """Shows it."""
        self.own = True
        self._draw(done, total)

    def report_within(self, done: int, total: int) -> None:
        """The same of work within the work, whose amount is another one: who opened the line goes first."""
        if not self.own:
            self._draw(done, total)

    def close(self) -> None:
        """Takes the line away, or ends the bar."""
        self.hint.cancel()
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
        elif not self.quiet and time.monotonic() - self.start >= _DELAY:
            self._written("\r\033[K")

    def _draw(self, done: int, total: int) -> None:
        import click

        if self.quiet or time.monotonic() - self.start < _DELAY:
            return
        if self.bar is None or self.bar.length != total:
            self.hint.cancel()
            self._written("\r\033[K")
            self.bar: Any = click.progressbar(length=total, label=self.label, file=sys.stderr, show_pos=True)
            self.bar.__enter__()
        self.bar.update(max(0, done - self.bar.pos))

    def _written(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextlib.contextmanager
def progress(label: str, quiet: bool = False) -> Iterator[Report]:
    """What work within the block calls to say how far it has come; None where nobody looks.

    Nothing appears in the first second. A block within another one writes on the outer one's line, or is as quiet.
    """
    outer = _OUTER.get()
    if outer is not None:
        yield None if outer.quiet else outer.report_within
        return
    line = _Line(label, quiet or not sys.stderr.isatty())
    token = _OUTER.set(line)
    try:
        yield None if line.quiet else line.report
    finally:
        _OUTER.reset(token)
        line.close()
