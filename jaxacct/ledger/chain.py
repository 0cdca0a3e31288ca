"""Appends records to a ledger's chain of hashes, and checks where it ends, inside a transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from jaxacct._version import __version__
from jaxacct.ledger import canonical
from jaxacct.ledger.errors import LedgerCorrupted, LedgerError, LedgerTampered, LedgerTooNew
from jaxacct.ledger.policy import Policy, State
from jaxacct.ledger.records import NONE, hash_of, parsed
from jaxacct.ledger.stores import base as _store
from jaxacct.ledger.stores.base import Sql, Store


class Place(NamedTuple):
    """Where the chain stands: number, hash and time of the last record, and the filter's state after it."""

    seq: int
    hash: str
    at: int
    state: State


class Chain:
    """The records of a store, as one chain of hashes."""

    policy: Policy  # once it is known

    def __init__(self, store: Store) -> None:
        self.store = store
        self.last: Place | None = None  # where the chain stood when it was last looked at

    def first(self, policy: Policy, delta: float | None) -> tuple[str, str, str]:
        """Record 0: what the budget is."""
        fields = {"filter": policy.identity, "schema": _store.SCHEMA, "delta": delta}
        place, body = _after(Place(-1, NONE, 0, policy.start), "create", policy.start, fields)
        return body, place.hash, policy.start.text

    def append(self, sql: Sql, place: Place, kind: str, state: State, **fields: Any) -> Place:
        """Writes a record after ``place``, and the head; where the chain then stands, if the transaction commits."""
        after, body = _after(place, kind, state, fields)
        seq, digest, *_ = after
        _store.append(sql, place.seq, body, digest, state.text, fields.get("of"))
        if _store.read_head(sql) != [_store.Head(seq, digest, state.text, seq, body, digest)]:
            raise LedgerTampered(
                f"{self.store} did not keep record {seq} as it was written: something in the database (a trigger?) "
                "changes it; nothing was charged"
            )
        return after

    def check_schema(self, sql: Sql) -> None:
        """Raises LedgerError unless the tables have a schema that this version knows."""
        versions = _store.schema_of(sql)
        if len(versions) != 1 or type(versions[0]) is not int:
            raise LedgerCorrupted(f"{self.store} holds no ledger: {len(versions)} schema versions")
        if versions[0] > _store.SCHEMA:
            raise LedgerTooNew(
                f"{self.store} has schema {versions[0]}, this is jaxacct {__version__}, which knows schema "
                f"{_store.SCHEMA}: install a newer one"
            )
        if versions[0] < _store.SCHEMA:
            raise LedgerCorrupted(f"{self.store} has schema {versions[0]}, which no release had")

    def stated(self, sql: Sql) -> tuple[Policy, float | None]:
        """The filter and the delta that record 0 states."""
        row = next(_store.read_records(sql, -1, 0), None)
        if row is None:
            raise LedgerTampered(f"{self.store} has lost its first record")
        record = parsed(*row[:3], previous=NONE)
        try:
            policy = Policy(record["filter"])
        except LedgerError:
            raise
        except Exception as problem:  # whatever a filter raises on damaged fields
            raise LedgerCorrupted(f"{self.store} states no filter: {problem}") from problem
        if (record["state"], record["schema"]) != (policy.start.digest, *_store.schema_of(sql)):
            raise LedgerTampered(f"{self.store} has a first record that does not agree with itself")
        return policy, record["delta"]

    def place(self, sql: Sql) -> Place:
        """The head, after checking that the last record is the one it names and that the state is that record's."""
        known = self.last  # before the head is read: other threads move it on
        heads = _store.read_head(sql)
        if len(heads) != 1:
            raise LedgerTampered(f"{self.store} has {len(heads)} heads")
        head = heads[0]
        if (head.seq, head.hash) != (head.last_seq, head.last_hash):
            raise LedgerTampered(f"{self.store} ends at record {head.last_seq}, its head is {head.seq}: it was cut")
        if known is not None and known.hash == head.hash and known.state.text == head.state:
            return known
        if known is not None and not _store.holds(sql, known.seq, known.hash):
            raise LedgerTampered(
                f"{self.store} no longer holds record {known.seq} as it was a moment ago: it was exchanged for an "
                "older copy, or rewritten"
            )
        record = parsed(head.last_seq, head.last_body, head.last_hash)
        if not isinstance(head.state, str) or canonical.digest(head.state) != record["state"]:
            raise LedgerTampered(f"the state of {self.store} is not the one after record {head.seq}")
        place = Place(head.last_seq or 0, str(head.hash), record["at"], self.policy.state(head.state))
        self.last = place
        return place


def _after(place: Place, kind: str, state: State, fields: Mapping[str, object]) -> tuple[Place, str]:
    """Where the chain stands after one more record, and the record's text."""
    # Microseconds since 1970 by this machine's clock, which decides nothing: from 1970 to the year 3111.
    now = int(min(max(time.time(), 0.0) * 1e6, 2.0**55))
    shared = {"kind": kind, "seq": place.seq + 1, "at": now, "previous": place.hash, "state": state.digest}
    software = f"jaxacct {__version__}, jax {jax.__version__}"
    body = canonical.dumps({**shared, "software": software, **fields})
    return Place(place.seq + 1, hash_of(body), now, state), body
