"""The general residue filter: a certified update runs, an uncertified one is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import PLD, LossGrid
from jaxacct.filters import check_residue, residue
from jaxacct.mechanisms import RandomizedResponse
from tests.contract.filter_cases import GRID, STEP, honest, response


def cheating(left, query):
    return left - 0.5 * jnp.round(jnp.max(jnp.where(query.masses > 1e-9, query.grid.losses, 0.0)) / STEP)


def pure_dp(update=honest, budget=8.0):
    return residue(response, update, budget, rounds=10, grid=GRID)


def test_the_pure_dp_filter_is_an_instance():
    budget = pure_dp()
    query = budget.prepare(RandomizedResponse(2 * STEP))
    step = jax.jit(lambda s: budget.update(query, s))
    state, answers = budget.init(), []
    for _ in range(5):
        admitted, state = step(state)
        answers.append(bool(admitted))
    assert answers == [True] * 4 + [False]
    assert float(budget.remaining(state)) == 0
    assert float(budget.spent(state)) == 8
    guarantee = budget.guarantee
    exact = 1 - np.exp(0.5) / np.exp(1.0)
    assert float(guarantee.delta(0.5)) == pytest.approx(exact / (1 + np.exp(-1.0)), abs=1e-8)
    assert float(guarantee.epsilon(1e-6)) <= 1.0 + 1e-6


def test_an_update_that_charges_too_little_is_refused():
    budget = pure_dp(cheating)
    admitted, state = budget.update(RandomizedResponse(2 * STEP), budget.init())
    assert not bool(admitted)
    assert float(state.parameter) == 8.0
    assert int(state.rounds) == 0


def test_the_condition_is_decided_by_the_law_itself():
    with jax.enable_x64(True):
        laws = [response(jnp.asarray(float(n))) for n in (8, 6, 2, 3)]
    before, after, query, larger = laws
    fits = check_residue(before, after, query)
    assert bool(fits.holds)
    assert float(fits.excess) < 2e-11
    misses = check_residue(before, after, larger)
    assert not bool(misses.holds)
    # By the hockey sticks themselves: RR(6) * RR(3) at RR(8)'s own loss.
    composed = after.compose(larger)
    gap = float(composed.hockey_stick(8 * STEP)) - float(before.hockey_stick(8 * STEP))
    assert 0 < gap <= float(misses.excess) + 1e-12
    with pytest.raises(ValueError, match="family must give a PLD"):
        residue(lambda p: PLD(jnp.ones(1), jnp.zeros(()), LossGrid(1.0, 0, 1)), honest, 1.0, rounds=1, grid=GRID)


def test_a_batch_of_queries_is_not_charged_as_one():
    """Each would be charged to a copy of the account of its own."""
    made = residue(response, honest, 10.0, rounds=9, grid=GRID)
    one = made.prepare(RandomizedResponse(STEP))
    three = PLD(np.stack([np.asarray(one.masses)] * 3), np.zeros(3), one.grid, "upper")
    for query in (three, RandomizedResponse(np.full(3, STEP))):
        with pytest.raises(ValueError, match="query must match the state"):
            made.update(query, made.init())


def test_a_budget_is_no_array_that_others_write_into():
    given = np.array(10.0)
    made = residue(response, honest, given, rounds=9, grid=GRID)
    given[...] = 40.0
    assert float(made.init().parameter) == 10.0
