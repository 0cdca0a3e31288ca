"""Where a ledger is kept: SQLite files and PostgreSQL databases behind one protocol."""

from __future__ import annotations

import os
import re
from pathlib import Path

from jaxacct.ledger.stores.base import Store
from jaxacct.ledger.stores.postgres import PostgresStore
from jaxacct.ledger.stores.sqlite import SqliteStore

_MISTYPED = re.compile(r"\s*postgres\w*(\+\w*)?(:|//)", re.IGNORECASE)


def store_at(place: object, timeout: float) -> Store:
    """The store of a path, or of a PostgreSQL URL."""
    if isinstance(place, str) and "://" in place:
        return PostgresStore(place, timeout)
    return SqliteStore(file_at(place, "path_or_url"), timeout)


def file_at(place: object, name: str) -> Path:
    """The path of a file; a URL, mistyped or not, is none, and is not printed: it may hold a password."""
    if not isinstance(place, str | os.PathLike):
        raise ValueError(f"{name} must be a path or a URL postgresql://..., got {type(place).__name__}")
    path = os.fspath(place)
    if isinstance(path, str) and ("://" in path or _MISTYPED.match(path)):
        raise ValueError(
            f"{name} must be a path, and only path_or_url a URL postgresql://..., got something like a URL"
        )
    if not isinstance(path, str) or not path or "\x00" in path or path == ":memory:":
        raise ValueError(f"{name} must be the path of a file, got {path!r}")
    return Path(path)
