"""Keeps a ledger in one SQLite file in WAL mode; every commit is synced to the disk before it returns.

All processes must run on one machine (WAL is shared memory): for several machines give a PostgreSQL URL.

What is charged lies in three files: the database, its log and the log's shared index, found by their names. A process
whose three are no longer those that others find under these names would charge where nobody looks. So a file has one
name only, none of the three may be exchanged while it is open, and no connection lives through a fork, after which
SQLite believes in locks that only the parent holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterator

from jaxacct._files import refuse_special, sync_folder
from jaxacct.ledger.errors import (
    LedgerBusy,
    LedgerCorrupted,
    LedgerError,
    LedgerFull,
    LedgerMissing,
    LedgerTampered,
    LedgerUnavailable,
)
from jaxacct.ledger.stores import base as _store
from jaxacct.ledger.stores.base import Row, Sql

_CODES: dict[int, type[LedgerError]] = {
    sqlite3.SQLITE_FULL: LedgerFull,
    sqlite3.SQLITE_BUSY: LedgerBusy,
    sqlite3.SQLITE_LOCKED: LedgerBusy,
    sqlite3.SQLITE_CORRUPT: LedgerCorrupted,
    sqlite3.SQLITE_NOTADB: LedgerCorrupted,
}
_FILES = ("", "-wal", "-shm")
_OWN = (
    "SELECT sql FROM sqlite_master WHERE tbl_name IN ('jaxacct_schema', 'jaxacct_records', 'jaxacct_head') "
    "AND sql IS NOT NULL"
)
_OPEN: set[SqliteStore] = set()  # those with a connection
_OPENING = threading.RLock()
_FORKING: list[SqliteStore] = []


class SqliteStore:
    """See the module."""

    integer = "INTEGER"
    locks = ""  # BEGIN IMMEDIATE has the lock already
    guards: tuple[str, ...] = tuple(
        f"CREATE TRIGGER jaxacct_no_{verb} BEFORE {verb} ON jaxacct_records "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
        for verb in ("UPDATE", "DELETE")
    )

    def __init__(self, path: str | os.PathLike[str], timeout: float) -> None:
        # Absolute and without links: neither a later chdir nor a "file:" in front makes another file of it.
        self.path = pathlib.Path(path)
        with self._translated():
            self.path = pathlib.Path(os.path.realpath(path))
        self.timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._process = -1
        self._found: tuple[tuple[int, int] | None, ...] = ()
        self._alone = threading.RLock()

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Whether the file is there; an empty one has lost what it held."""
        with self._translated():
            for end in _FILES:
                try:
                    refuse_special(self._beside(end), "a ledger" + end)
                except ValueError as problem:
                    raise LedgerUnavailable(f"{self}: {problem}") from None
            if not self.path.exists():
                if self._beside("-wal").exists():
                    raise LedgerCorrupted(f"{self} is gone, but its write-ahead log is still there: restore the file")
                return False
            if self.path.stat().st_size == 0:
                raise LedgerCorrupted(f"{self} is empty: it has lost what it held, or never was a ledger")
            return True

    def create(self, body: str, digest: str, state: str) -> bool:
        """Makes the whole file under another name, then links it to its own: no half-made ledger is ever seen."""
        part = self._beside(f".{secrets.token_hex(8)}.part")
        with self._alone, _OPENING, self._translated():
            try:
                connection = self._connect(part)
                try:
                    with self._begun(connection, "BEGIN IMMEDIATE") as sql:
                        _store.create_tables(sql, self, body, digest, state)
                finally:
                    connection.close()  # the last connection moves the log into the file
                if part.with_name(part.name + "-wal").exists():
                    raise LedgerUnavailable(f"{self} was not made: SQLite could not move the log into the file")
                try:
                    os.link(part, self.path)
                except FileExistsError:
                    return False
                sync_folder(self.path.parent)
                return True
            finally:
                for end in _FILES:
                    part.with_name(part.name + end).unlink(missing_ok=True)

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Sql]:
        """A transaction; a writer has the file's one write lock from its beginning."""
        with self._alone, self._translated():
            if self._connection is None:
                self._open()
            if self._connection is None or self._process != os.getpid():
                raise LedgerUnavailable(f"{self} was open when the process was forked behind Python's back")
            try:
                with self._begun(self._connection, "BEGIN IMMEDIATE" if write else "BEGIN") as sql:
                    self._unmoved("nothing was charged")
                    yield sql
                if write:
                    self._unmoved("whether this was charged is uncertain")
            except LedgerUnavailable:
                if self._files() != self._found:
                    self.close()
                raise

    def check(self, sql: Sql) -> None:
        """SQLite's own check of pages and indices; and nothing but the ledger's own tables and guards."""
        rows = sql("PRAGMA integrity_check(1)")
        if [row[0] for row in rows] != ["ok"]:
            raise LedgerCorrupted(f"{self} is damaged: {rows[0][0] if rows else 'no answer'}")
        made = {statement.format(integer=self.integer) for statement in _store.TABLES} | set(self.guards)
        found = {row[0] for row in sql(_OWN)}
        if found != made:
            raise LedgerTampered(
                f"{self} has lost a table or a guard of its own, or holds another: {min(found ^ made)!r:.200}"
            )

    def close(self) -> None:
        """Closes this process's connection; a parent's is left alone."""
        with self._alone, self._translated():
            if self._connection is None or self._process != os.getpid():
                return
            files = self._files()
            if files[0] == self._found[0] and files != self._found:
                # Closing would move a log that nobody else sees into the file, and remove the one that others write.
                # So this connection is never closed, not even by the interpreter's end, and none is opened beside it.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
                return
            self._connection.close()
            self._connection = None
            _OPEN.discard(self)

    def _beside(self, end: str) -> pathlib.Path:
        return self.path.with_name(self.path.name + end)

    def _open(self) -> None:
        with _OPENING:
            if not self.exists():
                raise LedgerMissing(f"{self} is not there")
            self._has_one_name()
            here = [store for store in list(_OPEN) if store.path == self.path]
            if any(store._process != os.getpid() for store in here):
                raise LedgerUnavailable(f"{self} was open when the process was forked behind Python's back")
            before = self._files()[0]
            connection = self._connect(self.path)
            try:
                connection.execute("PRAGMA schema_version").fetchone()  # opens log and index
                found = self._files()
                # Connections to one file share the log's index, whatever became of it.
                stale = any(store._found[0] == found[0] and store._found != found for store in here)
                if found[0] != before or None in found or stale:
                    raise LedgerUnavailable(
                        f"{self} was exchanged, or its log removed, while it was open in this process: start it again"
                    )
            except BaseException:
                connection.close()
                raise
            self._connection, self._process, self._found = connection, os.getpid(), found
            _OPEN.add(self)

    def _files(self) -> tuple[tuple[int, int] | None, ...]:
        """Device and number of the three files that have the names now."""
        return tuple(_identity(f"{self.path}{end}") for end in _FILES)

    def _unmoved(self, what: str) -> None:
        if self._files() != self._found:
            raise LedgerUnavailable(
                f"{self} was moved or exchanged, or its log removed, while it was open here (a plain copy that this "
                f"very process makes lets others remove the log): {what}, do not release; the next call opens it "
                "again, or says that this process cannot"
            )

    def _has_one_name(self) -> None:
        """A second name has a log of its own, and charges there do not count here."""
        if self.path.stat().st_nlink > 1:
            # A creator that was killed between its last two steps, or is about to do the second.
            for part in self.path.parent.iterdir():
                if part.name.startswith(f"{self.path.name}.") and part.name.endswith(".part"):
                    with contextlib.suppress(FileNotFoundError):
                        if part.samefile(self.path):
                            part.unlink()
        if (names := self.path.stat().st_nlink) > 1:
            raise LedgerUnavailable(
                f"{self} has {names} names (hard links), each with a log of its own: keep one, a copy is made by "
                "copying"
            )
        if _is_mounted(self.path):
            raise LedgerUnavailable(
                f"{self} is mounted as a single file, without the log beside it: mount the folder that holds it"
            )

    def _connect(self, path: pathlib.Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=self.timeout, isolation_level=None, check_same_thread=False)
        try:
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise LedgerUnavailable(f"{path} cannot be kept in WAL mode on this disk, got mode {mode}")
            # fullfsync is for macOS, where a plain fsync stops at the drive's cache.
            for pragma in ("synchronous=FULL", "fullfsync=ON", "trusted_schema=OFF", "cell_size_check=ON"):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _begun(self, connection: sqlite3.Connection, begin: str) -> Iterator[Sql]:
        def sql(statement: str, **parameters: int | str | None) -> list[Row]:
            return connection.execute(statement, parameters).fetchall()

        if connection.in_transaction:
            raise LedgerUnavailable(f"{self}: this thread is in the middle of another call (a signal's handler?)")
        try:
            connection.execute(begin)
            yield sql
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            # The low byte is the primary code.
            code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
            kind = _CODES.get(code, LedgerUnavailable)
            if any(words in str(problem) for words in ("no such table", "no such column", "Could not decode")):
                kind = LedgerCorrupted
            raise kind(f"{self}: {problem}") from problem
        except OSError as problem:
            raise LedgerUnavailable(f"{self}: {problem}") from problem
        except UnicodeDecodeError as problem:
            # SQLite quotes what it found in its messages.
            raise LedgerCorrupted(f"{self} is damaged: it holds text that is none ({problem.reason})") from problem


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_mounted(path: pathlib.Path) -> bool:
    """Whether a file is a mount of its own, as far as Linux says so."""
    try:
        mounts = pathlib.Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return False
    # The fifth field; blanks, line ends and backslashes in octal.
    name = re.sub(rb"[ \t\n\\]", lambda found: b"\\%03o" % found[0][0], os.fsencode(path))
    return any(line.split(b" ")[4] == name for line in mounts)


def _before_fork() -> None:
    """Waits for the other threads' transactions, and closes; the next call in either process opens again."""
    _OPENING.acquire()
    for store in list(_OPEN):
        store._alone.acquire()
        _FORKING.append(store)
        with contextlib.suppress(LedgerError):
            if store._connection is not None and not store._connection.in_transaction:
                store.close()


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop()._alone.release()
    _OPENING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
