"""The same ledger on a real PostgreSQL server, which the test run starts (and on CI installs)."""

import pytest

from jaxacct import Ledger, filters
from jaxacct.cli import main
from jaxacct.ledger.errors import LedgerFull, LedgerTampered, LedgerUnavailable
from tests.ledger.stores import in_schema, ran
from tests.ledger.test_race import raced


def test_a_server_s_faults_have_names_and_cost_nothing(server):
    url = in_schema(server, "faults")
    ledger = Ledger(url, filters.pure_dp(1.0), timeout=0.3, create=True)
    ledger.request(0.25)
    assert ledger.request(0.25)
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
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )
    assert ledger.request(0.25)
    assert ledger.verify().admitted == 3
    # No server.
    with pytest.raises(LedgerUnavailable) as found:
        Ledger("postgresql://me:secret@localhost:1/x", filters.pure_dp(1.0), timeout=2.0, create=True)
    assert "secret" not in str(found.value)


def test_verify_finds_a_lost_guard_and_whatever_else_acts_on_the_tables(server):
    url = in_schema(server, "guarded")
    ledger = Ledger(url, filters.pure_dp(1.0), create=True)
    ledger.request(0.5)
    function = "FUNCTION jaxacct_append_only() RETURNS trigger LANGUAGE plpgsql AS"
    refuses = f"{function} $$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$"
    guard = "TRIGGER jaxacct_append_only BEFORE {} ON jaxacct_records FOR EACH STATEMENT EXECUTE FUNCTION {}()"
    whole = guard.format("UPDATE OR DELETE OR TRUNCATE", "jaxacct_append_only")
    mine, rule = "TRIGGER mine BEFORE INSERT ON jaxacct_head", "RULE mine AS ON DELETE TO jaxacct_records"
    drop = "DROP TRIGGER jaxacct_append_only ON jaxacct_records"
    for harm, mended in (
        (["ALTER TABLE jaxacct_records DISABLE TRIGGER USER"], ["ALTER TABLE jaxacct_records ENABLE TRIGGER USER"]),
        ([drop], [f"CREATE {whole}"]),
        ([drop, f"CREATE {guard.format('UPDATE OR DELETE', 'jaxacct_append_only')}"], [drop, f"CREATE {whole}"]),
        ([f"CREATE OR REPLACE {function} $$ BEGIN RETURN NULL; END $$"], [f"CREATE OR REPLACE {refuses}"]),
        ([f"CREATE {mine} EXECUTE FUNCTION jaxacct_append_only()"], ["DROP TRIGGER mine ON jaxacct_head"]),
        ([f"CREATE {rule} DO INSTEAD NOTHING"], ["DROP RULE mine ON jaxacct_records"]),
    ):
        ran(url, *harm)
        with pytest.raises(LedgerTampered, match="guard"):
            ledger.verify()
        ran(url, *mended)
        assert ledger.verify().admitted == 1


@pytest.mark.slow  # eight processes with a thousand requests each
def test_processes_race_on_a_server_at_full_size(server):
    run, _ = raced("--seed", "7", "--kills", "60", "--url", server)
    assert run["spent"] == run["budget"] == 8000


def test_a_connection_that_breaks_after_the_commit_gives_no_answer_and_leaves_the_charge(server, monkeypatch):
    import psycopg

    ledger = Ledger(in_schema(server, "broken"), filters.pure_dp(1.0), create=True)
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
