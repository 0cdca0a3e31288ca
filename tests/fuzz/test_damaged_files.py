"""Damaged files: what was written, or an error with a name. verification/fuzzing does this at length, by coverage."""

from __future__ import annotations

import os
import shutil
import sqlite3

import numpy as np
import pytest

from jaxacct import Ledger, filters, training
from jaxacct.ledger.errors import LedgerError
from tests.fuzz.common import at_most


@pytest.fixture(scope="module")
def ledger_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("ledger") / "budget.db"
    with Ledger(path, filters.pure_dp(1.0), create=True) as ledger:
        for cost in (0.25, 0.5, 0.75):
            ledger.request(cost, "a label")
        ledger.released(1)
        return path, ledger.verify().head, ledger.history(), float(ledger.spent())


def read_after(path, offset, byte, raw):
    """One byte of the file is another one: it reads as it did, or a `LedgerError` says that it does not."""
    path, head, history, spent = path
    damaged = bytearray(raw)
    if damaged[offset] == byte:
        return False
    damaged[offset] = byte
    copy = path.with_name("damaged.db")
    for end in ("-journal", "-wal", "-shm"):
        copy.with_name(copy.name + end).unlink(missing_ok=True)
    copy.write_bytes(bytes(damaged))
    try:
        with Ledger(copy, create=False, timeout=0.5) as ledger:
            report = ledger.verify(head)
            found, now = ledger.history(), float(ledger.spent())
    except LedgerError:
        return True
    assert report.head == head
    assert [(e.id, e.label, e.admitted) for e in found] == [(e.id, e.label, e.admitted) for e in history]
    assert now == spent
    return False


def test_a_flipped_byte_in_a_ledger_is_harmless_or_an_error_with_a_name(ledger_file):
    raw = ledger_file[0].read_bytes()
    dice = np.random.default_rng(3)
    errors = sum(
        read_after(ledger_file, int(offset), int(byte), raw)
        for offset, byte in zip(dice.integers(len(raw), size=60), dice.integers(256, size=60), strict=True)
    )
    # Where the records themselves are, every byte counts.
    start = raw.index(b'{"at":')
    assert all(read_after(ledger_file, start + n, raw[start + n] ^ 1, raw) for n in range(0, 100, 10))
    assert errors > 0


def test_a_ledger_of_blobs_is_an_error_with_a_name(tmp_path):
    path = tmp_path / "blobs.db"
    Ledger(path, filters.pure_dp(1.0), create=True).close()
    for column, table in (
        ("body", "records"),
        ("hash", "records"),
        ("state", "head"),
        ("seq", "head"),
        ("hash", "head"),
    ):
        for value in ("x'00ff'", "1", "'x'", "1e300", "CAST(x'ff' AS TEXT)"):
            copy = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
            shutil.copy(path, copy)
            connection = sqlite3.connect(copy)
            connection.execute("DROP TRIGGER jaxacct_no_UPDATE")
            connection.execute(f"UPDATE jaxacct_{table} SET {column} = {value}")
            connection.commit()
            connection.close()
            with pytest.raises(LedgerError):
                Ledger(copy).verify()


KINDS = ("pipe", "folder", "loop", "device")


def special(path, kind):
    """Puts something at ``path`` that is no regular file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "loop" else "/dev/zero")


def a_ledger(path):
    with Ledger(path, create=False, timeout=0.5) as ledger:
        ledger.verify()


def beside(end):
    def read(path):
        """What lies where SQLite keeps its journal or log, or the ledger its lock."""
        home = path.with_name("whole.db")
        Ledger(home, filters.pure_dp(1.0), create=True).close()
        home.with_name("whole.db-lock").unlink()
        path.rename(home.with_name(f"whole.db{end}"))
        a_ledger(home)

    return read


READERS = {
    "a ledger": a_ledger,
    "a ledger's journal": beside("-journal"),
    "a ledger's log": beside("-wal"),
    "a ledger's lock": beside("-lock"),
    "a journal": training.Journal,
    "adult": lambda path: training.demo.load_data("adult", path.parent),
    "mnist": lambda path: training.demo.load_data("mnist", path.parent),
}
NAMES = {"adult": "adult.data.gz", "mnist": "t10k-images-idx3-ubyte.gz"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without pipes in its folders")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(reader, kind, tmp_path):
    path = tmp_path / NAMES.get(reader, "file")
    special(path, kind)
    with at_most(20), pytest.raises((ValueError, OSError, LedgerError)) as caught:
        READERS[reader](path)
    # Whatever it is, the message says where; links may have been followed.
    assert any(place in str(caught.value) for place in (tmp_path.name, os.path.realpath(path)))


@pytest.mark.parametrize("value", [None, 3, "", "a\0b", [], object()])
def test_a_path_that_is_none_is_named(value):
    for read in (training.Journal, lambda path: training.demo.load_data("adult", path or "")):
        with pytest.raises(ValueError, match="path must"):
            read(value)
