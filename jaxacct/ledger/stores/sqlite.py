"""Keeps a ledger in one SQLite file with a rollback journal; a commit is on the disk before it returns.

Between two calls nothing is open and nothing lies outside the file: no connection, no log, no shared memory. So a file
that was moved, exchanged or set back is read as it is now, and a fork inherits nothing. Every transaction is inside the
`lock` beside the file, because SQLite's own locks end when any thread of the process closes the file; writers and
whoever has to undo what a killed process left are alone in it. After a commit the head is read again by a connection
that has cached nothing.

All processes must run on one machine: for several machines give a PostgreSQL URL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import secrets
import sqlite3
import stat
import threading
import weakref
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
from jaxacct.ledger.stores import lock as _lock
from jaxacct.ledger.stores.base import Head, Row, Sql, Store
from jaxacct.ledger.stores.names import has_one_name

_CODES: dict[int, type[LedgerError]] = {
    sqlite3.SQLITE_FULL: LedgerFull,
    sqlite3.SQLITE_BUSY: LedgerBusy,
    sqlite3.SQLITE_LOCKED: LedgerBusy,
    sqlite3.SQLITE_CORRUPT: LedgerCorrupted,
    sqlite3.SQLITE_NOTADB: LedgerCorrupted,
}
_JOURNAL, _LOCK = "-journal", "-lock"
_LEFT = (_JOURNAL, "-wal")  # what may hold a part of the file's content: a killed writer's, or another program's
FILES = ("", *_LEFT, "-shm", _LOCK)
_OWN = (
    "SELECT sql FROM sqlite_master WHERE tbl_name IN ('jaxacct_schema', 'jaxacct_records', 'jaxacct_head') "
    "AND sql IS NOT NULL"
)
# fullfsync is for macOS, where a plain fsync stops at the drive's cache. EXTRA: the journal's removal, which is the
# commit, is on the disk too.
_SAFE = ("trusted_schema=OFF", "cell_size_check=ON")
_DURABLE = ("synchronous=EXTRA", "fullfsync=ON", "checkpoint_fullfsync=ON")
_UNCERTAIN = "whether this was charged is uncertain, do not release"
_STORES: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_MAKING = threading.RLock()
_FORKING: list[SqliteStore] = []


class _OtherMode(LedgerUnavailable):
    """The file is not in the mode in which ledgers are kept."""


class SqliteStore(Store):
    """A ledger in one SQLite file, as the module describes."""

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
        self._alone = threading.RLock()
        self._busy = False
        with _MAKING:
            _STORES.add(self)

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Whether the file is there; an empty one has lost what it held."""
        with self._translated():
            for end in FILES:
                try:
                    refuse_special(self._beside(end), "a ledger" + end)
                except ValueError as problem:
                    raise LedgerUnavailable(f"{self}: {problem}") from None
                if self._beside(end).is_symlink():
                    raise LedgerUnavailable(f"{self}: {self._beside(end)} must be a regular file, got a link")
            if not self.path.exists():
                if self._is_left():
                    raise LedgerCorrupted(f"{self} is gone, but its journal or log is still there: restore the file")
                return False
            if self.path.stat().st_size == 0:
                raise LedgerCorrupted(f"{self} is empty: it has lost what it held, or never was a ledger")
            return True

    def create(self, body: str, digest: str, state: str) -> bool:
        """Makes the whole file under another name, then links it to its own: no half-made ledger is ever seen."""
        part = self._beside(f".{secrets.token_hex(8)}.part")
        with self._alone, self._translated():
            try:
                with self._begun(_connected(part, "rwc", self.timeout), "BEGIN IMMEDIATE") as sql:
                    _store.create_tables(sql, self, body, digest, state)
                return _named(part, self.path)
            finally:
                _remove(part)

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Sql]:
        """A transaction; a writer is alone from its beginning until the head was read again after the commit."""
        with self._session(write) as (sql, _):
            yield sql

    @contextlib.contextmanager
    def copied(self, target: pathlib.Path) -> Iterator[pathlib.Path]:
        """A copy under another name; it gets the name ``target`` when the block ends without an error.

        Raises:
            ValueError: something has the name already, or is what SQLite would take for a part of it.
        """
        target = pathlib.Path(os.path.realpath(target))
        part = target.with_name(f"{target.name}.{secrets.token_hex(8)}.part")
        for name in (target.name + end for end in FILES):
            if os.path.lexists(target.with_name(name)):
                raise ValueError(f"target must be the path of a new file, and {target.with_name(name)} is there")
        with self._translated():
            try:
                with (
                    self._session(False) as (_, connection),
                    contextlib.closing(_connected(part, "rwc", self.timeout)) as copy,
                ):
                    connection.backup(copy)
                part.chmod(stat.S_IMODE(self.path.stat().st_mode))
                yield part
                if not _named(part, target):
                    raise ValueError(f"target must be the path of a new file, and {target} is there")
            finally:
                _remove(part)

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

    def _beside(self, end: str) -> pathlib.Path:
        return self.path.with_name(self.path.name + end)

    def _is_left(self) -> bool:
        """Whether a killed writer, or another program, left something to undo or to move into the file."""
        return any(path.exists() and path.stat().st_size for path in map(self._beside, _LEFT))

    @contextlib.contextmanager
    def _session(self, write: bool) -> Iterator[tuple[Sql, sqlite3.Connection]]:
        with self._alone, self._translated():
            if self._busy:
                raise LedgerUnavailable(f"{self}: this thread is in the middle of another call (a signal's handler?)")
            self._busy = True
            try:
                if not write:
                    with self._locked(exclusive=False):
                        self._checked()
                        if connection := self._readable():
                            with self._begun(connection, "BEGIN") as sql:
                                yield sql, connection
                            return
                with self._locked(exclusive=True) as is_named:
                    self._checked()
                    connection = _connected(self.path, "rw", self.timeout)
                    with self._begun(connection, "BEGIN IMMEDIATE" if write else "BEGIN") as sql:
                        yield sql, connection
                        after = _store.read_head(sql) if write else []
                    if write and not (self._ends_in(after) and is_named()):
                        raise LedgerUnavailable(
                            f"{self} does not hold what was written, or its lock {self._beside(_LOCK).name} was "
                            f"removed: something else than a ledger changed them; {_UNCERTAIN}"
                        )
            finally:
                self._busy = False

    def _locked(self, *, exclusive: bool) -> contextlib.AbstractContextManager:
        return _lock.held(self._beside(_LOCK), self.path, exclusive=exclusive, timeout=self.timeout)

    def _readable(self) -> sqlite3.Connection | None:
        """A connection that only reads; None where there is something to put right first, by one that is alone."""
        if not self._is_left():
            with contextlib.suppress(_OtherMode):
                return _connected(self.path, "ro", self.timeout)
        return None

    def _ends_in(self, head: list[Head]) -> bool:
        """Whether the file that has the name now ends in ``head``."""
        try:
            with self._begun(_connected(self.path, "ro", self.timeout), "BEGIN") as sql:
                return _store.read_head(sql) == head
        except (sqlite3.Error, OSError, LedgerError):
            return False

    def _checked(self) -> None:
        """Raises unless the file is there, under one name."""
        if not self.exists():
            raise LedgerMissing(f"{self} is not there")
        has_one_name(self.path)

    @contextlib.contextmanager
    def _begun(self, connection: sqlite3.Connection, begin: str) -> Iterator[Sql]:
        """A transaction on a connection, which is closed with it."""
        process = os.getpid()

        def sql(statement: str, **parameters: int | str | None) -> list[Row]:
            return connection.execute(statement, parameters).fetchall()

        try:
            connection.execute(begin)
            yield sql
            if os.getpid() != process:
                raise LedgerUnavailable(f"{self}: the process was forked in the middle of a call; nothing was charged")
            connection.execute("COMMIT")
        finally:
            if os.getpid() == process:
                connection.close()  # which rolls back what was not committed
            else:  # in the child: the transaction is its parent's, and not even the interpreter's end may close it
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

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
            raise LedgerCorrupted(f"{self} is damaged: it holds bytes that are no text ({problem.reason})") from problem


