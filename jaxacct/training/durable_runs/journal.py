"""A write-ahead journal: every charge is on disk before its release."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import NamedTuple, TypeAlias

from jaxacct._files import as_path, fcntl, refuse_special, sync_folder, to_disk
from jaxacct._types import Fields

Record: TypeAlias = Fields
"""What one line holds: JSON, with a ``kind`` in the journal of a run."""


class Mark(NamedTuple):
    """How many records have reached the disk, and the seal of the last."""

    records: int
    seal: str


class Contents(NamedTuple):
    """What a journal holds.

    Attributes:
        records: in order.
        seals: of each.
        mark: how many records have reached the disk, and the slot of the file's beginning that says so.
        end: bytes up to the end of the last whole record.
    """

    records: list[Record]
    seals: list[str]
    mark: tuple[Mark, int]
    end: int


def contents(path: Path, raw: bytes) -> Contents:
    """What a journal's bytes hold, before a last line that is half written, if there is one.

    Raises:
        ValueError: a damaged journal.
    """

    def damaged(where: str) -> ValueError:
        return ValueError(
            f"journal {path} is damaged {where} and was left as it is: what was spent cannot be told without what "
            "is lost; put back a whole copy of the file, or count the budget as spent"
        )

    marks = [(mark, slot) for slot, mark in enumerate(marks_in(raw)) if mark is not None]
    if not marks:
        raise damaged("at its beginning")
    marked, slot = max(marks, key=lambda one: one[0].records)
    records: list[Record] = []
    seals = [""]
    end = 2 * _WIDTH
    lines = raw[end:].split(b"\n")
    ended = len(lines) - 1
    for number, line in enumerate(lines, 1):
        whole = _read(line, seals[-1])
        # What reached the disk has its line's end; and what goes on behind a whole record is not half of one.
        if whole is None or (number > ended and number <= marked.records):
            if number <= max(ended, marked.records) or _goes_on(line, seals[-1]):
                raise damaged(f"at line {number} of {max(ended, marked.records)}")
            continue
        record, seal = whole
        seals.append(seal)
        records.append(record)
        end += len(line) + (number <= ended)
        if number == marked.records and seal != marked.seal:
            raise damaged(f"at line {number}, which is another one than reached the disk")
    return Contents(records, seals[1:], (marked, slot), end)


class Journal:
    """An append-only file of JSON records, one a line, each sealed together with all lines before it.

    :meth:`sync` returns when what was appended has reached the disk (``fsync``), so a program that appends a charge
    and syncs before it releases what was charged is never ahead of its journal, whenever it is killed. It then writes
    into the beginning of the file how many records have reached the disk. All of those must be there, as they were
    written, to the last byte; anything else is damage: opening raises and leaves the file alone. Only behind them, a
    line that a kill or a power cut left half written was never acknowledged: it is cut off when the journal is opened
    next (``torn`` says how many bytes).

    That number waits for no flush of its own: every process finds it at once, and it is on the disk with the next
    `sync`. A power cut may set it back by one `sync`, and costs nothing by itself: only a file that is damaged before
    it is opened again could then lack the records of that last `sync` unnoticed.

    The seal is SHA-256 over the line and the seal before it. It finds accidents (flipped bits, lost, doubled or
    reordered lines), and not somebody who writes a whole new journal. An older copy of the whole file is found by
    whoever keeps the :attr:`seal` of a later time, as checkpoints do.

    One process at a time: the file is locked as long as the journal is open, and the lock ends with the process.

    Args:
        path: of the file; made if missing, in a folder that exists.

    Attributes:
        seal: of the last record: who keeps it can tell later whether any record up to it is missing.
        records: what the file held when it was opened.
        torn: bytes of a half-written last line that were cut off.

    Raises:
        ValueError: a damaged journal, no regular file, one that another process holds, or a system without POSIX locks.
        OSError: the file cannot be read or written.
    """

    def __init__(self, path: str | Path):
        path = as_path(path=path)
        refuse_special(path, "journal")
        self.path = path.absolute()
        self._process = os.getpid()
        self._broken = False
        if not path.exists():
            _make(path)
        self._file = os.open(path, os.O_RDWR)
        try:
            _lock(self._file, path)
            raw = path.read_bytes()
            self.records, seals, (self._marked, self._slot), self._end = contents(self.path, raw)
            self._seals, self.seal = frozenset(seals), seals[-1] if seals else ""
            self._count = len(self.records)
            self.torn = len(raw) - self._end
            if self.torn:
                os.ftruncate(self._file, self._end)
            elif not raw.endswith(b"\n"):
                self._write(b"\n")  # a whole record without its line's end: it counts
            to_disk(self._file)
            self._mark()
            to_disk(self._file)
        except BaseException:
            os.close(self._file)
            raise

    def held(self, seal: str | None) -> bool:
        """Whether the file, as it was opened or at an earlier time, ended in ``seal``."""
        return seal in self._seals

    def append(self, record: Record) -> None:
        """Writes ``record``. It counts for nothing before :meth:`sync` has returned.

        Raises:
            ValueError: a record that JSON cannot hold (NaN is none).
            OSError: the disk refused. The journal takes nothing more after that: what is on the disk is unknown until
                it is opened again. Or the process is a fork of the one that opened it.
        """
        self._usable()
        line, seal = _sealed(record, self.seal)
        self._broken = True
        self._write(line + b"\n")
        self._broken = False
        self.seal = seal
        self._count += 1

    def sync(self) -> None:
        """Returns when everything appended is on the disk, under the journal's name.

        Raises:
            OSError: as :meth:`append`; or the file was moved, removed or exchanged, so that a later run would not find
                what it holds.
        """
        self._usable()
        self._broken = True
        to_disk(self._file)
        if not os.path.samestat(os.fstat(self._file), self.path.stat()):
            raise OSError(f"journal {self.path} was exchanged for another file while it was in use")
        self._mark()
        self._broken = False

    def close(self) -> None:
        """Gives the file and its lock back."""
        if self._file >= 0:
            os.close(self._file)
            self._file, self._broken = -1, True

    def _usable(self) -> None:
        if os.getpid() != self._process:  # a fork shares the lock, and each would spend what is left
            raise OSError(f"journal {self.path} belongs to the process that opened it, and this is a fork of it")
        if self._broken:
            raise OSError(
                f"journal {self.path} is closed, or failed before: what is on the disk is unknown; open it anew"
            )

    def _write(self, data: bytes) -> None:
        while data:
            written = os.pwrite(self._file, data, self._end)
            self._end += written
            data = data[written:]

    def _mark(self) -> None:
        """Notes that all records have reached the disk, which the caller has seen to."""
        now = Mark(self._count, self.seal)
        if now != self._marked:
            # Into the slot that was written longer ago: if a power cut tears it, the other one stands.
            self._marked, self._slot = now, 1 - self._slot
            os.pwrite(self._file, _marked(now), _WIDTH * self._slot)


def _make(path: Path) -> None:
    """A journal without records, which has its name only when it is whole: an empty file has lost what it held."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, 2 * _marked(Mark(0, "")))
        to_disk(file)
        with contextlib.suppress(FileExistsError):  # somebody was faster
            os.link(part, path)
    finally:
        os.close(file)
        part.unlink()
    sync_folder(path.parent)


