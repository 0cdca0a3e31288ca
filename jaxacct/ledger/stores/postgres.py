"""Keeps ledgers in PostgreSQL, through SQLAlchemy, for teams on several machines: one in a schema.

The URL alone says which ledger is meant: the schema that it names, or ``public``. A server's search path, which differs
from role to role and leaves out in silence what a role may not use, is never asked.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
from jaxacct.ledger.stores.base import Row, Sql, Store

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

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
_SCHEMA = """
SELECT has_schema_privilege(n.oid, 'USAGE'),
    EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'jaxacct_schema')
FROM pg_namespace n WHERE n.nspname = :schema
"""
_SCHEMAS = """
SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = 'jaxacct_schema' AND n.nspname <> :schema ORDER BY 1 LIMIT 10
"""
# Whose values may be printed; those of others, of keys that we do not know too, may be secret.
_PUBLIC = {"host", "hostaddr", "port", "dbname", "user", "service", "options", "sslmode", "connect_timeout"}
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


class PostgresStore(Store):
    """A ledger in a PostgreSQL database, as the module describes."""

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
        if "@" in f"{parsed.host}{parsed.database}":
            raise ValueError("path_or_url must have %40 for every @ in a user's name or password, got an @ elsewhere")
        self._url = parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed
        self._schema = _schema_of(_values(self._url, "options"))
        self.timeout = timeout
        self._sqlalchemy = sqlalchemy
        self._engine: Engine | None = None
        self._process = -1

    def __str__(self) -> str:
        host = self._url.host or ",".join(_values(self._url, "host"))
        user = f"{self._url.username}@" if self._url.username else ""
        port = f":{self._url.port}" if self._url.port else ""
        return f"postgresql://{user}{host}{port}/{self._url.database or ''} (schema {self._schema})"

    def exists(self) -> bool:
        """Whether the schema has a ledger."""
        with self.transaction(write=False) as sql:
            return self._holds(sql)

    def elsewhere(self) -> str:
        """The other schemas of the database that have a ledger."""
        with self.transaction(write=False) as sql:
            names = [row[0] for row in sql(_SCHEMAS, schema=self._schema)]
        return f" (the schemas {', '.join(names)} do: name one, ?options=-csearch_path%3DNAME)" if names else ""

    def create(self, body: str, digest: str, state: str) -> bool:
        """Makes the tables in one transaction, one creator at a time."""
        with self.transaction(write=True) as sql:
            sql("SELECT pg_advisory_xact_lock(:number)", number=_CREATING)
            if self._holds(sql):
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

            if not write:
                sql("SET TRANSACTION READ ONLY")
            sql(f"SET LOCAL lock_timeout = {max(1, int(self.timeout * 1000))}")
            sql("SELECT set_config('search_path', quote_ident(:schema), true)", schema=self._schema)
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

    def _holds(self, sql: Sql) -> bool:
        found = sql(_SCHEMA, schema=self._schema)
        if not found:
            raise LedgerMissing(
                f"{self}: there is no such schema{'' if self._schema == 'public' else '; make it first'}"
            )
        may_use, has_one = found[0]
        if not may_use:
            raise LedgerUnavailable(
                f"{self}: this role may not use the schema, so whether a ledger is there cannot be told: "
                f"GRANT USAGE ON SCHEMA {self._schema}"
            )
        return has_one

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
            raise kind(f"{self}: {self._told(problem.orig)}") from None  # the cause's text may hold a password
        except self._sqlalchemy.exc.SQLAlchemyError as problem:
            raise LedgerUnavailable(f"{self}: {self._told(problem)}") from None

    def _told(self, problem: object) -> str:
        """An error's text on one line, without what may be secret in the URL."""
        text = " ".join(str(problem).split())
        secrets = [str(self._url.password or "")]
        secrets += [value for key in self._url.query if key not in _PUBLIC for value in _values(self._url, key)]
        for secret in filter(None, secrets):
            text = text.replace(secret, "***")
        return text


def _values(url: URL, key: str) -> tuple[str, ...]:
    found = url.query.get(key, ())
    return (found,) if isinstance(found, str) else tuple(found)


def _schema_of(options: tuple[str, ...]) -> str:
    """The one schema that a URL's options name; ``public`` where they name none."""
    text = " ".join(options)
    named = re.findall(r"(?:^|\s)-c\s*search_path=([^\W\d][\w$]*)(?=\s|$)", text)
    if len(named) != len(re.findall(r"search[_-]path", text, re.IGNORECASE)) or len(named) > 1:
        raise ValueError(f"path_or_url must name one schema, by options=-csearch_path=NAME, got options {text!r:.80}")
    return named[0].lower() if named else "public"