def _connected(path: pathlib.Path, mode: str, timeout: float) -> sqlite3.Connection:
    """A connection that is read-only (``mode`` is ``"ro"``), or writes with a rollback journal."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in _SAFE if mode == "ro" else _SAFE + _DURABLE:
            connection.execute(f"PRAGMA {pragma}")
        # A file that another program has put into WAL mode is put back by whoever may write.
        wanted = "PRAGMA journal_mode" if mode == "ro" else "PRAGMA journal_mode=DELETE"
        (found,) = connection.execute(wanted).fetchone()
        if found != "delete":
            raise _OtherMode(f"{path} must have a rollback journal, and another program has put it into mode {found}")
    except BaseException:
        connection.close()
        raise
    return connection


def _named(part: pathlib.Path, path: pathlib.Path) -> bool:
    """Gives a whole file its own name, on the disk too; False where something has it."""
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    sync_folder(path.parent)
    return True


def _remove(part: pathlib.Path) -> None:
    for end in FILES:
        part.with_name(part.name + end).unlink(missing_ok=True)


def _before_fork() -> None:
    """Waits for the other threads' transactions: nothing is open while a process is forked."""
    _MAKING.acquire()
    for store in list(_STORES):
        store._alone.acquire()
        _FORKING.append(store)


def _after_fork() -> None:
    while _FORKING:
        _FORKING.pop()._alone.release()
    _MAKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
