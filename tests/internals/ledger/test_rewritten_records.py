"""A record that was rewritten, and given the hash of its new text, is found."""

import contextlib
import sqlite3
import time

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger import canonical
from jaxacct.ledger import chain as _chain
from jaxacct.ledger.errors import LedgerCorrupted, LedgerTampered
from jaxacct.ledger.records import hash_of
from jaxacct.ledger.stores.base import SCHEMA
from tests.ledger.stores import File
from tests.ledger.stores import altered as altered
from tests.ledger.stores import path as path


def rehashed(path, seq, change):
    """Changes one record and gives it the hash of its new text."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        body = connection.execute("SELECT body FROM jaxacct_records WHERE seq = ?", (seq,)).fetchone()[0]
    record = canonical.loads(body)
    change(record)
    body = canonical.dumps(record)
    with File(path.parent).unguarded(), contextlib.closing(sqlite3.connect(path)) as connection:
        statement = "UPDATE jaxacct_records SET body = ?, hash = ? WHERE seq = ?"
        connection.execute(statement, (body, hash_of(body), seq))
        connection.commit()


def test_a_schema_that_is_stated_twice_or_otherwise_than_in_the_first_record_is_found(path):
    altered(path, "INSERT INTO jaxacct_schema VALUES (2)")
    with pytest.raises(LedgerCorrupted, match="2 schema versions"):
        Ledger(path)
    altered(path, "DELETE FROM jaxacct_schema", f"INSERT INTO jaxacct_schema VALUES ({SCHEMA})")
    Ledger(path).close()
    rehashed(path, 0, lambda record: record.update(schema=0))
    with pytest.raises(LedgerTampered, match="does not agree with itself"):
        Ledger(path)


def test_a_record_that_was_changed_with_its_hash_breaks_the_chain(path):
    rehashed(path, 4, lambda record: record.update(label="x"))
    with pytest.raises(LedgerTampered, match="record 5 does not follow"):
        Ledger(path).verify()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"admitted": True}, "says admitted, replayed it is refused"),
        ({"state": "0" * 64}, "is not the one after record 2"),
        ({"query": "word"}, "does not take"),
        ({"query": {"type": "Gaussian", "fields": {"sigma": -1}}}, "broken Gaussian"),
        ({"query": {"type": "Path", "fields": {}}}, "not registered"),
        ({"query": {"type": "os.system", "fields": {}}}, "not registered"),
        ({"query": {"array": {"data": "AAAA", "dtype": "|O", "shape": [1]}}}, "broken array"),
        ({"query": {"array": {"data": "AAAA", "dtype": "<f8", "shape": [10**12]}}}, "broken array"),
        ({"at": -1}, "out of range"),
        ({"more": 1}, "not a record"),
        ({"kind": "other"}, "not a record"),
        ({"label": 1}, "a wrong type"),
        ({"seq": 3}, "says that it is record 3"),
    ],
)
def test_a_last_record_that_makes_no_sense_is_found(tmp_path, change, words):
    place = tmp_path / "budget.db"
    with Ledger(place, filters.pure_dp(1.0), create=True) as ledger:
        ledger.request(0.1)
        ledger.request(5.0)
    rehashed(place, 2, lambda record: record.update(change))
    altered_head = "UPDATE jaxacct_head SET hash = (SELECT hash FROM jaxacct_records WHERE seq = 2)"
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.execute(altered_head)
        connection.commit()
    with pytest.raises(LedgerCorrupted, match=words):
        Ledger(place).verify()


@pytest.mark.parametrize("wrong", [-3600.0, 3.2e8, 1e300, -1e18])
def test_a_clock_that_jumps_once_stops_no_charge_then_or_later(path, monkeypatch, wrong):
    ledger = Ledger(path)
    now = time.time()
    monkeypatch.setattr(_chain.time, "time", lambda: now + wrong)
    assert ledger.request(0.5)
    ledger.released(2)
    monkeypatch.undo()
    assert ledger.request(0.5)
    assert Ledger(path).request(0.5)
    found = Ledger(path).verify()
    assert found.admitted == 9
    assert found.set_back == ((11,) if wrong > 0 else (9,))  # 9 and 10 were written by the wrong clock
    assert len(ledger.history()) == 10
