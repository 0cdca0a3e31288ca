"""Every filter says why it refuses, and its reason agrees with its update."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.filters import Reason
from tests.contract.filter_cases import CASES, leaves, play
from tests.contract.test_per_example_filters import CASES as EACH
from tests.contract.test_per_example_filters import NORMS

every_filter = pytest.mark.parametrize("name", CASES)


@every_filter
def test_the_reason_is_admitted_exactly_where_update_admits(name):
    case = CASES[name]
    budget = case.make()
    start = budget.init()
    for query in [*case.accepts(), case.small(1.0), case.big, *case.refuses()]:
        admitted, _ = budget.update(query, start)
        reason = budget.reason(query, start)
        assert reason.dtype == jnp.int32
        assert reason.shape == admitted.shape
        assert bool(np.all((np.asarray(reason) == Reason.ADMITTED) == np.asarray(admitted))), query
        assert filters.sentence(reason, budget, query)
        again = budget.reason(query, start, admitted=admitted)
        assert int(again) == int(reason)


@every_filter
def test_a_state_of_another_filter_and_a_spent_budget_have_reasons_of_their_own(name):
    case = CASES[name]
    budget, query = case.make(), case.small(1.0)
    other = case.make(1.5).init()
    if leaves(other).shape == leaves(budget.init()).shape:
        assert int(budget.reason(query, other)) == Reason.FOREIGN_STATE
        if case.traced:
            assert int(jax.jit(budget.reason)(query, other)) == Reason.FOREIGN_STATE
    history, state = play(budget, query, 300)
    assert not history[-1]
    assert int(budget.reason(query, state)) == Reason.SPENT


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.traced and case.number is not None])
def test_a_parameter_that_is_none_is_invalid_inside_a_program(name):
    budget = CASES[name].make()
    ask = jax.jit(lambda number, state: budget.reason(CASES[name].small(number), state))
    for bad in (np.nan, -1.0):
        assert int(ask(jnp.float32(bad), budget.init())) == Reason.INVALID
    assert int(ask(jnp.float32(1.0), budget.init())) == Reason.ADMITTED


@pytest.mark.parametrize("name", EACH)
def test_every_example_has_its_own_reason(name):
    budget, step = EACH[name].make(), EACH[name].step
    state = budget.init()
    for norms in (NORMS, np.where(np.arange(NORMS.size) == 1, np.nan, NORMS)):
        takes_part, _ = budget.update(step, norms, state)
        reason = np.asarray(budget.reason(step, norms, state))
        assert ((reason == Reason.ADMITTED) == np.asarray(takes_part)).all()
        assert (reason[~((norms > 0) & np.isfinite(norms))] == Reason.INVALID).all()


def test_what_lies_outside_of_a_menu_is_named_with_its_numbers():
    menu = CASES["menu"].make()
    for query, words in (
        (PoissonSampled(Gaussian(0.9), 0.1), "noise 0.9 is below the least, 2, that this filter was made for"),
        (PoissonSampled(Gaussian(2.0), 0.3), "rate 0.3 is above the largest, 0.1, that this filter was made for"),
        (5, "position 5 is none of the 2 that this filter has entries for"),
    ):
        reason = jax.jit(menu.reason)(query, menu.init())
        assert int(reason) == Reason.OUTSIDE
        assert filters.sentence(reason, menu, query) == words
    with pytest.raises(ValueError, match="reason must be"):
        filters.sentence(17)
