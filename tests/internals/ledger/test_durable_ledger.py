"""What a ledger promises when nothing goes wrong."""

import dataclasses

import pytest

from jaxacct import (
    Gaussian,
    PureDP,
    RandomizedResponse,
    filters,
)
from jaxacct.ledger import canonical, register
from jaxacct.ledger.policy import Policy
from tests.contract.filter_cases import CASES

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
