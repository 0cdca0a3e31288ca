"""The mark at the beginning of a journal: how many records have reached the disk, and the seal of the last of them.

It is written over in place, in two slots by turns, so that a write that a power cut tears leaves the one before it.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple


class Mark(NamedTuple):
    """How many records have reached the disk, and the seal of the last."""

    records: int
    seal: str


_BODY = '"records":{:12d},"seal":"{:32s}"'
_SLOT = '{{"check":"{}",{}}}\n'
_WIDTH = len(_SLOT.format(16 * "0", _BODY.format(0, "")))
LENGTH = 2 * _WIDTH
"""Bytes of both slots; the records follow."""


def slot(mark: Mark) -> tuple[bytes, int]:
    """The bytes of a mark, and where they are to be written."""
    body = _BODY.format(*mark)
    return _SLOT.format(_check(body), body).encode(), _WIDTH * (mark.records % 2)


def fresh() -> bytes:
    """The beginning of a journal without records."""
    return 2 * slot(Mark(0, ""))[0]


def read(raw: bytes) -> Mark | None:
    """The later of the two marks in the beginning of a journal; None where neither is whole."""
    found = [_read(raw[start : start + _WIDTH]) for start in (0, _WIDTH)]
    return max((mark for mark in found if mark is not None), key=lambda mark: mark.records, default=None)


def _read(raw: bytes) -> Mark | None:
    try:
        tree = json.loads(raw)
        mark = Mark(tree["records"], tree["seal"].rstrip())
        return mark if slot(mark)[0] == raw else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _check(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]
