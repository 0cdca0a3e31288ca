"""Keeps ledgers in PostgreSQL, through SQLAlchemy, for teams on several machines: one a database or schema."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jaxacct.ledger.errors import (
    LedgerBusy,
    LedgerCorrupted,
    LedgerError,
    LedgerFull,
    LedgerTampered,
    LedgerUnavailable,
)
from jaxacct.ledger.stores import base as _store
from jaxacct.ledger.stores.base import Row, Sql

if TYPE_CHECKING:
    from sqlalchemy import Engine

# SQLSTATEs by their first characters, the longest first.
_STATES: tuple[tuple[str, type[LedgerError]], ...] = (
    ("53100", LedgerFull),
    ("55P03", LedgerBusy),
    ("57014", LedgerBusy),
    ("42P01", LedgerCorrupted),
    ("XX001", LedgerCorrupted),
    ("XX002", LedgerCorrupted),
    ("40", LedgerBusy),
)
_CREATING = 0x6A617861636374  # any number that nobody else takes an advisory lock on
_SYNCHRONOUS = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)
# What acts by itself when somebody writes to the ledger's tables: triggers, whether they fire, and rules.
_ACTS = """
SELECT c.relname || ': ' || t.tgname || ' (' || CAST(t.tgtype AS text) || CAST(t.tgenabled AS text) || ') ' || p.prosrc
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
WHERE NOT t.tgisinternal AND c.oid IN (SELECT to_regclass(name) FROM unnest(ARRAY[{names}]) AS name)
UNION ALL SELECT c.relname || ': rule ' || r.rulename
FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
WHERE c.oid IN (SELECT to_regclass(name) FROM unnest(ARRAY[{names}]) AS name)
""".format(names="'jaxacct_records', 'jaxacct_head', 'jaxacct_schema'")
_REFUSAL = " BEGIN RAISE EXCEPTION 'a ledger is append-only'; END "
_GUARD = f"jaxacct_records: jaxacct_append_only (58O) {_REFUSAL}"  # 58: before update, delete, truncate; O: it fires


class PostgresStore:
    """See the module."""

    integer = "BIGINT"
    locks = " FOR UPDATE"
    guards: tuple[str, ...] = (
        f"CREATE FUNCTION jaxacct_append_only() RETURNS trigger LANGUAGE plpgsql AS $${_REFUSAL}$$",
        "CREATE TRIGGER jaxacct_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON jaxacct_records "
        "FOR EACH STATEMENT EXECUTE FUNCTION jaxacct_append_only()",
    )

    def __init__(self, url: str, timeout: float) -> None:
        try:
            import sqlalchemy
            import sqlalchemy.exc
        except ImportError:
            raise ImportError("a ledger at a URL needs SQLAlchemy and psycopg: pip install 'jaxacct[ledger]'") from None
        try:
            parsed = sqlalchemy.make_url(url)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise ValueError("path_or_url must be a path or a URL postgresql://..., got one that is no URL") from None
        if parsed.get_backend_name() != "postgresql":
            raise ValueError(
                f"path_or_url must be a path, or a URL of PostgreSQL, got one of {parsed.get_backend_name()}"
            )
        self._url = parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed
        self.timeout = timeout
        self._sqlalchemy = sqlalchemy
        self._engine: Engine | None = None
        self._process = -1

    def __str__(self) -> str:
        return self._url.render_as_string(hide_password=True)

    def exists(self) -> bool:
        """Whether the schema's table is there."""
        with self.transaction(write=False) as sql:
            return bool(sql("SELECT to_regclass('jaxacct_schema') IS NOT NULL")[0][0])

    def create(self, body: str, digest: str, state: str) -> bool:
        """Makes the tables in one transaction, one creator at a time."""
        with self.transaction(write=True) as sql:
            sql("SELECT pg_advisory_xact_lock(:number)", number=_CREATING)
            if sql("SELECT to_regclass('jaxacct_schema') IS NOT NULL")[0][0]:
                return False
            _store.create_tables(sql, self, body, digest, state)
            return True

    @contextlib.contextmanager
    def transaction(self, *, write: bool) -> Iterator[Sql]:
        """A transaction at READ COMMITTED; the lock on the head's row is what orders writers."""
        with self._translated(), self._connected().begin() as connection:

            def sql(statement: str, **parameters: int | str | None) -> list[Row]:
                found = connection.execute(self._sqlalchemy.text(statement), parameters)
                return [tuple(row) for row in found] if found.returns_rows else []

            sql(f"SET LOCAL lock_timeout = {max(1, int(self.timeout * 1000))}")
            if write:
                # Whatever the server's default is: a charge is on the disk before anybody releases.
                sql(_SYNCHRONOUS)
            yield sql

    def check(self, sql: Sql) -> None:
        """The guard and nothing else acts on the tables; a server set up with checksums checks its pages itself."""
        found = sorted(row[0] for row in sql(_ACTS))
        if found != [_GUARD]:
            odd = min({_GUARD} ^ set(found), default=_GUARD)
            raise LedgerTampered(
                f"{self} has lost its guard against changed records, or holds another trigger or rule: {odd!r:.200}"
            )

    def close(self) -> None:
        """Gives this process's connections back."""
        if self._engine is not None:
            self._engine.dispose(close=self._process == os.getpid())
            self._engine = None

    def _connected(self) -> Engine:
        if self._engine is None or self._process != os.getpid():
            self.close()  # a parent's connections are left alone
            try:
                self._engine = self._sqlalchemy.create_engine(
                    self._url,
                    isolation_level="READ COMMITTED",
                    pool_pre_ping=True,
                    connect_args={"connect_timeout": max(2, int(self.timeout))},
                )
            except ImportError:
                raise ImportError("a ledger at a URL needs psycopg: pip install 'jaxacct[ledger]'") from None
            self._process = os.getpid()
        return self._engine

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._sqlalchemy.exc.DBAPIError as problem:
            state = getattr(problem.orig, "sqlstate", None) or ""
            kind = next((kind for start, kind in _STATES if state.startswith(start)), LedgerUnavailable)
            raise kind(f"{self}: {' '.join(str(problem.orig).split())}") from problem
        except self._sqlalchemy.exc.SQLAlchemyError as problem:
            raise LedgerUnavailable(f"{self}: {' '.join(str(problem).split())}") from problem
