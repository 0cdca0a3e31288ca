"""What every certificate promises: it agrees with the engine's bounds, is read back, and does not hold once changed."""

from __future__ import annotations

import json

import numpy as np
import pytest

import jaxacct
from tests.contract.mechanism_cases import CASES

pytest.importorskip("flint", reason="certificates need python-flint")
pytestmark = pytest.mark.filterwarnings("ignore:.*are wide:RuntimeWarning")
CERTIFIED = [(name, relation) for name, case in CASES.items() if case.certified for relation in case.relations]


def changed(found, **answer):
    held = json.loads(found.to_json())
    held["answer"] |= answer
    return jaxacct.certificates.read_certificate(json.dumps(held))


@pytest.mark.parametrize(("name", "relation"), CERTIFIED)
def test_it_agrees_with_the_engine_and_holds_until_it_is_changed(name: str, relation: str) -> None:
    made = CASES[name].make(0.8)
    found = jaxacct.certify(made, epsilon=0.5, relation=relation, digits=8)
    bounds = jaxacct.delta(made, 0.5, relation=relation)
    assert found.encloses(float(bounds.lower), float(bounds.upper))
    assert found.relation == relation
    again = jaxacct.certificates.read_certificate(found.to_json())
    assert again.to_json() == found.to_json()
    assert again.check()
    if float(found.upper) > 0:
        assert not changed(found, upper=f"{0.99 * float(found.lower):.12f}").check()
        assert not changed(found, lower=f"{1.01 * float(found.upper):.12f}").check()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.certified])
def test_its_epsilon_is_the_engines(name: str) -> None:
    made = CASES[name].make(0.8)
    found, bounds = jaxacct.certify(made, delta=1e-3, digits=8), jaxacct.epsilon(made, 1e-3)
    assert float(found.lower) <= bounds.upper * (1 + 1e-9)
    assert bounds.lower <= np.nextafter(float(found.upper), np.inf)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.certified])
def test_a_mechanism_without_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"closed form for a certificate, got {name}; .* Composed have one"):
        jaxacct.certify(CASES[name].make(0.75), epsilon=0.5)
