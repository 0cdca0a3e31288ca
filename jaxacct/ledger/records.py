"""One record of a ledger: what it says, and how its hash ties it to all that came before.

A record's text holds its number, the hash of the record before it, and the SHA-256 of the filter's state after it, so
that the last hash stands for the whole history: whoever keeps it finds any later change of what it covers.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jaxacct._types import Fields
from jaxacct.ledger import canonical
from jaxacct.ledger.errors import LedgerCorrupted, LedgerTampered

if TYPE_CHECKING:
    from jaxacct.ledger.reading import Reading

Record = Fields
NONE = "0" * 64  # what stands before record 0
_KEYS = {"create": {"delta", "filter", "schema"}, "request": {"admitted", "label", "query"}, "release": {"of"}}
_SHARED = {"at", "filter_digest", "kind", "previous", "seq", "software", "state"}


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
    query: Any
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
    if kind not in _KEYS or set(record) != _KEYS[kind] | _SHARED:
        raise LedgerCorrupted(f"record {seq} is not a record of a ledger")
    numbers = [record["at"], record["seq"]] + ([record["of"]] if kind == "release" else [])
    if not all(type(number) is int and 0 <= number < 2**56 for number in numbers):
        raise LedgerCorrupted(f"record {seq} is no record of a ledger: a number is none")
    delta = record.get("delta")
    typed = delta is None or (type(delta) is float and 0.0 < delta < 1.0)
    if kind == "request":
        typed = type(record["admitted"]) is bool and isinstance(record["label"], str)
    if not typed:
        raise LedgerCorrupted(f"record {seq} is not a record of a ledger: a field has a wrong type")
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
