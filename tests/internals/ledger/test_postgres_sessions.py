"""Sessions on a PostgreSQL server: their settings, and whose they are."""

import gc
import os

import pytest

from jaxacct import Ledger, filters
from tests.ledger.stores import in_schema


def test_a_database_s_own_defaults_change_nothing(server):
    url = in_schema(server, "defaults").replace(
        "options=", "options=-cdefault_transaction_isolation%3Drepeatable%5C%20read%20-csynchronous_commit%3Doff%20"
    )
    ledger = Ledger(url, filters.pure_dp(10.0), create=True)
    with ledger._store.transaction(write=True) as sql:
        assert sql("SHOW transaction_isolation") == [("read committed",)]
        assert sql("SHOW synchronous_commit") == [("on",)]


@pytest.mark.filterwarnings("ignore:.*fork", "ignore:.*multi-threaded")
def test_a_fork_has_a_connection_of_its_own_and_leaves_its_parent_s_alone(server):
    ledger = Ledger(in_schema(server, "forked"), filters.pure_dp(1.0), create=True)

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
