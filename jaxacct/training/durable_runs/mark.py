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


def slot(mark: Mark, number: int) -> tuple[bytes, int]:
    """The bytes of a mark for slot 0 or 1, and where they are to be written."""
    return _written(mark), _WIDTH * number


def fresh() -> bytes:
    """The beginning of a journal without records."""
    return 2 * _written(Mark(0, ""))


def read(raw: bytes) -> tuple[Mark, int] | None:
    """The later of the two marks in the beginning of a journal, and its slot; None where neither is whole."""
    found = [(_read(raw[_WIDTH * number :][:_WIDTH]), number) for number in (0, 1)]
    whole = [(mark, number) for mark, number in found if mark is not None]
    return max(whole, key=lambda one: one[0].records, default=None)


def both_whole(raw: bytes) -> bool:
    """Whether both marks in the beginning of a journal are whole: a power cut leaves one, the next opening mends it."""
    return all(_read(raw[_WIDTH * number :][:_WIDTH]) is not None for number in (0, 1))


def _written(mark: Mark) -> bytes:
    body = _BODY.format(*mark)
    return _SLOT.format(_check(body), body).encode()


def _read(raw: bytes) -> Mark | None:
    try:
        tree = json.loads(raw)
        mark = Mark(tree["records"], tree["seal"].rstrip())
        return mark if _written(mark) == raw else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _check(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]
