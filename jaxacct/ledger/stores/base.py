"""The three tables of a ledger, and the statements on them that SQLite and PostgreSQL both understand.

``jaxacct_records`` is append-only: a number, a canonical text, its hash. ``jaxacct_head`` has one row, the lock that
writers queue for, with the last record's number and hash and the filter's state after it.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SCHEMA = 3
Row = Sequence[Any]

# `verify` compares these texts with the file's: they change with the schema's number only.
TABLES = (
    "CREATE TABLE jaxacct_schema (version {integer} NOT NULL)",
    "CREATE TABLE jaxacct_records (seq {integer} PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL, "
    "releases {integer} UNIQUE)",
    "CREATE TABLE jaxacct_head (id {integer} PRIMARY KEY CHECK (id = 1), seq {integer} NOT NULL, hash TEXT NOT NULL, "
    "state TEXT NOT NULL)",
)
_HEAD = (
    "SELECT h.seq, h.hash, h.state, r.seq, r.body, r.hash FROM jaxacct_head h "
    "LEFT JOIN jaxacct_records r ON r.seq = (SELECT MAX(seq) FROM jaxacct_records)"
)
_READ = (
    "SELECT seq, body, hash, releases FROM jaxacct_records WHERE seq > :after AND seq <= :last ORDER BY seq LIMIT 200"
)
_APPEND = "INSERT INTO jaxacct_records (seq, body, hash, releases) VALUES (:seq, :body, :hash, :releases)"
_FIRST = "INSERT INTO jaxacct_head (id, seq, hash, state) VALUES (1, 0, :hash, :state)"
_MOVE = "UPDATE jaxacct_head SET seq = :seq, hash = :hash, state = :state WHERE id = 1 AND seq = :before"


Sql = Callable[..., list[Row]]
"""Runs one statement with named parameters (``:name``); rows as sequences, none for statements without rows."""


class Store(abc.ABC):
    """A database: how transactions begin, and what it calls its types. Its errors are `LedgerError`."""

    integer: str
    locks: str
    timeout: float
    guards: tuple[str, ...]

    @abc.abstractmethod
    def exists(self) -> bool:
        """Whether a ledger is there."""

    def elsewhere(self) -> str:
        """Where ledgers are that this one might have been meant to be, in words; empty if nothing is known."""
        return ""

    @abc.abstractmethod
    def create(self, body: str, digest: str, state: str) -> bool:
        """Makes the tables with record 0, in one step; False where somebody was faster."""

    @abc.abstractmethod
    def transaction(self, *, write: bool) -> contextlib.AbstractContextManager[Sql]:
        """Everything or nothing; writers come one after the other."""

    def copied(self, target: Path) -> contextlib.AbstractContextManager[Path]:
        """A copy under another name; it gets the name ``target`` at the end of the block."""
        raise ValueError(f"target must be of a ledger in a file, and {self} is on a server: use its backups (pg_dump)")

    @abc.abstractmethod
    def check(self, sql: Sql) -> None:
        """The database's own test of its pages."""

    def close(self) -> None:  # noqa: B027  # nothing, where nothing is open between two calls
        """Closes all connections; the next use opens new ones."""


class Head(NamedTuple):
    """The head row beside the last record."""

    seq: int
    hash: str
    state: str
    last_seq: int | None
    last_body: str | None
    last_hash: str | None


def create_tables(sql: Sql, store: Store, body: str, digest: str, state: str) -> None:
    """The tables, record 0 and the head."""
    for statement in TABLES:
        sql(statement.format(integer=store.integer))
    for statement in store.guards:
        sql(statement)
    sql("INSERT INTO jaxacct_schema (version) VALUES (:version)", version=SCHEMA)
    sql(_APPEND, seq=0, body=body, hash=digest, releases=None)
    sql(_FIRST, hash=digest, state=state)


def schema_of(sql: Sql) -> list[int]:
    """The versions that the schema's table holds; one, unless somebody meddled."""
    return [row[0] for row in sql("SELECT version FROM jaxacct_schema")]


def lock(sql: Sql, store: Store) -> None:
    """Waits for the head's row, a statement of its own: what is read afterwards is read with the lock held."""
    sql("SELECT id FROM jaxacct_head WHERE id = 1" + store.locks)


def read_head(sql: Sql) -> list[Head]:
    """The head and the last record, as of one moment."""
    return [Head(*row) for row in sql(_HEAD)]


def read_records(sql: Sql, after: int, last: int) -> Iterator[Row]:
    """(seq, body, hash, request that it releases) after one record up to another, some hundred in memory at a time."""
    while rows := sql(_READ, after=after, last=last):
        yield from rows
        after = rows[-1][0]


def count_records(sql: Sql, last: int) -> int:
    """How many records there are up to number ``last``, whatever their numbers."""
    return sql("SELECT COUNT(*) FROM jaxacct_records WHERE seq <= :last", last=last)[0][0]


def holds(sql: Sql, seq: int, digest: str) -> bool:
    """Whether the record of this number has this hash."""
    return bool(sql("SELECT seq FROM jaxacct_records WHERE seq = :seq AND hash = :hash", seq=seq, hash=digest))


def is_released(sql: Sql, seq: int) -> bool:
    """Whether a record says that this request's output was released."""
    return bool(sql("SELECT seq FROM jaxacct_records WHERE releases = :seq", seq=seq))


def append(sql: Sql, before: int, body: str, digest: str, state: str, releases: int | None) -> None:
    """One more record, and the head moved to it."""
    sql(_APPEND, seq=before + 1, body=body, hash=digest, releases=releases)
    sql(_MOVE, seq=before + 1, hash=digest, state=state, before=before)
