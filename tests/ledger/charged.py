"""A ledger with charges in it, for tests that damage it."""

import contextlib
import sqlite3

import pytest

from jaxacct import Ledger, filters
from tests.ledger.stores import File


@pytest.fixture
def path(tmp_path):
    """A ledger of six charges of 0.5 out of 10, one refusal and one release."""
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
