"""Where a ledger lies: what is charged must be where every other process looks for it."""

import os
import pathlib
import shutil
import subprocess
import sys

import jax
import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger import LedgerCorrupted, LedgerTampered, LedgerUnavailable

# The last other process to leave: it moves the log into the file and removes it, unless somebody holds a lock.
LEAVES = (
    "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
    "print(*c.execute('SELECT MAX(seq) FROM jaxacct_records').fetchone()); c.close()"
)


@pytest.fixture
def path(tmp_path):
    """A ledger with 0.25 of 1 spent."""
    with Ledger(tmp_path / "budget.db", filters.pure_dp(1.0)) as ledger:
        ledger.request(0.25)
    return tmp_path / "budget.db"


def test_a_file_with_two_names_is_refused_under_both(path):
    ledger = Ledger(path)
    os.link(path, path.with_name("second.db"))
    for name in (path.name, "second.db"):
        with pytest.raises(LedgerUnavailable, match=r"has 2 names \(hard links\)"):
            Ledger(path.with_name(name))
    assert ledger.request(0.25)  # where the log is
    path.with_name("second.db").unlink()
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
    assert [one.request(0.5), two.request(0.5)] == [True, False]
    assert os.listdir(link.parent) == ["link.db"]


def test_a_file_that_is_mounted_alone_is_refused(path, tmp_path):
    place = tmp_path / "a b"
    place.write_bytes(b"")
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting takes root")
    done = subprocess.run(["mount", "--bind", path, place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no mounting of a file: {done.stderr.decode().strip()}")
    try:
        with pytest.raises(LedgerUnavailable, match="mounted as a single file"):
            Ledger(place)
        assert Ledger(path).request(0.25)
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize(
    "name", ["file:x.db?nolock=1", "file:x.db?mode=memory", "file::memory:", "a?b#c%41.db", "a\nb"]
)
def test_a_path_is_a_path_whatever_it_looks_like(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with Ledger(name, filters.pure_dp(1.0)) as ledger:
        assert ledger.request(0.75)
    assert os.listdir(tmp_path) == [name]
    assert not Ledger(tmp_path / name).request(0.75)


def test_a_relative_path_stays_the_one_it_was(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger("budget.db", filters.pure_dp(1.0))
    Ledger("there/budget.db", filters.pure_dp(1.0)).close()
    assert ledger.request(0.75)
    ledger.close()
    monkeypatch.chdir(tmp_path / "there")
    assert not ledger.request(0.75)
    assert Ledger("budget.db").spent() == 0


def test_a_folder_that_is_gone_is_named(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(LedgerUnavailable, match=r"budget\.db"):
        Ledger("budget.db", filters.pure_dp(1.0))


def test_a_log_that_is_not_the_one_others_write_is_charged_no_more(path):
    """A plain copy made by the process itself drops its locks: the next process to leave takes the log away."""
    ledger = Ledger(path)
    assert ledger.request(0.25)
    shutil.copy(path, path.with_name("copy.db"))
    subprocess.run([sys.executable, "-c", LEAVES, path], check=True)
    assert not pathlib.Path(f"{path}-wal").exists()
    with pytest.raises(LedgerUnavailable, match="nothing was charged, do not release"):
        ledger.request(0.5)
    ledger.close()
    with pytest.raises(LedgerUnavailable):  # here SQLite would go on with the index of the log that is gone
        Ledger(path)
    done = subprocess.run([sys.executable, "-c", LEAVES, path], capture_output=True, check=True)
    assert done.stdout.split() == [b"2"]


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_log_or_index_that_was_removed_while_open_is_found(path, end):
    ledger = Ledger(path)
    assert ledger.request(0.25)
    os.unlink(f"{path}{end}")
    for use in (lambda: ledger.request(0.25), ledger.spent, ledger.verify):
        with pytest.raises(LedgerUnavailable, match="its log removed"):
            use()


def test_an_older_copy_put_in_the_place_of_an_open_ledger_is_found(path):
    shutil.copy(path, path.with_name("yesterday.db"))
    ledger = Ledger(path)
    assert ledger.request(0.5)
    path.with_name("yesterday.db").replace(path)
    with pytest.raises(LedgerUnavailable, match="moved or exchanged"):
        ledger.request(0.5)
    for end in ("-wal", "-shm"):
        pathlib.Path(f"{path}{end}").unlink(missing_ok=True)
    with pytest.raises(LedgerTampered, match="no longer holds record 2 as it was a moment ago"):
        ledger.request(0.5)


def test_a_ledger_may_be_removed_and_made_anew_in_one_program(path):
    ledger = Ledger(path)
    ledger.request(0.25)
    for end in ("", "-wal", "-shm"):
        os.unlink(f"{path}{end}")
    again = Ledger(path, filters.pure_dp(1.0))
    assert again.request(1.0)
    with pytest.raises(LedgerUnavailable):
        ledger.spent()
    with pytest.raises(LedgerTampered):
        ledger.spent()
    assert again.verify().admitted == 1


@pytest.mark.slow  # a program of its own
def test_a_program_that_never_closes_its_ledger_ends_in_silence(path):
    code = "import sys; from jaxacct import Ledger; ledger = Ledger(sys.argv[1]); print(float(ledger.spent()))"
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-W", "ignore", "-c", code, path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(0.25)
    assert not done.stderr
    assert os.listdir(path.parent) == [path.name]  # and the log is in the file


def test_a_program_s_own_settings_change_no_bit(path):
    ledger = Ledger(path)
    with jax.disable_jit(), jax.numpy_dtype_promotion("strict"):
        assert ledger.request(0.1)
    with jax.default_device(jax.devices("cpu")[0]):
        assert ledger.verify().admitted == 2
    assert Ledger(path).verify().admitted == 2  # decides every request again, bit for bit


def test_a_file_whose_log_alone_is_left_is_no_new_ledger(path):
    ledger = Ledger(path)
    ledger.request(0.1)
    path.unlink()
    with pytest.raises(LedgerCorrupted, match="write-ahead log is still there"):
        Ledger(path, filters.pure_dp(1.0), create=True)
