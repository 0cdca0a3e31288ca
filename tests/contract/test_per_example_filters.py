"""What every individual filter promises: each example pays for its own norm, and who was refused stays out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters
from jaxacct.filters import Reason

NORMS = np.array([0.0, 0.25, 0.5, 1.0, 3.0], np.float32)  # the clip norm is 1: the last two cost the same


@dataclasses.dataclass(frozen=True)
class Case:
    """A filter for as many examples as there are norms, and a step of which some fit the budget.

    Attributes:
        make: the filter.
        step: its clip norm is 1, and an example of that norm can pay at least 3 and at most 400 of them.
        is_bound: what the guarantee says of itself.
    """

    make: Callable[[], Any]
    step: Any
    is_bound: bool = True


def individual(make, *arguments, **named):
    """A function that makes a filter for everybody, once."""
    return functools.cache(lambda: filters.per_example(make(*arguments, **named), examples=NORMS.size))


SAMPLED = PoissonSampled(Gaussian(2.0), 0.1)
MENU = filters.gaussian_menu((2.0, 8.0), 0.1, sigmas=4)
CASES = {
    "any, gdp": Case(individual(filters.gdp, 1.0), Gaussian(5.0)),
    "any, renyi": Case(individual(filters.renyi, 1.0, 1e-2, order=8), SAMPLED),
    "approximate gdp": Case(individual(filters.approximate_gdp, 0.02), SAMPLED, False),
    "menu": Case(individual(filters.menu, MENU, epsilon=1.5, delta=1e-3, unit=16, points=256), SAMPLED),
    "sampled gaussian": Case(
        individual(filters.sampled_gaussian, sigma=(1.2, 1.5), rate=0.05, epsilon=1.0, delta=1e-3),
        PoissonSampled(Gaussian(1.2), 0.05),
    ),
}
every_filter = pytest.mark.parametrize("name", CASES)


@every_filter
def test_everybody_pays_for_their_own_norm_sampled_or_not(name):
    budget, step = CASES[name].make(), CASES[name].step
    takes_part, state = budget.update(step, NORMS, budget.init())
    spent = np.asarray(budget.spent(state))
    assert takes_part.tolist() == (spent > 0).tolist() == (NORMS > 0).tolist()
    assert (np.diff(spent) >= 0).all()
    assert spent[-2] == spent[-1]
    assert (np.asarray(budget.bounds(step, NORMS, state)) == np.minimum(NORMS, 1.0)).all()
    # Beside other examples everybody pays the same.
    _, turned = budget.update(step, NORMS[::-1], budget.init())
    assert budget.spent(turned).tolist() == spent[::-1].tolist()


@every_filter
def test_who_is_refused_pays_nothing_and_stays_refused(name):
    budget, step = CASES[name].make(), CASES[name].step
    state, count = budget.init(), 0
    takes_part, after = budget.update(step, NORMS, state)
    while takes_part[-1] and count < 400:
        state, count = after, count + 1
        assert (np.asarray(budget.bounds(step, NORMS, state)) <= np.minimum(NORMS, 1.0)).all()
        takes_part, after = budget.update(step, NORMS, state)
    assert 3 <= count < 400
    held = np.asarray(budget.spent(state))[-1]
    for _ in range(3):
        assert not takes_part[-1]
        assert np.asarray(budget.spent(after))[-1] == held
        assert np.asarray(budget.bounds(step, NORMS, after))[-1] == 0.0
        takes_part, after = budget.update(step, NORMS, after)
    assert np.asarray(budget.spent(after))[0] == 0
    assert (np.asarray(budget.remaining(after)) >= 0).all()
    assert (np.asarray(budget.fraction(after)) <= 1.0 + 2.0**-20).all()


@every_filter
def test_norms_that_are_none_take_no_part_and_change_nobodys_price(name):
    budget, step = CASES[name].make(), CASES[name].step
    _, state = budget.update(step, NORMS, budget.init())
    _, wanted = budget.update(step, NORMS, state)
    for bad in (np.nan, np.inf, -1.0):
        norms = NORMS.copy()
        norms[2] = bad
        takes_part, after = budget.update(step, norms, state)
        assert takes_part.tolist() == [False, True, False, True, True]
        reasons = np.where(takes_part, Reason.ADMITTED, Reason.INVALID)
        assert np.asarray(budget.reason(step, norms, state)).tolist() == reasons.tolist()
        spent = np.asarray(budget.spent(after))
        assert spent[2] == np.asarray(budget.spent(state))[2]
        assert (np.delete(spent, 2) == np.delete(np.asarray(budget.spent(wanted)), 2)).all()


@every_filter
def test_the_guarantee_is_the_common_filters_and_says_whether_it_is_a_bound(name):
    budget = CASES[name].make()
    guarantee = budget.guarantee
    common = budget.filter
    assert isinstance(guarantee, filters.Guarantee)
    assert float(guarantee.epsilon(1e-2)) == float(common.guarantee.epsilon(1e-2))
    assert guarantee.is_bound == CASES[name].is_bound
    assert ("not a bound" in guarantee.statement) == (not guarantee.is_bound)
    assert "every example" in guarantee.statement
    assert "no account, nor who takes part, was published" in guarantee.statement


@every_filter
def test_a_program_and_a_tree_have_the_same_accounts_as_python(name):
    budget, step = CASES[name].make(), CASES[name].step
    again = jax.tree.unflatten(*jax.tree.flatten(budget)[::-1])
    assert repr(again) == repr(budget)
    compiled = jax.jit(lambda budget, norms, state: budget.update(step, norms, state))
    state = other = budget.init()
    for _ in range(3):
        takes_part, state = budget.update(step, NORMS, state)
        also, other = compiled(again, NORMS, other)
        assert takes_part.tolist() == also.tolist()
        chex.assert_trees_all_equal(state, other)
