"""The embedded store: one SQLite file in WAL mode, every commit synced to the disk before it returns.

All processes must run on one machine (WAL is shared memory): for several machines give a PostgreSQL URL.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

from jaxacct._files import refuse_special
from jaxacct.ledger import _store
from jaxacct.ledger._store import Sql
from jaxacct.ledger.errors import LedgerBusy, LedgerCorrupted, LedgerError, LedgerFull, LedgerMissing, LedgerUnavailable

__all__ = ["SqliteStore"]

_CODES: dict[int, type[LedgerError]] = {
    sqlite3.SQLITE_FULL: LedgerFull,
    sqlite3.SQLITE_BUSY: LedgerBusy,
    sqlite3.SQLITE_LOCKED: LedgerBusy,
    sqlite3.SQLITE_CORRUPT: LedgerCorrupted,
    sqlite3.SQLITE_NOTADB: LedgerCorrupted,
}
# Connections of the parent process: a child must neither use nor close them (a close could move the WAL).
_INHERITED: list[sqlite3.Connection] = []


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
        self.path = pathlib.Path(path)
        self.timeout = timeout
        self._connection: sqlite3.Connection | None = None
        self._process = -1
        self._alone = threading.RLock()

    def __str__(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        """Whether the file is there; an empty one has lost what it held."""
        with self._translated():
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
        with self._alone, self._translated():
            try:
                connection = self._connect(part)
                try:
                    with self._begun(connection, "BEGIN IMMEDIATE") as sql:
                        _store.create_tables(sql, self, body, digest, state)
                finally:
                    connection.close()  # the last connection moves the log into the file
                try:
                    os.link(part, self.path)
                except FileExistsError:
                    return False
                _sync_directory(self.path.parent)
                return True
            finally:
                for end in ("", "-wal", "-shm"):
                    part.with_name(part.name + end).unlink(missing_ok=True)

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Sql]:
        """A transaction; a writer has the file's one write lock from its beginning."""
        with self._alone, self._translated():
            if self._connection is None or self._process != os.getpid():
                self._open()
            assert self._connection is not None
            with self._begun(self._connection, "BEGIN IMMEDIATE" if write else "BEGIN") as sql:
                yield sql

    def check(self, sql: Sql) -> None:
        """SQLite's own check of pages and indices."""
        rows = sql("PRAGMA integrity_check(1)")
        if [row[0] for row in rows] != ["ok"]:
            raise LedgerCorrupted(f"{self} is damaged: {rows[0][0] if rows else 'no answer'}")

    def close(self) -> None:
        """Closes this process's connection."""
        with self._alone, self._translated():
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            elif self._connection is not None:
                _INHERITED.append(self._connection)
            self._connection = None

    def _beside(self, end: str) -> pathlib.Path:
        return self.path.with_name(self.path.name + end)

    def _open(self) -> None:
        if self._connection is not None:
            _INHERITED.append(self._connection)
            self._connection = None
        if not self.exists():
            raise LedgerMissing(f"{self} is not there")
        with self._translated():
            for end in ("", "-wal", "-shm"):
                try:
                    refuse_special(self._beside(end), "a ledger" + end)
                except ValueError as problem:
                    raise LedgerUnavailable(f"{self}: {problem}") from None
        self._connection, self._process = self._connect(self.path), os.getpid()

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
        def sql(statement: str, **parameters: Any) -> list[Any]:
            return connection.execute(statement, parameters).fetchall()

        connection.execute(begin)
        try:
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


def _sync_directory(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
