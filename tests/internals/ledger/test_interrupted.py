"""Forks, kills, exchanged files and Ctrl-C in the middle of a transaction: no charge is lost and no answer is wrong."""

import contextlib
import os
import shutil
import signal
import sqlite3
import threading

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger import ledger as _ledger
from jaxacct.ledger.errors import LedgerUnavailable
from jaxacct.ledger.stores import base as _store
from jaxacct.ledger.stores import sqlite as _sqlite
from jaxacct.ledger.stores.sqlite import SqliteStore
from tests.ledger.stores import a_quarter_spent


@pytest.fixture
def path(tmp_path):
    return a_quarter_spent(tmp_path)


def exchanged(path):
    shutil.copy(path, f"{path}.older")
    os.replace(f"{path}.older", path)


def unlocked(path):
    os.unlink(f"{path}-lock")


@pytest.mark.parametrize("harm", [exchanged, unlocked])
def test_a_file_or_lock_that_is_exchanged_during_a_charge_gives_no_answer(path, monkeypatch, harm):
    ledger = Ledger(path)
    append = _store.append
    monkeypatch.setattr(_store, "append", lambda *given: (append(*given), harm(path)))
    with pytest.raises(LedgerUnavailable, match="uncertain, do not release"):
        ledger.request(0.25)


def test_a_commit_that_another_program_undoes_gives_no_answer(path, monkeypatch):
    """What SQLite does to a journal that looks as if its writer were dead."""
    ledger = Ledger(path)
    before = path.read_bytes()
    ends_in = SqliteStore._ends_in
    monkeypatch.setattr(SqliteStore, "_ends_in", lambda *given: (path.write_bytes(before), ends_in(*given))[1])
    with pytest.raises(LedgerUnavailable, match="uncertain, do not release"):
        ledger.request(0.25)


def in_child(work):
    """The exit status of a fork that runs ``work``; it may take ten seconds."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        signal.alarm(10)
        work()
        os._exit(0)
    finally:
        os._exit(1)


def written(store, seq):
    with store.transaction(write=True) as sql:
        _store.append(sql, seq - 1, f"body {seq}", f"hash {seq}", "state", None)


def seen(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT seq FROM jaxacct_records ORDER BY seq")]


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path / "budget.db", 60.0)
    made.create("body", "hash", "state")
    return made


forks = pytest.mark.filterwarnings("ignore:.*fork", "ignore:.*multi-threaded")


@forks
def test_a_fork_and_its_parent_write_by_turns(store):
    written(store, 1)
    assert in_child(lambda: written(store, 2)) == 0
    written(store, 3)
    assert seen(store.path) == [0, 1, 2, 3]


@forks
def test_a_fork_within_a_call_commits_nothing_and_leaves_the_call_to_its_parent(store):
    child = None
    try:
        with store.transaction(write=True) as sql:
            _store.append(sql, 0, "body 1", "hash 1", "state", None)
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
    except LedgerUnavailable as problem:
        os._exit(0 if child == 0 and "forked in the middle" in str(problem) else 1)
    finally:
        if child == 0:
            os._exit(2)
    assert seen(store.path) == [0, 1]


@forks
def test_a_fork_in_the_middle_of_another_thread_s_transaction_waits_for_it(store):
    inside, leave = threading.Event(), threading.Event()

    def transaction():
        with store.transaction(write=True) as sql:
            inside.set()
            leave.wait(10)
            _store.append(sql, 0, "body 1", "hash 1", "state", None)

    thread = threading.Thread(target=transaction)
    thread.start()
    assert inside.wait(10)
    threading.Timer(0.2, leave.set).start()
    assert in_child(lambda: written(store, 2)) == 0
    thread.join()
    assert seen(store.path) == [0, 1, 2]


class Interrupted:
    """A connection whose BEGIN is followed by Ctrl-C at once."""

    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *given):
        found = self.connection.execute(statement, *given)
        if statement.startswith("BEGIN"):
            raise KeyboardInterrupt
        return found


def test_ctrl_c_after_begin_leaves_no_lock_behind(store, monkeypatch):
    written(store, 1)
    connected = _sqlite._connected
    with monkeypatch.context() as patch:
        patch.setattr(_sqlite, "_connected", lambda *given: Interrupted(connected(*given)))
        with pytest.raises(KeyboardInterrupt):
            written(store, 2)
    written(SqliteStore(store.path, 0.1), 2)


def die(*_):
    raise KeyboardInterrupt


def test_a_process_that_dies_between_charge_and_answer_stays_charged(tmp_path, monkeypatch):
    place = tmp_path / "budget.db"
    with Ledger(place, filters.pure_dp(1.0), create=True) as ledger, monkeypatch.context() as patch:
        patch.setattr(_ledger, "Entry", die)  # committed, and not yet told
        with pytest.raises(KeyboardInterrupt):
            ledger.request(0.75, "lost")
    again = Ledger(place)
    (entry,) = again.outstanding()
    assert (entry.label, entry.admitted) == ("lost", True)
    assert not again.request(0.5)
    assert again.verify().admitted == 1


def test_a_process_that_dies_before_the_commit_charges_nothing(tmp_path, monkeypatch):
    place = tmp_path / "budget.db"
    with Ledger(place, filters.pure_dp(1.0), create=True) as ledger:
        append = _store.append
        with monkeypatch.context() as patch:
            patch.setattr(_store, "append", lambda *given: (append(*given), die()))  # written, and not yet committed
            with pytest.raises(KeyboardInterrupt):
                ledger.request(0.75)
        assert Ledger(place).spent() == 0
        assert ledger.request(0.75)
    assert Ledger(place).verify().admitted == 1
