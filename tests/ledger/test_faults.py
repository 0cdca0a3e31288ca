"""What can go wrong with a ledger: an error that says what, and nothing lost."""

import contextlib
import os
import pathlib
import resource
import shutil
import sqlite3
import subprocess
import threading
import time

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger import (
    LedgerBusy,
    LedgerClock,
    LedgerCorrupted,
    LedgerError,
    LedgerFull,
    LedgerTampered,
    LedgerTooNew,
    LedgerUnavailable,
    canonical,
)
from jaxacct.ledger import ledger as _ledger
from jaxacct.ledger.records import hash_of
from jaxacct.ledger.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    """A ledger of six charges of 0.5 out of 10, one refusal and one release."""
    with Ledger(tmp_path / "budget.db", filters.pure_dp(10.0)) as ledger:
        for label in "abcdef":
            ledger.request(0.5, label)
        ledger.request(20.0, "refused")
        ledger.released(1)
    return tmp_path / "budget.db"


def altered(path, *statements, guarded=False):
    """Runs SQL on the file as somebody with an editor would, who puts the guards back."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        if not guarded:
            for verb in ("UPDATE", "DELETE"):
                connection.execute(f"DROP TRIGGER jaxacct_no_{verb}")
        for statement, parameters in statements:
            connection.execute(statement, parameters)
        for guard in () if guarded else SqliteStore.guards:
            connection.execute(guard)
        connection.commit()


def rehashed(path, seq, change):
    """Changes one record and gives it the hash of its new text."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        body = connection.execute("SELECT body FROM jaxacct_records WHERE seq = ?", (seq,)).fetchone()[0]
    record = canonical.loads(body)
    change(record)
    body = canonical.dumps(record)
    statement = "UPDATE jaxacct_records SET body = ?, hash = ? WHERE seq = ?"
    altered(path, (statement, (body, hash_of(body), seq)))


