"""Where a ledger lies: what is charged must be where every other process looks for it."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger import LedgerUnavailable
from jaxacct.ledger.stores import base as _store
from jaxacct.ledger.stores import sqlite as _sqlite
from jaxacct.ledger.stores.sqlite import SqliteStore
from tests.ledger.test_places import LEAVES


@pytest.fixture
def path(tmp_path):
    """A ledger with 0.25 of 1 spent."""
    with Ledger(tmp_path / "budget.db", filters.pure_dp(1.0), create=True) as ledger:
        ledger.request(0.25)
    return tmp_path / "budget.db"


def test_a_log_that_is_removed_during_a_charge_gives_no_answer(path, monkeypatch):
    ledger = Ledger(path)
    append = _store.append
    monkeypatch.setattr(_store, "append", lambda *given: (append(*given), os.unlink(f"{path}-wal")))
    with pytest.raises(LedgerUnavailable, match="uncertain, do not release"):
        ledger.request(0.25)


def test_a_ledger_whose_log_could_not_be_moved_into_it_is_not_made(tmp_path, monkeypatch):
    create, others = _store.create_tables, []

    def watched(sql, *given):
        create(sql, *given)
        # Another reader: the last to close has the duty, and here it is not the maker.
        others.append(sqlite3.connect(sql("PRAGMA database_list")[0][2]))
        others[0].execute("SELECT * FROM sqlite_master").fetchall()

    monkeypatch.setattr(_store, "create_tables", watched)
    with pytest.raises(LedgerUnavailable, match="could not move the log"):
        Ledger(tmp_path / "budget.db", filters.pure_dp(1.0), create=True)
    others[0].close()
    assert not os.listdir(tmp_path)


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
    yield made
    made.close()


forks = pytest.mark.filterwarnings("ignore:.*fork", "ignore:.*multi-threaded")


@forks
def test_what_a_fork_writes_after_its_parent_has_left_is_kept(store):
    """SQLite's locks are the parent's: a child that inherited a connection would write a log that is removed."""
    written(store, 1)
    here, there = os.pipe()

    def work():
        written(store, 2)
        os.read(here, 1)
        written(store, 3)

    def parent():
        store.close()  # the last to leave removes the log
        subprocess.run([sys.executable, "-c", LEAVES, store.path], check=True)
        os.write(there, b"x")

    timer = threading.Timer(0.5, parent)
    timer.start()
    assert in_child(work) == 0
    timer.join()
    assert seen(store.path) == [0, 1, 2, 3]
    written(store, 4)
    assert seen(store.path)[-1] == 4


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


def test_a_fork_that_python_does_not_know_of_is_refused(store, monkeypatch):
    written(store, 1)
    monkeypatch.setattr(_sqlite.os, "getpid", lambda: -1)
    for it in (store, SqliteStore(store.path, 60.0)):
        with pytest.raises(LedgerUnavailable, match="behind Python's back"):
            written(it, 2)


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


def test_ctrl_c_after_begin_leaves_no_lock_behind(store):
    written(store, 1)
    connection = store._connection
    store._connection = Interrupted(connection)
    with pytest.raises(KeyboardInterrupt):
        written(store, 2)
    store._connection = connection
    written(SqliteStore(store.path, 0.1), 2)


def test_a_call_from_within_a_call_leaves_the_first_one_whole(store):
    with store.transaction(write=True) as sql:
        with pytest.raises(LedgerUnavailable, match="in the middle of another call"):
            written(store, 1)
        _store.append(sql, 0, "body 1", "hash 1", "state", None)
    assert seen(store.path) == [0, 1]
