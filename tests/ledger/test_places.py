"""Where a ledger lies: what is charged must be where every other process looks for it."""

import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger.errors import LedgerBusy, LedgerMissing, LedgerTampered, LedgerUnavailable
from tests.ledger.stores import a_quarter_spent, mounted


@pytest.fixture
def path(tmp_path):
    return a_quarter_spent(tmp_path)


def test_a_file_with_two_names_is_refused_under_both(path):
    ledger = Ledger(path)
    os.link(path, path.with_name("second.db"))
    for use in (lambda: Ledger(path), lambda: Ledger(path.with_name("second.db")), lambda: ledger.request(0.25)):
        with pytest.raises(LedgerUnavailable, match=r"has 2 names \(hard links\)"):
            use()
    path.with_name("second.db").unlink()
    assert ledger.request(0.25)
    assert Ledger(path).spent() == pytest.approx(0.5)


def test_a_name_that_a_killed_creator_left_is_tidied_away(path):
    left = path.with_name(f"{path.name}.0123456789abcdef.part")
    os.link(path, left)
    path.with_name(f"{path.name}.fedcba9876543210.part").write_bytes(b"another's")
    assert Ledger(path).request(0.25)
    assert not left.exists()
    assert path.with_name(f"{path.name}.fedcba9876543210.part").exists()


def test_a_symbolic_link_is_the_file_that_it_leads_to(path, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path)
    one, two = Ledger(path), Ledger(link)
    assert [bool(one.request(0.5)), bool(two.request(0.5))] == [True, False]
    assert os.listdir(link.parent) == ["link.db"]


def test_a_file_that_is_mounted_alone_is_refused(path, tmp_path):
    place = tmp_path / "a b"
    place.write_bytes(b"")
    with mounted("--bind", path, place):
        with pytest.raises(LedgerUnavailable, match="mounted as a single file"):
            Ledger(place)
        assert Ledger(path).request(0.25)


@pytest.mark.parametrize(
    "name", ["file:x.db?nolock=1", "file:x.db?mode=memory", "file::memory:", "a?b#c%41.db", "a\nb"]
)
def test_a_path_is_a_path_whatever_it_looks_like(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with Ledger(name, filters.pure_dp(1.0), create=True) as ledger:
        assert ledger.request(0.75)
    assert sorted(os.listdir(tmp_path)) == [name, f"{name}-lock"]
    assert not Ledger(tmp_path / name).request(0.75)


def test_a_relative_path_stays_the_one_it_was(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("budget.db", filters.pure_dp(1.0), create=True)
    Ledger("there/budget.db", filters.pure_dp(1.0), create=True).close()
    assert ledger.request(0.75)
    ledger.close()
    monkeypatch.chdir(tmp_path / "there")
    assert not ledger.request(0.75)
    assert Ledger("budget.db").spent() == 0
    shutil.rmtree(tmp_path / "there")
    with pytest.raises(LedgerUnavailable, match=r"budget\.db"):
        Ledger("budget.db", filters.pure_dp(1.0), create=True)


@pytest.mark.parametrize("when", ["before the file", "over the file"])
def test_what_is_charged_is_read_from_the_file_that_has_the_name_now(path, when):
    """A ledger that is open keeps nothing: neither a moved file nor one that was written over is charged by mistake."""
    shutil.copy(path, path.with_name("yesterday.db"))
    ledger = Ledger(path)
    assert ledger.request(0.5)
    if when == "before the file":
        path.with_name("yesterday.db").replace(path)
    else:
        shutil.copyfile(path.with_name("yesterday.db"), path)
    for use in (lambda: ledger.request(0.5), ledger.spent, ledger.verify, lambda: ledger.backup(f"{path}.copy")):
        with pytest.raises(LedgerTampered, match="no longer holds record 2 as it was a moment ago"):
            use()


def test_nothing_but_an_empty_lock_lies_beside_the_file_and_its_loss_costs_nothing(path):
    ledger = Ledger(path)
    assert ledger.request(0.25)
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}-lock"]
    assert pathlib.Path(f"{path}-lock").stat().st_size == 0
    os.unlink(f"{path}-lock")
    assert ledger.request(0.25)
    assert Ledger(path).spent() == pytest.approx(0.75)


def test_a_file_that_another_program_put_into_wal_mode_is_read_and_put_back(path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("CREATE TABLE theirs (x)")
    assert pathlib.Path(f"{path}-wal").stat().st_size > 0
    with pytest.raises(LedgerBusy):
        Ledger(path, timeout=0.1)
    other.close()
    assert Ledger(path).request(0.25)
    assert not pathlib.Path(f"{path}-wal").exists()
    assert Ledger(path).verify().admitted == 2


def test_a_ledger_may_be_removed_and_made_anew_in_one_program(path):
    ledger = Ledger(path)
    ledger.request(0.25)
    path.unlink()
    with pytest.raises(LedgerMissing):
        ledger.spent()
    again = Ledger(path, filters.pure_dp(1.0), create=True)
    assert again.request(1.0)
    with pytest.raises(LedgerTampered):
        ledger.spent()
    assert again.verify().admitted == 1


@pytest.mark.slow  # a program of its own
def test_a_program_that_never_closes_its_ledger_ends_in_silence(path):
    code = "import sys; from jaxacct import Ledger; ledger = Ledger(sys.argv[1]); print(float(ledger.spent()))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, path], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(0.25)
    assert not done.stderr
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}-lock"]