def test_the_tables_are_append_only(path):
    for statement in ("UPDATE jaxacct_records SET body = 'x' WHERE seq = 1", "DELETE FROM jaxacct_records"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            altered(path, (statement, ()), guarded=True)


TAMPERED = {
    "a label": ('UPDATE jaxacct_records SET body = replace(body, \'"label":"c"\', \'"label":"x"\') WHERE seq = 3', 3),
    "an answer": ("UPDATE jaxacct_records SET body = replace(body, 'true', 'false') WHERE seq = 2", 2),
    "a cost": ("UPDATE jaxacct_records SET body = replace(body, '0x1.0', '0x0.1') WHERE seq = 4", 4),
    "a hash": ("UPDATE jaxacct_records SET hash = replace(hash, 'a', 'b') WHERE seq = 5", 5),
    "a record removed": ("DELETE FROM jaxacct_records WHERE seq = 4", 4),
    "the first removed": ("DELETE FROM jaxacct_records WHERE seq = 0", 0),
    "the last removed": ("DELETE FROM jaxacct_records WHERE seq = 8", 8),
    "a record swapped": ("UPDATE jaxacct_records SET seq = 100 + seq WHERE seq = 3", 3),
    "a release filed elsewhere": ("UPDATE jaxacct_records SET releases = 2 WHERE seq = 8", -8),
    "a state set back": (
        "UPDATE jaxacct_head SET state = (SELECT replace(state, substr(state, 20, 8), 'AAAAAAAA') FROM jaxacct_head)",
        None,
    ),
    "a head set back": (
        "UPDATE jaxacct_head SET seq = 7, hash = (SELECT hash FROM jaxacct_records WHERE seq = 7)",
        None,
    ),
    "no head": ("DELETE FROM jaxacct_head", None),
    "a record with a number that nobody gave": (
        "INSERT INTO jaxacct_records (seq, body, hash, releases) VALUES (-7, '', '', 2)",
        -7,
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_tampering_is_found(path, what):
    statement, seq = TAMPERED[what]
    with Ledger(path) as before:
        head = before.verify().head
    altered(path, (statement, ()))
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


def test_a_trigger_that_takes_charges_back_charges_nothing_and_admits_nothing(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE kept AS SELECT * FROM jaxacct_head; DROP TRIGGER jaxacct_no_DELETE;"
            "CREATE TRIGGER mine AFTER UPDATE ON jaxacct_head BEGIN "
            "DELETE FROM jaxacct_records WHERE seq = NEW.seq; "
            "INSERT OR REPLACE INTO jaxacct_head SELECT * FROM kept; END"
        )
    ledger = Ledger(path)
    with pytest.raises(LedgerTampered, match="did not keep record 9 as it was written"):
        ledger.request(0.5)
    assert len(ledger.history()) == 7


def test_a_schema_that_is_stated_twice_or_otherwise_than_in_the_first_record_is_found(path):
    altered(path, ("INSERT INTO jaxacct_schema VALUES (2)", ()))
    with pytest.raises(LedgerCorrupted, match="2 schema versions"):
        Ledger(path)
    altered(path, ("DELETE FROM jaxacct_schema", ()), ("INSERT INTO jaxacct_schema VALUES (2)", ()))
    Ledger(path).close()
    rehashed(path, 0, lambda record: record.update(schema=0))
    with pytest.raises(LedgerTampered, match="does not agree with itself"):
        Ledger(path)


def test_a_record_that_was_changed_with_its_hash_breaks_the_chain(path):
    rehashed(path, 4, lambda record: record.update(label="x"))
    with pytest.raises(LedgerTampered, match="record 5 does not follow"):
        Ledger(path).verify()


def test_a_history_that_was_rewritten_as_a_whole_is_found_by_its_head_alone(path, tmp_path):
    head = Ledger(path).head
    with Ledger(tmp_path / "other.db", filters.pure_dp(10.0)) as other:
        for label in "abcdefgh":
            other.request(0.25, label)
    path.unlink()
    (tmp_path / "other.db").rename(path)
    ledger = Ledger(path)
    ledger.verify()
    with pytest.raises(LedgerTampered, match="the history was rewritten"):
        ledger.verify(head)


def test_a_copy_of_an_earlier_day_is_found_by_the_head(path, tmp_path):
    shutil.copy(path, tmp_path / "yesterday.db")
    with Ledger(path) as ledger:
        ledger.request(0.5)
        head = ledger.verify().head
    with pytest.raises(LedgerTampered, match="ends at record 8, and the head names record 9"):
        Ledger(tmp_path / "yesterday.db").verify(head)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"admitted": True}, "says admitted, replayed it is refused"),
        ({"state": "0" * 64}, "is not the one after record 2"),
        ({"filter_digest": "0" * 64}, "another filter"),
        ({"query": "word"}, "does not take"),
        ({"query": {"type": "Gaussian", "fields": {"sigma": -1}}}, "broken Gaussian"),
        ({"query": {"type": "Path", "fields": {}}}, "not registered"),
        ({"query": {"type": "os.system", "fields": {}}}, "not registered"),
        ({"query": {"float": "0.1"}}, "broken number"),
        ({"query": {"array": {"data": "AAAA", "dtype": "|O", "shape": [1]}}}, "broken array"),
        ({"query": {"array": {"data": "AAAA", "dtype": "<f8", "shape": [10**12]}}}, "broken array"),
        ({"at": 0}, "dated before"),
        ({"at": -1}, "a number is none"),
        ({"more": 1}, "no record"),
        ({"kind": "other"}, "no record"),
        ({"label": 1}, "another type"),
        ({"seq": 3}, "says that it is record 3"),
    ],
)
def test_a_last_record_that_makes_no_sense_is_found(tmp_path, change, words):
    place = tmp_path / "budget.db"
    with Ledger(place, filters.pure_dp(1.0)) as ledger:
        ledger.request(0.1)
        ledger.request(5.0)
    rehashed(place, 2, lambda record: record.update(change))
    altered_head = "UPDATE jaxacct_head SET hash = (SELECT hash FROM jaxacct_records WHERE seq = 2)"
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.execute(altered_head)
        connection.commit()
    with pytest.raises(LedgerCorrupted, match=words):
        Ledger(place).verify()


def test_a_newer_schema_is_refused_and_left_alone(path):
    altered(path, ("UPDATE jaxacct_schema SET version = 3", ()))
    before = path.read_bytes()
    for use in (Ledger, lambda p: Ledger(p, filters.pure_dp(10.0))):
        with pytest.raises(LedgerTooNew, match=r"has schema 3.*install a newer"):
            use(path)
    assert path.read_bytes() == before


def test_a_schema_that_became_newer_while_open_is_refused(path):
    ledger = Ledger(path)
    altered(path, ("UPDATE jaxacct_schema SET version = 3", ()))
    for use in (lambda: ledger.request(0.1), lambda: ledger.released(2), ledger.spent, ledger.verify):
        with pytest.raises(LedgerTooNew):
            use()


