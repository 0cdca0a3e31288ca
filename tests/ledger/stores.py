"""Where ledgers are kept, as tests ask for them: a file, and a PostgreSQL server (started here, on CI installed)."""

import contextlib
import glob
import itertools
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile

import pytest

from jaxacct import Ledger, filters


def _binaries():
    found = [shutil.which("initdb") or "", *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))]
    return pathlib.Path(found[-1]).parent if found[-1] else None


def _install():
    """Debian's package, where nobody's own machine is at stake."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"]):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)


@pytest.fixture(scope="session")
def server():
    """The URL of an empty database on a socket of its own."""
    pytest.importorskip("sqlalchemy", reason="the extra jaxacct[ledger] is not installed")
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


@contextlib.contextmanager
def mounted(*arguments):
    """What ``mount`` mounts at the last of its arguments, where that is allowed."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("mounting takes root")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no mounting: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", arguments[-1]], check=True)


def ran(url, *statements):
    import psycopg

    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement)


def in_schema(url, name):
    ran(url, f"CREATE SCHEMA {name}")
    return f"{url}&options=-csearch_path%3D{name}"


class File:
    """A ledger in a file."""

    refused = sqlite3.IntegrityError

    def __init__(self, folder):
        self.place = folder / "budget.db"

    def run(self, *statements):
        with contextlib.closing(sqlite3.connect(self.place)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    @contextlib.contextmanager
    def unguarded(self):
        """For who gets past the guards, and puts them back."""
        with contextlib.closing(sqlite3.connect(self.place)) as connection:
            found = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            guards = connection.execute(found).fetchall()
        self.run(*(f"DROP TRIGGER {name}" for name, _ in guards))
        yield
        self.run(*(sql for _, sql in guards))

    def takes_charges_back(self):
        self.run(
            "CREATE TABLE kept AS SELECT * FROM jaxacct_head",
            "DROP TRIGGER jaxacct_no_DELETE",
            "CREATE TRIGGER mine AFTER UPDATE ON jaxacct_head BEGIN "
            "DELETE FROM jaxacct_records WHERE seq = NEW.seq; "
            "INSERT OR REPLACE INTO jaxacct_head SELECT * FROM kept; END",
        )

    @contextlib.contextmanager
    def locked(self):
        """Another session holds the lock that writers wait for; the value lets it go."""
        other = sqlite3.connect(self.place, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        try:
            yield lambda: other.execute("ROLLBACK")
        finally:
            other.close()


_NUMBER = itertools.count()


class Server:
    """A ledger on a server, in a schema of its own."""

    def __init__(self, url, name):
        import psycopg

        self.refused = psycopg.errors.RaiseException
        self.place = in_schema(url, name)

    def run(self, *statements):
        ran(self.place, *statements)

    @contextlib.contextmanager
    def unguarded(self):
        self.run("ALTER TABLE jaxacct_records DISABLE TRIGGER USER")
        yield
        self.run("ALTER TABLE jaxacct_records ENABLE TRIGGER USER")

    def takes_charges_back(self):
        self.run("CREATE RULE mine AS ON UPDATE TO jaxacct_head DO INSTEAD NOTHING")

    @contextlib.contextmanager
    def locked(self):
        import psycopg

        with psycopg.connect(self.place) as other:
            other.execute("SELECT id FROM jaxacct_head WHERE id = 1 FOR UPDATE")
            yield other.rollback


@pytest.fixture(params=["a file", "PostgreSQL"])
def store(request, tmp_path):
    """One of the stores, empty."""
    if request.param == "a file":
        return File(tmp_path)
    return Server(request.getfixturevalue("server"), f"contract_{next(_NUMBER)}")


@pytest.fixture
def path(tmp_path):
    """A file with a ledger of six charges of 0.5 out of 10, one refusal and one release."""
    from jaxacct import Ledger, filters

    with Ledger(tmp_path / "budget.db", filters.pure_dp(10.0), create=True) as ledger:
        for label in "abcdef":
            ledger.request(0.5, label)
        ledger.request(20.0, "refused")
        ledger.released(1)
    return tmp_path / "budget.db"


def altered(path, *statements):
    """Runs SQL on the file as somebody with an editor would, who puts the guards back."""
    store = File(path.parent)
    before = contents(path)
    with store.unguarded():
        store.run(*statements)
    assert contents(path) != before


def contents(path):
    """All that the file says, as SQL."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def a_quarter_spent(folder):
    """The file of a ledger in ``folder`` with 0.25 of 1 spent."""
    with Ledger(folder / "budget.db", filters.pure_dp(1.0), create=True) as ledger:
        ledger.request(0.25)
    return folder / "budget.db"
