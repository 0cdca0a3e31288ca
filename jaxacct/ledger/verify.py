"""Verifies a ledger: every hash, and every decision replayed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from jaxacct.ledger import canonical
from jaxacct.ledger.chain import Place
from jaxacct.ledger.errors import LedgerTampered
from jaxacct.ledger.policy import Policy, State
from jaxacct.ledger.records import NONE, Entry, Record, head_of, parsed, when
from jaxacct.ledger.stores import base as _store
from jaxacct.ledger.stores.base import Sql


@dataclass(frozen=True)
class Verification:
    """The result of a successful verification.

    Attributes:
        head: number and hash of the last record: keep it elsewhere, and give it to the next `verify`.
        requests: how many requests were made.
        admitted: how many of them were charged.
        refused: how many were not.
        released: how many outputs were said to have been released.
        set_back: numbers of the records that are dated before the record before them: somebody's clock was wrong.
            Times decide nothing.
    """

    head: str
    requests: int
    admitted: int
    refused: int
    released: int
    set_back: tuple[int, ...] = ()


def walked(sql: Sql, last: int) -> Iterator[tuple[Record, str]]:
    """Records 0 to ``last`` with their hashes, each checked to follow on the one before it."""
    seq, previous = -1, NONE
    for row, body, digest, releases in _store.read_records(sql, -1, last):
        if row != seq + 1:
            raise LedgerTampered(f"record {seq + 1} is missing")
        record = parsed(row, body, digest, previous)
        if releases != record.get("of"):
            raise LedgerTampered(f"record {row} is filed as the release of {releases}, not of {record.get('of')}")
        seq, previous = row, digest
        yield record, digest
    if seq != last:
        raise LedgerTampered(f"record {seq + 1} is missing: the ledger was cut")
    if (count := _store.count_records(sql, last)) != last + 1:
        raise LedgerTampered(f"there are {count} records up to number {last}: some have numbers that nobody gave")


def entries(records: Iterable[tuple[Record, str]]) -> list[Entry]:
    """The requests among ``records``, each with its release."""
    found: dict[int, Entry] = {}
    for record, digest in records:
        seq, at = record["seq"], when(record["at"])
        if record["kind"] == "request":
            query = canonical.decoded(record["query"])
            found[seq] = Entry(seq, at, record["label"], query, record["admitted"], None, digest)
        elif record["kind"] == "release":
            entry = found.get(record["of"])
            if entry is None or not entry.admitted or entry.released is not None:
                raise LedgerTampered(f"record {seq} releases {record['of']}, which nobody could have released")
            found[record["of"]] = replace(entry, released=at)
    return list(found.values())


def verified(
    records: Iterable[tuple[Record, str]], policy: Policy, place: Place, known: tuple[int, str] | None
) -> Verification:
    """Replays ``records`` of `walked` with ``policy``: the answers and the states must be those that were written down.

    They must end at ``place``; ``known`` is the number and hash of a record that must be among them.
    """
    set_back: list[int] = []
    found = entries(_replayed(records, policy, place, known, set_back))
    admitted, released = (sum(map(bool, each)) for each in (found, [entry.released for entry in found]))
    head = head_of(place.seq, place.hash)
    return Verification(head, len(found), admitted, len(found) - admitted, released, tuple(set_back))


def _replayed(
    records: Iterable[tuple[Record, str]],
    policy: Policy,
    place: Place,
    known: tuple[int, str] | None,
    set_back: list[int],
) -> Iterator[tuple[Record, str]]:
    """The records, each replayed; the numbers of those dated before the one before them are added to ``set_back``."""
    now, at = policy.start, 0
    heads = [(place.seq, place.hash), *([] if known is None else [known])]
    for record, digest in records:
        number = record["seq"]
        if record["at"] < at:
            set_back.append(number)
        at = record["at"]
        if any(number == seq and digest != named for seq, named in heads):
            raise LedgerTampered(f"record {number} is not the one that the head names: the history was rewritten")
        if record["kind"] == "request":
            now = _decided(record, policy, now)
        if now.digest != record["state"]:
            raise LedgerTampered(f"record {number} does not replay: another state comes out{_written_by(record)}")
        yield record, digest
    if known is not None and place.seq < known[0]:
        raise LedgerTampered(f"the ledger ends at record {place.seq}, and the head names record {known[0]}")
    if now.text != place.state.text:
        raise LedgerTampered(f"the head's state is not the one after record {place.seq}")


def _decided(record: Record, policy: Policy, now: State) -> State:
    """The state after a request, whose answer must be the one that was written down."""
    try:
        answer, after = policy.decide(canonical.decoded(record["query"]), now)
    except ValueError as problem:
        raise LedgerTampered(f"record {record['seq']} holds a query that the filter does not take: {problem}") from None
    if answer != record["admitted"]:
        said, found = ("admitted" if x else "refused" for x in (record["admitted"], answer))
        raise LedgerTampered(f"record {record['seq']} says {said}, replayed it is {found}{_written_by(record)}")
    return after


def _written_by(record: Record) -> str:
    return f" (written by {record['software']}: another version may round otherwise; replay it with that one)"
