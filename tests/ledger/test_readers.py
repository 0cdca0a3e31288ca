"""Who may only read a ledger can verify it; and that a passer-by is told of it without a password."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from jaxacct import Ledger, filters
from jaxacct.ledger.errors import LedgerMissing, LedgerUnavailable
from tests.ledger.stores import in_schema, mounted, ran

NOBODY = 65534


@pytest.fixture
def place():
    """A ledger with a charge, below a folder that every user may enter."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="jaxacct-read-"))
    folder.chmod(0o755)
    (folder / "ledger").mkdir()
    with Ledger(folder / "ledger" / "team.db", filters.pure_dp(1.0), create=True) as ledger:
        assert ledger.request(0.25)
        ledger.verify()  # compiled, where the files of this user may be read
    yield folder / "ledger" / "team.db"
    (folder / "ledger").chmod(0o755)
    shutil.rmtree(folder)


@contextlib.contextmanager
def somebody_else():
    """Root may write everywhere; an auditor may not."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("lock", ["there", "gone", "theirs"])
def test_a_file_and_folder_that_may_only_be_read_are_verified(place, lock):
    if lock == "gone":
        os.unlink(f"{place}-lock")
    elif lock == "theirs" and os.geteuid() == 0:
        os.chmod(f"{place}-lock", 0o600)
    place.chmod(0o444)
    place.parent.chmod(0o555)
    with somebody_else():
        ledger = Ledger(place)
        head = ledger.verify().head
        assert ledger.verify(head).admitted == 1
        assert float(ledger.spent()) == pytest.approx(0.25)
        assert "epsilon" in str(ledger.reading())
        assert ledger.export()
        assert [entry.admitted for entry in ledger.history()] == [True]
        with pytest.raises(LedgerUnavailable, match=r"readonly|Permission denied"):
            ledger.request(0.25)
    assert sorted(os.listdir(place.parent))[0] == place.name
    place.parent.chmod(0o755)
    place.chmod(0o644)
    assert Ledger(place).head == head


def test_a_file_system_that_is_mounted_read_only_is_verified(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted("-t", "tmpfs", "tmpfs", disk):
        Ledger(disk / "team.db", filters.pure_dp(1.0), create=True).request(0.25)
        os.unlink(disk / "team.db-lock")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        ledger = Ledger(disk / "team.db")
        assert ledger.verify().admitted == 1
        with pytest.raises(LedgerUnavailable):
            ledger.request(0.25)
        assert ledger.backup(tmp_path / "copy.db").admitted == 1


def as_role(url, name):
    return url.replace("postgres@", f"{name}@")


def test_a_role_that_may_only_read_verifies_and_reads_reports(server):
    url = in_schema(server, "audited")
    ledger = Ledger(url, filters.pure_dp(1.0), create=True)
    ledger.request(0.25)
    ran(url, "CREATE ROLE auditor LOGIN", "GRANT USAGE ON SCHEMA audited TO auditor")
    ran(url, "GRANT SELECT ON ALL TABLES IN SCHEMA audited TO auditor")
    theirs = Ledger(as_role(url, "auditor"))
    assert theirs.verify(ledger.head).admitted == 1
    assert "epsilon" in str(theirs.reading())
    assert theirs.export() == ledger.export()
    with pytest.raises(LedgerUnavailable, match="permission denied"):
        theirs.request(0.25)
    assert ledger.verify().requests == 1


def test_a_role_that_does_not_see_the_ledger_gets_no_fresh_one(server):
    """Neither an own schema, nor a search path of the role or database, nor a missing right leads to another budget."""
    url = in_schema(server, "a_team")
    ledger = Ledger(url, filters.pure_dp(1.0), create=True)
    ledger.request(0.75)
    ran(url, "CREATE ROLE outsider LOGIN", "CREATE SCHEMA outsider AUTHORIZATION outsider")
    theirs = as_role(url, "outsider")
    for make in (False, True):
        with pytest.raises(LedgerUnavailable, match=r"may not use the schema.*GRANT USAGE ON SCHEMA a_team"):
            Ledger(theirs, filters.pure_dp(1.0), create=make)
    plain = as_role(server, "outsider")
    with pytest.raises(LedgerMissing, match=r"schema public.*holds no ledger.*the schemas .*a_team.* do"):
        Ledger(plain, filters.pure_dp(1.0))
    ran(url, "ALTER ROLE outsider SET search_path = outsider, a_team")
    with pytest.raises(LedgerMissing):
        Ledger(plain)
    for name in ("nowhere", "team,public", "$user"):
        with pytest.raises((LedgerMissing, ValueError), match=r"no such schema|must name one schema"):
            Ledger(f"{server}&options=-csearch_path%3D{name}", filters.pure_dp(1.0), create=True)
    ran(url, "GRANT USAGE ON SCHEMA a_team TO outsider")
    ran(url, "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA a_team TO outsider")
    # A table of the same name that comes first in somebody's path is not taken for the ledger's.
    ran(url, "CREATE TABLE outsider.jaxacct_head (id bigint, seq bigint, hash text, state text)")
    assert not Ledger(theirs).request(0.5)
    assert Ledger(theirs).request(0.25)
    assert ledger.verify().admitted == 2


PASSWORDS = (
    "postgresql://me:hunter2@localhost:1/x",
    "postgresql://localhost:1/x?user=me&password=hunter2",
    "postgresql://me@localhost:1/x?sslpassword=hunter2&sslmode=prefer",
    "postgresql://me@localhost:1/x?pasword=hunter2",
    "postgresql://me:hun/hunter2@localhost:1/x",
    "postgresql://me:hunter2@localhost:port/x",
    "postgresql://me@localhost:1/x?options=-csearch_path%3Da,b&password=hunter2",
    "postgresql://me:a@hunter2@localhost:1/x",
    "postgresql://me:12/hunter2@localhost:1/x",
    "postgresql+nothing://me:hunter2@localhost/x",
    "postgres://me:hunter2@localhost/x",
    "postgresql//me:hunter2@localhost/x",
)


@pytest.mark.parametrize("url", PASSWORDS)
def test_no_error_prints_a_password(url):
    pytest.importorskip("psycopg", reason="the extra jaxacct[ledger] is not installed")
    with pytest.raises((LedgerUnavailable, ValueError, ImportError)) as caught:
        Ledger(url, filters.pure_dp(1.0), create=True, timeout=0.1)
    problem = caught.value
    while problem is not None:
        assert "hunter2" not in f"{problem} {problem!r}"
        problem = None if problem.__suppress_context__ else problem.__cause__ or problem.__context__
