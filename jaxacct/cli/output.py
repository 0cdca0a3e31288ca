"""Output of commands: JSON, CSV, tables, and progress on a terminal."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

Report = Callable[[int, int], None] | None
"""Takes how much is done, and of how much; None where nothing is to be said."""

_DELAY = 1.0  # seconds of work before anything is said about it


def as_json(value: Any) -> Any:
    """``value`` in Python's own types; JSON has no infinity and no NaN, which become null."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: object) -> str:
    """One line of JSON; numbers come back as the doubles they were."""
    return json.dumps(as_json(value), allow_nan=False)


def say_json(value: object) -> None:
    """Prints a dictionary as one JSON object on one line."""
    click.echo(json_text(value))


def as_csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A header and one line a row; numbers in full precision, ``inf`` and ``nan`` in these words."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, numbers to the right."""
    widths = [max(len(column), *(len(row[i]) for row in rows), 0) for i, column in enumerate(columns)]
    number = [all(_is_number(row[i]) for row in rows) for i in range(len(columns))]

    def line(cells: Sequence[str]) -> str:
        laid = [cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(cells, widths, number, strict=True)]
        return "  ".join(laid).rstrip()

    return "\n".join([line(columns), *(line(row) for row in rows)])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text in ("", "-")
    return True


@contextlib.contextmanager
def progress(label: str, quiet: bool) -> Iterator[Report]:
    """Says on a terminal's standard error how far work has come, once it took a second; otherwise nothing."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    start, shown = time.monotonic(), None
    hint = threading.Timer(_DELAY, lambda: click.echo(f"{label} ...", nl=False, err=True))
    hint.daemon = True
    hint.start()

    def report(done: int, total: int) -> None:
        nonlocal shown
        if time.monotonic() - start < _DELAY:
            return
        if shown is None:
            hint.cancel()
            click.echo("\r\033[K", nl=False, err=True)
            shown = click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True)
            shown.__enter__()
        shown.update(max(0, done - shown.pos))

    try:
        yield report
    finally:
        hint.cancel()
        if shown is not None:
            shown.__exit__(None, None, None)
        elif time.monotonic() - start >= _DELAY:
            click.echo("\r\033[K", nl=False, err=True)