def _sealed(record: Record, before: str) -> tuple[bytes, str]:
    """``record`` as a line, without its end, after one of the seal ``before``, and its own seal."""
    body = json.dumps(record, sort_keys=True, allow_nan=False, separators=(",", ":"))
    seal = hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()[:32]
    return f'{{"seal":"{seal}","record":{body}}}'.encode(), seal


def _read(line: bytes, before: str) -> tuple[Record, str] | None:
    """The record in ``line`` and its seal; None where the line is not whole."""
    try:
        record = json.loads(line)["record"]
        whole, seal = _sealed(record, before)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (record, seal) if line == whole else None


def _marked(mark: Mark) -> bytes:
    """A mark as a sealed line, of one width whatever it says: it is written over in place.

    There are two, by turns, so that a write that a power cut tears leaves the one before it.
    """
    return _sealed({"records": f"{mark.records:12d}", "seal": f"{mark.seal:32s}"}, "")[0] + b"\n"


_WIDTH = len(_marked(Mark(0, "")))


def marks_in(raw: bytes) -> list[Mark | None]:
    """Both marks at the beginning of a journal; None for one that is not whole."""
    found: list[Mark | None] = []
    for line in (raw[:_WIDTH], raw[_WIDTH : 2 * _WIDTH]):
        whole = _read(line.removesuffix(b"\n"), "")
        try:
            mark = None if whole is None else Mark(int(whole[0]["records"]), whole[0]["seal"].rstrip())
        except (ValueError, KeyError, TypeError, AttributeError):
            mark = None
        found.append(mark if mark is not None and _marked(mark) == line else None)
    return found


def _goes_on(line: bytes, before: str) -> bool:
    """Whether a line is a whole record with something behind it, which no half-written one is."""
    try:
        end = json.JSONDecoder().raw_decode(line.decode("latin-1"))[1]
    except (ValueError, RecursionError):
        return False
    return _read(line[:end], before) is not None


def _lock(file: int, path: Path) -> None:
    if fcntl is None:
        raise ValueError("a journal needs POSIX file locks, which this system lacks")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(
            f"journal {path} is in use by another process: a budget can be spent by one at a time"
        ) from None
