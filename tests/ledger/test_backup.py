"""Copies of a ledger: whole, verified, and in nobody's place."""

import os
import threading

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger.errors import LedgerError, LedgerMissing, LedgerTampered
from tests.ledger.stores import File


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "team.db", filters.pure_dp(1.0), create=True)
    assert ledger.request(0.25, "first")
    return ledger


def test_a_copy_is_a_ledger_of_its_own_with_the_same_head(ledger, tmp_path):
    os.chmod(tmp_path / "team.db", 0o640)
    (tmp_path / "kept").mkdir()
    found = ledger.backup(tmp_path / "kept" / "copy.db")
    assert found.head == ledger.head
    assert os.listdir(tmp_path / "kept") == ["copy.db"]
    assert os.stat(tmp_path / "kept" / "copy.db").st_mode & 0o777 == 0o640
    assert ledger.request(0.5)
    copy = Ledger(tmp_path / "kept" / "copy.db")
    assert copy.head == found.head
    assert copy.export() != ledger.export()
    with pytest.raises(LedgerTampered, match="ends at record 1, and the head names record 2"):
        copy.verify(ledger.head)


@pytest.mark.parametrize("end", ["", "-journal", "-wal", "-shm", "-lock"])
def test_nothing_is_overwritten(ledger, tmp_path, end):
    there = tmp_path / f"copy.db{end}"
    there.write_bytes(b"mine")
    with pytest.raises(ValueError, match="target must be the path of a new file"):
        ledger.backup(tmp_path / "copy.db")
    assert there.read_bytes() == b"mine"
    with pytest.raises(ValueError, match="target must be the path of a new file"):
        ledger.backup(tmp_path / "team.db")
    for wrong in (None, 3, "", "a\0", "postgresql://me:secret@x/y"):
        with pytest.raises(ValueError, match="target must") as caught:
            ledger.backup(wrong)
        assert "secret" not in str(caught.value)
    assert ledger.verify().admitted == 1


def test_a_ledger_that_does_not_verify_gets_no_copy(ledger, tmp_path):
    store = File(tmp_path)
    store.place = tmp_path / "team.db"
    assert ledger.request(0.5)
    with store.unguarded():
        store.run("UPDATE jaxacct_records SET body = replace(body, 'first', 'worst') WHERE seq = 1")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(LedgerTampered):
        ledger.backup(tmp_path / "copy.db")
    with pytest.raises(LedgerError):
        ledger.backup(tmp_path / "no" / "copy.db")
    assert sorted(os.listdir(tmp_path)) == before
    (tmp_path / "team.db").unlink()
    with pytest.raises(LedgerMissing):
        ledger.backup(tmp_path / "copy.db")


def test_copies_are_made_while_others_charge(tmp_path):
    place = tmp_path / "team.db"
    Ledger(place, filters.pure_dp(30.0), create=True).close()
    answers = []

    def charge():
        ledger = Ledger(place)
        answers.extend(ledger.request(1.0) for _ in range(20))

    threads = [threading.Thread(target=charge) for _ in range(2)]
    for thread in threads:
        thread.start()
    heads = [Ledger(place).backup(tmp_path / f"copy {number}.db").head for number in range(4)]
    for thread in threads:
        thread.join()
    assert (sum(answer.admitted for answer in answers), len(answers)) == (30, 40)
    ledger = Ledger(place)
    for head in heads:
        assert ledger.verify(head).admitted == 30
