"""What can go wrong with a ledger: an error that says what, and nothing lost."""

import contextlib
import resource
import sqlite3

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger.errors import (
    LedgerBusy,
    LedgerCorrupted,
    LedgerError,
    LedgerFull,
    LedgerTampered,
    LedgerUnavailable,
)
from tests.ledger.stores import altered as altered
from tests.ledger.stores import path as path

TAMPERED = {
    "a label": ('UPDATE jaxacct_records SET body = replace(body, \'"label":"c"\', \'"label":"x"\') WHERE seq = 3', 3),
    "an answer": ("UPDATE jaxacct_records SET body = replace(body, 'true', 'false') WHERE seq = 2", 2),
    "a cost": ("UPDATE jaxacct_records SET body = replace(body, '0.5', '0.1') WHERE seq = 4", 4),
    "a hash": ("UPDATE jaxacct_records SET hash = iif(hash LIKE '0%', '1', '0') || substr(hash, 2) WHERE seq = 5", 5),
    "a record removed": ("DELETE FROM jaxacct_records WHERE seq = 4", 4),
    "the first removed": ("DELETE FROM jaxacct_records WHERE seq = 0", 0),
    "the last removed": ("DELETE FROM jaxacct_records WHERE seq = 8", 8),
    "a record swapped": ("UPDATE jaxacct_records SET seq = 100 + seq WHERE seq = 3", 3),
    "a release filed elsewhere": ("UPDATE jaxacct_records SET releases = 2 WHERE seq = 8", -8),
    "a state set back": ("UPDATE jaxacct_head SET state = replace(state, substr(state, 20, 8), 'AAAAAAAA')", None),
    "old head": ("UPDATE jaxacct_head SET (seq, hash) = (SELECT seq, hash FROM jaxacct_records WHERE seq = 7)", None),
    "no head": ("DELETE FROM jaxacct_head", None),
    "a record with a number that nobody gave": ("INSERT INTO jaxacct_records VALUES (-7, '', '', 2)", -7),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_is_found(path, what):
    statement, seq = TAMPERED[what]
    with Ledger(path) as before:
        head = before.verify().head
    altered(path, statement)
    with pytest.raises(LedgerTampered), Ledger(path) as ledger:
        ledger.verify(head)
    if seq is None or seq == 8:  # at the end: found before anything is charged
        with pytest.raises(LedgerTampered):
            Ledger(path).request(0.1)


PLANTED = {
    "no guard": "DROP TRIGGER jaxacct_no_DELETE",
    "a trigger": "CREATE TRIGGER mine AFTER INSERT ON jaxacct_records BEGIN SELECT 1; END",
    "an index": "CREATE INDEX mine ON jaxacct_records (hash)",
    "a column": "ALTER TABLE jaxacct_head ADD COLUMN mine TEXT",
    "a view": "ALTER TABLE jaxacct_schema RENAME TO mine; CREATE VIEW jaxacct_schema AS SELECT version FROM mine",
}


@pytest.mark.parametrize("what", PLANTED)
def test_verify_finds_what_was_planted_in_the_file(path, what):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(PLANTED[what])
        connection.execute("CREATE TABLE others (x)")  # and leaves alone what is none of its business
    with pytest.raises(LedgerTampered, match="a guard of its own, or holds another"):
        Ledger(path).verify()


def test_a_history_that_was_rewritten_as_a_whole_is_found_by_its_head_alone(path, tmp_path):
    head = Ledger(path).head
    with Ledger(tmp_path / "other.db", filters.pure_dp(10.0), create=True) as other:
        for label in "abcdefgh":
            other.request(0.25, label)
    path.unlink()
    (tmp_path / "other.db").rename(path)
    ledger = Ledger(path)
    ledger.verify()
    with pytest.raises(LedgerTampered, match="the history was rewritten"):
        ledger.verify(head)


def test_an_exclusive_lock_at_opening_is_waited_for_too(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(LedgerBusy):
            Ledger(path, timeout=0.1)
    finally:
        other.close()


def test_a_file_that_may_not_grow_charges_nothing_and_loses_nothing(path):
    """The limit of a process's files makes every write past it fail as a broken disk does."""
    ledger, admitted = Ledger(path), 0
    ledger.request(0.5)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        with pytest.raises((LedgerFull, LedgerUnavailable)):  # noqa: PT012
            for _ in range(100):
                admitted += ledger.request(1e-3, "x" * 5000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
        with pytest.raises(LedgerError):
            Ledger(path.with_name("second.db"), filters.pure_dp(1.0), create=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.spent() == pytest.approx(3.5 + admitted * 1e-3)
    assert ledger.request(0.25)
    assert Ledger(path).verify().admitted == 8 + admitted
    assert not list(path.parent.glob("second.db*"))


@pytest.mark.parametrize("page", range(1, 9))
def test_a_corrupted_page_is_an_error_with_a_name(path, page):
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[16:18], "big")
    pages = len(raw) // size
    start = (page % pages) * size
    raw[start : start + size] = bytes(255 - byte for byte in raw[start : start + size])
    path.write_bytes(raw)
    with pytest.raises(LedgerCorrupted):
        Ledger(path).verify()
    assert path.read_bytes() == bytes(raw)


def test_what_is_no_ledger_is_an_error_with_a_name(tmp_path):
    place = tmp_path / "x.db"
    place.write_bytes(b"")
    with pytest.raises(LedgerCorrupted, match="is empty"):
        Ledger(place, filters.pure_dp(1.0), create=True)
    place.write_bytes(b"not a database at all, but long enough to be one" * 30)
    with pytest.raises(LedgerCorrupted, match="not a database"):
        Ledger(place)
    place.unlink()
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(LedgerCorrupted, match="no such table"):
        Ledger(place, filters.pure_dp(1.0))
    with pytest.raises(LedgerError, match="is there already"):
        Ledger(place, filters.pure_dp(1.0), create=True)
    for nowhere in (tmp_path, tmp_path / "no" / "folder.db", "/proc/ledger.db"):
        with pytest.raises(LedgerUnavailable):
            Ledger(nowhere, filters.pure_dp(1.0), create=True)


@pytest.mark.parametrize("end", ["-journal", "-wal"])
def test_a_ledger_whose_file_was_lost_is_not_begun_anew_over_its_journal(path, end):
    path.rename(f"{path}{end}")
    with pytest.raises(LedgerCorrupted, match="its journal or log is still there"):
        Ledger(path, filters.pure_dp(10.0), create=True)
