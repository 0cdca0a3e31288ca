"""Exports a ledger as JSON, or as events of dp_accounting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxacct import mechanisms
from jaxacct.filters.base import Filter, is_scalar_query
from jaxacct.filters.odometer import Odometer
from jaxacct.ledger.records import Record


def as_json(records: Iterable[tuple[Record, str]]) -> str:
    """All records with their hashes, as one JSON object: the same text for the same history."""
    found = [{**record, "hash": digest} for record, digest in records]
    return json.dumps({"format": "jaxacct ledger", "records": found}, sort_keys=True, indent=1, allow_nan=False) + "\n"


def as_events(queries: Sequence[object], filter: Filter) -> Any:
    """The queries as one ``dp_accounting.ComposedDpEvent``; a number is what the filter takes it for."""
    try:
        import dp_accounting
    except ImportError:
        raise ImportError("dp_events needs dp_accounting: pip install dp_accounting") from None
    from jaxacct.interop import to_dp_event  # pyright: ignore[reportMissingImports]

    return dp_accounting.ComposedDpEvent([to_dp_event(_mechanism(query, filter), 1) for query in queries])


def _mechanism(query: object, filter: Filter) -> Any:
    numbers = is_scalar_query(query) or isinstance(query, tuple | list)
    if not numbers:
        return query
    budget = filter.filter if isinstance(filter, Odometer) else filter
    unit = getattr(budget, "unit", None)
    if unit is None or np.ndim(query):  # type: ignore[arg-type]
        raise ValueError(f"dp_events must be of mechanisms, got {query} under {type(budget).__name__}")
    return mechanisms.PureDP(0.0) if query == 0 else unit.mechanism(query)  # no parameter of the others is 0
