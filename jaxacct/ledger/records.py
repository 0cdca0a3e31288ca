"""One record of a ledger: what it says, and how its hash ties it to all that came before.

A record's text holds its number, the hash of the record before it, and the SHA-256 of the filter's state after it, so
that the last hash stands for the whole history: whoever keeps it finds any later change of what it covers.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jaxacct._types import Fields
from jaxacct.ledger import canonical
from jaxacct.ledger.errors import LedgerCorrupted, LedgerTampered

if TYPE_CHECKING:
    from jaxacct.ledger.reading import Reading

Record = Fields
NONE = "0" * 64  # what stands before record 0
# The types of a record's fields, by its kind; a number is in a range of its own.
_SHARED = {"at": int, "kind": str, "previous": str, "seq": int, "software": str, "state": str}
_KINDS: dict[object, dict[str, type]] = {
    "create": {**_SHARED, "delta": object, "filter": object, "schema": object},
    "request": {**_SHARED, "admitted": bool, "label": str, "query": object},
    "release": {**_SHARED, "of": int},
}


@dataclass(frozen=True)
class Entry:
    """One request, as :meth:`jaxacct.Ledger.history` tells it.

    Attributes:
        id: its number in the ledger; what :meth:`jaxacct.Ledger.released` takes.
        at: when it was asked, by the clock of the machine that asked, which may be wrong (`Verification.set_back`).
        label: the analyst's words.
        query: the mechanism or number, rebuilt from the record.
        admitted: whether it was charged.
        released: when its output was said to have been released; None if nobody said so.
        hash: of the record.
        reading: of an entry that :meth:`jaxacct.Ledger.request` returned, a function without arguments that gives the
            `Reading` of the budget with the request's cost, or why it was refused and what would have fitted; None for
            entries of a history.
    """

    id: int
    at: datetime.datetime
    label: str
    query: object
    admitted: bool
    released: datetime.datetime | None
    hash: str
    reading: Callable[[], Reading] | None = field(default=None, compare=False, repr=False)

    def __bool__(self) -> bool:
        """Whether it was admitted: ``if ledger.request(query): release()``."""
        return self.admitted

    @property
    def head(self) -> str:
        """What :meth:`jaxacct.Ledger.verify` takes to find that this entry, or any before it, was changed or cut."""
        return head_of(self.id, self.hash)


def when(microseconds: int) -> datetime.datetime:
    """A record's time, in UTC."""
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=microseconds)


def hash_of(body: str) -> str:
    """SHA-256 of a record's text, in a domain of its own."""
    return canonical.digest("jaxacct ledger record\n" + body)


def parsed(seq: object, body: object, digest: object, previous: str | None = None) -> Record:
    """What a record says, checked against its hash and, where that is known, the hash of the record before it."""
    if type(seq) is not int or not isinstance(body, str) or not isinstance(digest, str):
        raise LedgerCorrupted(f"record {seq!r} is damaged")
    try:
        agrees = hash_of(body) == digest
    except UnicodeEncodeError:
        agrees = False
    if not agrees:
        raise LedgerTampered(f"record {seq} is not the one that was written: its hash does not agree")
    record = canonical.loads(body)
    kind = record.get("kind") if isinstance(record, dict) else None
    fields = _KINDS.get(kind) if isinstance(kind, str) else None
    if fields is None or set(record) != set(fields):
        raise LedgerCorrupted(f"record {seq} is not a record of a ledger")
    delta = record.get("delta")
    good = delta is None or (type(delta) is float and 0.0 < delta < 1.0)
    for name, wanted in fields.items():
        good = good and (wanted is object or type(record[name]) is wanted)
        good = good and (wanted is not int or 0 <= record[name] < 2**56)
    if not good:
        raise LedgerCorrupted(f"record {seq} is not a record of a ledger: a field has a wrong type, or is out of range")
    if record["seq"] != seq or (kind == "create") != (seq == 0):
        raise LedgerTampered(f"record {seq} says that it is record {record['seq']} ({kind})")
    if previous is not None and record["previous"] != previous:
        raise LedgerTampered(f"record {seq} does not follow on the record before it: one was changed or removed")
    return record


def head_of(seq: int, digest: str) -> str:
    """The number and the hash of a record as one word, ``"17:3f..."``."""
    return f"{seq}:{digest}"


def as_head(head: object) -> tuple[int, str]:
    """The number and the hash in a head."""
    if not isinstance(head, str) or not re.fullmatch(r"[0-9]{1,15}:[0-9a-f]{64}", head):
        raise ValueError(f"head must be what verify printed, a number, a colon and 64 hexadecimal digits, got {head!r}")
    number, digest = head.split(":")
    return int(number), digest
