"""Where a ledger is kept: SQLite files and PostgreSQL databases behind one protocol."""

from __future__ import annotations

import os

from jaxacct.ledger.stores.base import Store
from jaxacct.ledger.stores.postgres import PostgresStore
from jaxacct.ledger.stores.sqlite import SqliteStore


def store_at(place: object, timeout: float) -> Store:
    """The store of a path, or of a PostgreSQL URL."""
    if isinstance(place, str) and "://" in place:
        return PostgresStore(place, timeout)
    if not isinstance(place, str | os.PathLike):
        raise ValueError(f"path_or_url must be a path or a URL postgresql://..., got {type(place).__name__}")
    path = os.fspath(place)
    if not isinstance(path, str) or not path or "\x00" in path or path == ":memory:":
        raise ValueError(f"path_or_url must be the path of a file, got {path!r}")
    return SqliteStore(path, timeout)
