"""What a ledger promises when nothing goes wrong."""

import contextlib
import dataclasses
import json
import sqlite3

import jax
import numpy as np
import pytest

from jaxacct import (
    GDP,
    Gaussian,
    Laplace,
    Ledger,
    PureDP,
    RandomizedResponse,
    RenyiDP,
    ZeroConcentratedDP,
    filters,
)
from jaxacct.ledger import canonical, register
from jaxacct.ledger import export as _export
from jaxacct.ledger.errors import LedgerCorrupted
from jaxacct.ledger.policy import Policy
from tests.contract.filter_cases import CASES


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


def test_json_export_is_stable_and_has_all_that_is_hashed(path):
    ledger = Ledger(path, filters.pure_dp(1.0), create=True)
    entry = ledger.charge(Laplace(2.0), "x")
    text = ledger.export()
    assert text == Ledger(path).export()
    last = json.loads(text)["records"][-1]
    digest = last.pop("hash")
    assert digest == entry.hash == canonical.digest("jaxacct ledger record\n" + canonical.dumps(last))


_MORE = {
    "odometer": (lambda: filters.odometer(filters.zcdp(0.5)), lambda: Gaussian(10.0)),
    "natural": (lambda: filters.natural(PureDP(1.0), [RandomizedResponse(0.6)], 2), lambda: 0),
}
# A residue filter holds functions, which a ledger refuses to write down.
_KEPT = [name for name in CASES if name != "residue"]
_HEAVY = [pytest.param(name, marks=pytest.mark.slow) if CASES[name].heavy else name for name in _KEPT]
every_filter = pytest.mark.parametrize("name", [*_HEAVY, *_MORE])


def made(name):
    make, small = _MORE[name] if name in _MORE else (CASES[name].make, lambda: CASES[name].small(1.0))
    return make(), small()


@every_filter
def test_every_filter_and_its_query_are_read_back_as_they_were(name):
    plain, query = made(name)
    policy = Policy.of(plain)
    for value, tree in ((plain, policy.identity), (query, canonical.encoded(query, "query"))):
        text = canonical.dumps(tree)
        back = canonical.decoded(canonical.loads(text))
        assert type(back) is type(value)
        assert canonical.dumps(canonical.encoded(back, "x")) == text
    assert Policy(policy.identity).start.digest == policy.start.digest
    assert policy.state(policy.start.text).digest == policy.start.digest


@pytest.mark.slow  # compiles every filter
@every_filter
def test_every_filter_decides_as_it_does_outside(name):
    plain, query = made(name)
    policy = Policy.of(plain)
    admitted, state = policy.decide(canonical.decoded(canonical.encoded(query, "query")), policy.start)
    with jax.enable_x64(True):
        found, after = plain.update(query, plain.init())
    assert admitted
    assert bool(found)
    assert policy.state(state.text).digest == state.digest
    for ours, theirs in zip(jax.tree.leaves(state.value), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@dataclasses.dataclass(frozen=True)
class OwnQuery:
    size: float
    name: str


def test_a_type_of_ones_own_is_written_down_once_it_is_registered():
    with pytest.raises(ValueError, match="query must be"):
        canonical.encoded(OwnQuery(1.5, "x"), "query")
    assert register(OwnQuery) is OwnQuery
    assert register(OwnQuery) is OwnQuery
    assert canonical.decoded(canonical.encoded(OwnQuery(1.5, "x"), "query")) == OwnQuery(1.5, "x")
    for bad, words in ((3, "a dataclass, got 3"), (type("Plain", (), {}), "a dataclass")):
        with pytest.raises(ValueError, match=f"cls must be {words}"):
            register(bad)
    for name in ("OwnQuery", "Gaussian"):
        with pytest.raises(ValueError, match=f"cls must have a name that is not taken, got {name}"):
            register(dataclasses.make_dataclass(name, ["size"]))


def test_numbers_are_exported_as_what_the_filter_takes_them_for():
    for filter, made in (
        (filters.gdp(1.0), GDP(0.5)),
        (filters.pure_dp(1.0), PureDP(0.5)),
        (filters.zcdp(1.0), ZeroConcentratedDP(0.5)),
        (filters.odometer(filters.zcdp(1.0)), ZeroConcentratedDP(0.5)),
        (filters.renyi(3.0, 1e-5, order=8.0), RenyiDP(8.0, 0.5)),
    ):
        assert repr(_export._mechanism(0.5, filter)) == repr(made)
    for filter in (filters.gdp(1.0), filters.zcdp(1.0), filters.odometer(filters.pure_dp(1.0))):
        assert repr(_export._mechanism(0.0, filter)) == repr(PureDP(0.0))
    query = GDP(2.0)
    assert _export._mechanism(query, filters.pure_dp(1.0)) is query
    with pytest.raises(ValueError, match="dp_events must be of mechanisms, got the number"):
        _export._mechanism(0.5, filters.approximate_gdp(1.0))
    with pytest.raises(ValueError, match="dp_events must be of mechanisms, got the numbers"):
        _export._mechanism((0.5, 1e-6), filters.approximate_zcdp(1.0, 1e-5))


def test_a_ledger_of_an_older_schema_is_refused(path):
    Ledger(path, filters.gdp(1.0), create=True).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE jaxacct_schema SET version = 1")
        connection.commit()
    with pytest.raises(LedgerCorrupted, match="has schema 1, which no release had"):
        Ledger(path)
