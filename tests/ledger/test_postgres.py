"""The same ledger on a real PostgreSQL server, which the test run starts (and on CI installs)."""

import contextlib
import gc
import glob
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

import pytest

from jaxacct import Gaussian, Ledger, filters
from jaxacct.cli import main
from jaxacct.ledger import (
    LedgerBusy,
    LedgerCorrupted,
    LedgerError,
    LedgerFull,
    LedgerMismatch,
    LedgerMissing,
    LedgerTampered,
    LedgerTooNew,
    LedgerUnavailable,
)
from tests.ledger.test_race import check_threads_race_for_the_last_of_a_budget, in_four_threads, raced


def _binaries():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    if found:
        return pathlib.Path(found[-1]).parent
    there = shutil.which("initdb")
    return pathlib.Path(there).parent if there else None


def _install():
    """Debian's package, where nobody's own machine is at stake."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"]):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def server():
    """The URL of an empty database on a socket of its own."""
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="the extra jaxacct[ledger] is not installed")
    pytest.importorskip("psycopg", reason="the extra jaxacct[ledger] is not installed")
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if _binaries() is None and root and os.environ.get("CI") and shutil.which("apt-get"):
        _install()
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server: install Debian's postgresql (on CI, as root, this test does)")
    user = {"user": "postgres"} if root else {}  # the server refuses to run as root
    # Not below pytest's own folder, which every session of pytest that starts closes to other users.
    folder = pathlib.Path(tempfile.mkdtemp(prefix="jaxacct-postgres-"))
    if root:
        folder.chmod(0o755)
        shutil.chown(folder, "postgres")

    def run(*command):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, **user)
        assert done.returncode == 0, done.stdout + done.stderr

    data = folder / "data"
    run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
    # No fsync: this server is not to outlive the test.
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c max_connections=40"
    run(binaries / "pg_ctl", "-D", data, "-o", options, "-l", folder / "log", "-w", "start")
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
    del sqlalchemy


def ran(url, *statements):
    import psycopg

    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement)


def in_schema(url, name):
    ran(url, f"CREATE SCHEMA {name}")
    return f"{url}&options=-csearch_path%3D{name}"


def test_a_ledger_on_a_server_keeps_every_promise(server):
    url = in_schema(server, "promises")
    with pytest.raises(LedgerMissing):
        Ledger(url)
    with pytest.raises(LedgerMissing):
        Ledger(url, filters.gdp(1.0), create=False)
    ledger = Ledger(url, filters.gdp(1.0), create=True)
    with pytest.raises(LedgerError, match="there already"):
        Ledger(url, filters.gdp(1.0), create=True)
    entry = ledger.charge(Gaussian(2.0), "first; :name %s 🙂")
    assert entry.admitted
    assert not ledger.request(Gaussian(0.5), "too dear")
    assert not ledger.request(math.nan)
    ledger.released(entry.id)
    with pytest.raises(ValueError, match="not released before"):
        ledger.released(entry.id)
    with pytest.raises(LedgerMismatch):
        Ledger(url, filters.gdp(2.0))
    again = Ledger(url)
    assert again.spent() == ledger.spent() == pytest.approx(0.5)
    assert [e.label for e in again.history()][:1] == ["first; :name %s 🙂"]
    report = again.verify()
    assert (report.requests, report.admitted, report.refused, report.released) == (3, 1, 2, 1)
    assert again.export() == ledger.export()
    # A file with the same history has the same state, bit for bit.
    assert again._chain.last.state.text == ledger._chain.last.state.text
    assert "postgres" in repr(again)

    # Tampering: the tables refuse it, and who gets past that is found.
    import psycopg

    for statement in (
        "UPDATE jaxacct_records SET body = ''",
        "DELETE FROM jaxacct_records",
        "TRUNCATE jaxacct_records",
    ):
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            ran(url, statement)
    ran(
        url,
        "ALTER TABLE jaxacct_records DISABLE TRIGGER USER",
        "UPDATE jaxacct_records SET body = replace(body, 'too dear', 'too cheap') WHERE seq = 2",
        "ALTER TABLE jaxacct_records ENABLE TRIGGER USER",
    )
    with pytest.raises(LedgerTampered, match="record 2"):
        Ledger(url).verify(report.head)
    ran(url, "UPDATE jaxacct_schema SET version = 3")
    with pytest.raises(LedgerTooNew):
        ledger.request(0.1)
    ran(url, "DROP TABLE jaxacct_head")
    ran(url, "UPDATE jaxacct_schema SET version = 2")
    with pytest.raises(LedgerCorrupted):
        Ledger(url)


def test_a_server_s_faults_have_names_and_cost_nothing(server):
    url = in_schema(server, "faults")
    ledger = Ledger(url, filters.pure_dp(1.0), timeout=0.3)
    ledger.request(0.25)
    import psycopg

    # Another session holds the lock.
    with psycopg.connect(url) as other:
        other.execute("SELECT id FROM jaxacct_head WHERE id = 1 FOR UPDATE")
        with pytest.raises(LedgerBusy):
            ledger.request(0.25)
        patient = Ledger(url, timeout=60.0)
        threading.Timer(0.3, other.rollback).start()
        assert patient.request(0.25)
    # A full disk, as the server reports it.
    ran(
        url,
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$",
        "CREATE TRIGGER no_room BEFORE INSERT ON jaxacct_records FOR EACH STATEMENT EXECUTE FUNCTION no_room()",
    )
    with pytest.raises(LedgerFull):
        ledger.request(0.25)
    ran(url, "DROP TRIGGER no_room ON jaxacct_records")
    assert ledger.spent() == pytest.approx(0.5)
    # A connection that was cut while nothing was under way is made anew.
    ran(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )
    assert ledger.request(0.25)
    assert ledger.verify().admitted == 3
    # No server.
    with pytest.raises(LedgerUnavailable) as found:
        Ledger("postgresql://me:secret@localhost:1/x", filters.pure_dp(1.0), timeout=2.0)
    assert "secret" not in str(found.value)


def test_a_server_that_was_set_back_is_found_by_whoever_was_there(server):
    """A copy of an earlier day, or a standby that had not seen the last charges."""
    url = in_schema(server, "restored")
    ledger = Ledger(url, filters.pure_dp(1.0))
    assert ledger.request(0.25)
    ran(url, "CREATE TABLE kept AS SELECT * FROM jaxacct_head")
    assert ledger.request(0.5)
    ran(
        url,
        "ALTER TABLE jaxacct_records DISABLE TRIGGER USER",
        "DELETE FROM jaxacct_records WHERE seq = 2",
        "ALTER TABLE jaxacct_records ENABLE TRIGGER USER",
        "DELETE FROM jaxacct_head",
        "INSERT INTO jaxacct_head SELECT * FROM kept",
    )
    with pytest.raises(LedgerTampered, match="no longer holds record 2"):
        ledger.request(0.5)
    assert Ledger(url).verify().admitted == 1  # nobody else can tell without a head


def test_a_rule_or_trigger_that_takes_charges_back_admits_nothing(server):
    url = in_schema(server, "planted")
    ledger = Ledger(url, filters.pure_dp(1.0))
    ran(url, "CREATE RULE mine AS ON UPDATE TO jaxacct_head DO INSTEAD NOTHING")
    with pytest.raises(LedgerTampered, match="did not keep record 1 as it was written"):
        ledger.request(0.5)
    ran(url, "DROP RULE mine ON jaxacct_head")
    assert ledger.verify().requests == 0


def test_verify_finds_a_lost_guard_and_whatever_else_acts_on_the_tables(server):
    url = in_schema(server, "guarded")
    ledger = Ledger(url, filters.pure_dp(1.0))
    ledger.request(0.5)
    function = "FUNCTION jaxacct_append_only() RETURNS trigger LANGUAGE plpgsql AS"
    refuses = f"{function} $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$"
    guard = "TRIGGER jaxacct_append_only BEFORE {} ON jaxacct_records FOR EACH STATEMENT EXECUTE FUNCTION {}()"
    whole = guard.format("UPDATE OR DELETE OR TRUNCATE", "jaxacct_append_only")
    drop = "DROP TRIGGER jaxacct_append_only ON jaxacct_records"
    for harm, mended in (
        (["ALTER TABLE jaxacct_records DISABLE TRIGGER USER"], ["ALTER TABLE jaxacct_records ENABLE TRIGGER USER"]),
        ([drop], [f"CREATE {whole}"]),
        ([drop, f"CREATE {guard.format('UPDATE OR DELETE', 'jaxacct_append_only')}"], [drop, f"CREATE {whole}"]),
        ([f"CREATE OR REPLACE {function} $$ BEGIN RETURN NULL; END $$"], [f"CREATE OR REPLACE {refuses}"]),
        (
            ["CREATE TRIGGER mine BEFORE INSERT ON jaxacct_head EXECUTE FUNCTION jaxacct_append_only()"],
            ["DROP TRIGGER mine ON jaxacct_head"],
        ),
        (
            ["CREATE RULE mine AS ON DELETE TO jaxacct_records DO INSTEAD NOTHING"],
            ["DROP RULE mine ON jaxacct_records"],
        ),
    ):
        ran(url, *harm)
        with pytest.raises(LedgerTampered, match="guard"):
            ledger.verify()
        ran(url, *mended)
        assert ledger.verify().admitted == 1


def test_a_database_s_own_defaults_change_nothing(server):
    url = in_schema(server, "defaults").replace(
        "options=", "options=-cdefault_transaction_isolation%3Drepeatable%5C%20read%20-csynchronous_commit%3Doff%20"
    )
    ledger = Ledger(url, filters.pure_dp(10.0))
    with ledger._store.transaction(write=True) as sql:
        assert sql("SHOW transaction_isolation") == [("read committed",)]
        assert sql("SHOW synchronous_commit") == [("on",)]


@pytest.mark.filterwarnings("ignore:.*fork", "ignore:.*multi-threaded")
def test_a_fork_has_a_connection_of_its_own_and_leaves_its_parent_s_alone(server):
    ledger = Ledger(in_schema(server, "forked"), filters.pure_dp(1.0))

    def backend():
        with ledger._store.transaction(write=True) as sql:
            return sql("SELECT pg_backend_pid()")[0][0]

    before = backend()
    child = os.fork()
    if child == 0:
        try:
            other = backend()
            gc.collect()
            os._exit(0 if other not in (before, None) else 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert backend() == before
    assert ledger.request(0.5)


def test_threads_that_share_one_object_charge_and_look(server):
    ledger = Ledger(in_schema(server, "shared"), filters.pure_dp(20.0))
    ledger.request(1.0)
    answers, faults = [], []

    def ask():
        try:
            for _ in range(10):
                ledger.spent()
                answers.append(ledger.request(1.0))
        except BaseException as problem:
            faults.append(problem)

    in_four_threads(ask)
    assert not faults
    assert (sum(answers), len(answers)) == (19, 40)


def test_connections_race_for_the_last_of_a_budget(server):
    check_threads_race_for_the_last_of_a_budget(in_schema(server, "connections"))


@pytest.mark.slow  # eight processes with a thousand requests each
def test_processes_race_on_a_server_at_full_size(server):
    run, _ = raced("--seed", "7", "--kills", "60", "--url", server)
    assert run["spent"] == run["budget"] == 8000


def test_a_connection_that_breaks_after_the_commit_gives_no_answer_and_leaves_the_charge(server, monkeypatch):
    import psycopg

    ledger = Ledger(in_schema(server, "broken"), filters.pure_dp(1.0))
    ledger.request(0.25)
    commit = psycopg.Connection.commit

    def broken(connection):
        commit(connection)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(psycopg.Connection, "commit", broken)
        with pytest.raises(LedgerUnavailable, match="closed the connection"):
            ledger.request(0.5)
    assert [entry.query for entry in ledger.outstanding()] == [0.25, 0.5]
    assert not ledger.request(0.5)


def test_a_password_is_printed_nowhere(server, capsys):
    url = in_schema(server, "shell").replace("postgres@", "postgres:secret@")
    for line in (["create", url, "pure_dp", "epsilon=1"], ["show", url], ["create", url, "pure_dp", "epsilon=1"]):
        with pytest.raises(SystemExit):
            main(["ledger", *line])
    captured = capsys.readouterr()
    assert "made postgresql" in captured.out
    assert "there already" in captured.err
    assert "secret" not in captured.out + captured.err


def test_urls_that_are_none_raise():
    pytest.importorskip("sqlalchemy", reason="the extra jaxacct[ledger] is not installed")
    for url in ("sqlite:///x.db", "mysql://x/y", "http://x", "://"):
        with pytest.raises(ValueError, match="path_or_url must"):
            Ledger(url, filters.pure_dp(1.0))


def test_without_the_extra_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"jaxacct\[ledger\]"):
        Ledger("postgresql://x/y", filters.pure_dp(1.0))
