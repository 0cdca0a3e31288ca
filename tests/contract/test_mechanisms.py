"""What every mechanism promises, whatever its engine."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import delta, epsilon, mechanisms
from tests.contract.mechanism_cases import CASES

every_mechanism = pytest.mark.parametrize("name", CASES)
pytestmark = pytest.mark.filterwarnings("ignore:.*are wide:RuntimeWarning")
AT, TARGET = np.array([0.2, 0.7]), 1e-3


def agree(first, second, room=1e-9):
    """Two brackets of one truth, of which compiled formulas may make the wider one."""
    assert np.all(first.lower <= second.upper * (1 + room) + 1e-15)
    assert np.all(second.lower <= first.upper * (1 + room) + 1e-15)


def test_every_public_mechanism_has_a_case() -> None:
    assert {*mechanisms.__all__, "PrivateSelection"} == set(CASES)


@every_mechanism
def test_more_runs_and_a_smaller_epsilon_never_cost_less_in_any_relation(name: str) -> None:
    case, found = CASES[name], {}
    for relation in case.relations:
        found[relation] = one = delta(case.make(0.8), AT, steps=np.array([[1], [4]]), relation=relation)
        assert np.all((one.lower >= 0) & (one.lower <= one.upper) & (one.upper <= 1))
        assert np.all(one.lower[0] <= one.upper[1])
        assert np.all(one.lower[:, 1] <= one.upper[:, 0])
    add, remove = found["add"], found["remove"]
    worse = jaxacct.Bounds(np.maximum(add.lower, remove.lower), np.maximum(add.upper, remove.upper))
    agree(found["add_or_remove"], worse)


@every_mechanism
def test_epsilon_is_the_inverse_of_delta(name: str) -> None:
    made = CASES[name].make(0.8)
    found = epsilon(made, TARGET, steps=2)
    assert 0 <= found.lower <= found.upper
    if np.isfinite(found.upper):
        assert delta(made, found.upper, steps=2).lower <= TARGET * (1 + 1e-9)
    if 0 < found.lower < np.inf:
        assert delta(made, found.lower, steps=2).upper >= TARGET * (1 - 1e-9)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if c.heavy else ()) for n, c in CASES.items()])
def test_settings_broadcast_and_a_mapped_program_gives_the_eager_bounds(name: str) -> None:
    case, noise = CASES[name], np.array([0.8, 1.6])
    eager = delta(case.make(noise[:, None]), AT, steps=2)
    assert eager.lower.shape == eager.upper.shape == (2, 2)
    for row, one in enumerate(noise):
        agree(jaxacct.Bounds(eager.lower[row], eager.upper[row]), delta(case.make(one), AT, steps=2))
    if not case.traced:
        return
    mapped = jax.jit(jax.vmap(lambda x: delta(case.make(x), jnp.asarray(AT), steps=2)))
    found = mapped(np.array([0.8, 1.6, np.nan, -1.0]))
    # The program's noise is rounded to float32.
    agree(eager, jaxacct.Bounds(*(np.asarray(side, np.float64)[:2] for side in found)), 1e-5)
    assert np.all(np.asarray(found.upper)[2:] == 1.0), "what makes no sense fails closed, and only there"


@every_mechanism
def test_rebuilding_its_tree_checks_nothing_and_keeps_everything(name: str) -> None:
    made = CASES[name].make(0.8)
    leaves, structure = jax.tree.flatten(made)
    assert type(jax.tree.unflatten(structure, [object()] * len(leaves))) is type(made)
    assert repr(jax.tree.unflatten(structure, leaves)) == repr(made)


@every_mechanism
def test_an_unknown_relation_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"relation must be one of add_or_remove, .*, got 'swap'"):
        delta(CASES[name].make(0.8), 1.0, relation="swap")
