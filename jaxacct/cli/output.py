"""Output of commands: JSON, CSV and tables."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxacct._types import Fields, PyTree


class Answer(NamedTuple):
    """What a command answers.

    Attributes:
        lines: for people; of several lines each, or of one.
        fields: for programs, with full precision.
        status: the exit status.
        err: whether the lines belong on standard error.
        csv: columns and rows of a table, for ``--csv``.
    """

    lines: Iterable[str]
    fields: Fields
    status: int = 0
    err: bool = False
    csv: tuple[Sequence[str], Iterable[Sequence[object]]] = ((), ())


def as_json(value: PyTree) -> PyTree:
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


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A header and one line a row; numbers in full precision, ``inf`` and ``nan`` in these words."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
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