def test_a_clock_that_goes_backwards_is_refused_and_costs_nothing(path, monkeypatch):
    ledger = Ledger(path)
    spent, head = ledger.spent(), ledger.head
    now = time.time()
    monkeypatch.setattr(_ledger.time, "time", lambda: now - 3600)
    with pytest.raises(LedgerClock, match="set the clock, or raise clock_tolerance"):
        ledger.request(0.5)
    with pytest.raises(LedgerClock):
        ledger.released(2)
    assert (ledger.spent(), ledger.head) == (spent, head)
    patient = Ledger(path, clock_tolerance=4000.0)
    assert patient.request(0.5)
    *_, before, after = patient.history()
    assert after.at == before.at or after.at > before.at
    monkeypatch.setattr(_ledger.time, "time", lambda: now - 3)  # skew between machines
    assert ledger.request(0.5)
    monkeypatch.setattr(_ledger.time, "time", lambda: 1e300)
    with pytest.raises(LedgerClock):
        ledger.request(0.5)
    monkeypatch.undo()
    assert ledger.verify().admitted == 8


def test_a_locked_file_is_waited_for_and_then_given_up(path):
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        other.execute("BEGIN IMMEDIATE")
        ledger = Ledger(path, timeout=0.2)
        assert ledger.spent() >= 3.0  # readers go on
        with pytest.raises(LedgerBusy, match="locked"):
            ledger.request(0.5)
        patient = Ledger(path, timeout=60.0)
        threading.Timer(0.3, lambda: other.execute("ROLLBACK")).start()
        assert patient.request(0.5)
    finally:
        other.close()
    assert ledger.verify().admitted == 7


def test_an_exclusive_lock_at_opening_is_waited_for_too(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(LedgerBusy):
            Ledger(path, timeout=0.1)
    finally:
        other.close()


def asked_until_full(ledger, cost):
    """How many requests were admitted before the disk was full."""
    admitted = 0
    for _ in range(100):
        try:
            admitted += ledger.request(cost, "x" * 5000)
        except LedgerFull:
            return admitted
    raise AssertionError("the disk never was full")


def test_a_full_disk_charges_nothing_and_loses_nothing(path):
    ledger = Ledger(path)
    spent = ledger.spent()
    connection = ledger._store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    before = len(ledger.history())
    admitted = asked_until_full(ledger, 1e-3)
    assert len(ledger.history()) == before + admitted
    assert ledger.spent() == pytest.approx(spent + admitted * 1e-3)
    connection.execute("PRAGMA max_page_count = 1000000")
    assert ledger.request(0.5)
    assert ledger.verify().admitted == 7 + admitted


def test_a_file_that_may_not_grow_charges_nothing_and_loses_nothing(path):
    """The limit of a process's files makes every write past it fail as a broken disk does."""
    ledger = Ledger(path)
    ledger.request(0.5)
    wal = pathlib.Path(f"{path}-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size, hard))
    try:
        with pytest.raises(LedgerUnavailable):
            ledger.request(0.25)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert ledger.spent() == pytest.approx(3.5)
    assert ledger.request(0.25)
    assert Ledger(path).verify().admitted == 8


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting a small file system takes root")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_truly_full_charges_nothing_and_loses_nothing(small_disk):
    with Ledger(small_disk / "budget.db", filters.pure_dp(10.0)) as ledger:
        ledger.request(1.0)
        filler = small_disk / "filler"
        filler.write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
        admitted = 1 + asked_until_full(ledger, 1.0)
        assert ledger.spent() == pytest.approx(admitted)
        filler.unlink()
        assert ledger.request(0.5)
        assert ledger.verify().admitted == admitted + 1
    filler.write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize))
    with pytest.raises(LedgerError):
        Ledger(small_disk / "second.db", filters.pure_dp(1.0))
    assert sorted(p.name for p in small_disk.iterdir()) == ["budget.db", "filler"]


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
        Ledger(place, filters.pure_dp(1.0))
    place.write_bytes(b"not a database at all, but long enough to be one" * 30)
    with pytest.raises(LedgerCorrupted, match="not a database"):
        Ledger(place)
    place.unlink()
    with contextlib.closing(sqlite3.connect(place)) as connection:
        connection.execute("CREATE TABLE mine (x)")
    with pytest.raises(LedgerCorrupted, match="no such table"):
        Ledger(place, filters.pure_dp(1.0))
    with pytest.raises(LedgerUnavailable):
        Ledger(tmp_path, filters.pure_dp(1.0))
    with pytest.raises(LedgerUnavailable):
        Ledger(tmp_path / "no" / "folder.db", filters.pure_dp(1.0))
    with pytest.raises(LedgerUnavailable):
        Ledger("/proc/ledger.db", filters.pure_dp(1.0))


def test_a_ledger_whose_file_was_lost_is_not_begun_anew_over_its_log(path):
    ledger = Ledger(path)
    ledger.request(0.5)
    path.unlink()
    with pytest.raises(LedgerCorrupted, match="write-ahead log is still there"):
        Ledger(path, filters.pure_dp(10.0))
    ledger.close()
