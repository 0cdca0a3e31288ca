"""A training state goes on under the filter and the sampler that it began with, and under no other."""

from __future__ import annotations

import functools

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, RandomAllocation, Shuffled, filters, training
from jaxacct.training import make_step, sampler
from tests.training.small import DATA, PARAMS, SGD, loss

SIZE, SCHEDULE = len(DATA), training.schedules.constant(4.0, 1.0, 30)
FILTER = filters.gdp_residue(1.2, 1e-6)
SHUFFLED = Shuffled(Gaussian(4.0), 8)


def start(ledger=FILTER):
    return training.init_state(PARAMS, SGD, ledger, SCHEDULE, training.seeded_keys(1))


def sampled(mechanism, ledger=FILTER, size=SIZE, piece=8):
    drawn = sampler(mechanism, size, piece=piece)
    return make_step(loss, SGD, ledger, drawn.schedule(30), sampler=drawn, clip_norm=1.0)


def refused(step, state, data=DATA):
    """Whether a step refuses a state as foreign and gives it back as it was."""
    after, report = step(state, data)
    chex.assert_trees_all_equal(after, state)
    return bool(report.foreign) and not bool(report.admitted)


MECHANISMS = {
    "poisson": PoissonSampled(Gaussian(4.0), 0.1),
    "another rate": PoissonSampled(Gaussian(4.0), 0.2),
    "shuffled": SHUFFLED,
    "another noise": Shuffled(Gaussian(3.0), 8),
    "fewer batches": Shuffled(Gaussian(4.0), 4),
    "allocated": RandomAllocation(Gaussian(4.0), 8),
}
STEPS = (*MECHANISMS, "a coin a step")


@functools.cache
def step_of(name):
    if name in MECHANISMS:
        return sampled(MECHANISMS[name])
    return make_step(loss, SGD, FILTER, SCHEDULE, clip_norm=1.0, physical_batch=8)


@pytest.mark.parametrize("name", STEPS)
def test_no_step_goes_on_with_the_state_of_another_one(name):
    """Else the later batches of an epoch would be drawn without ever having been paid for."""
    state, report = step_of(name)(start(), DATA)
    assert report.admitted
    assert not report.foreign
    for other in STEPS:
        if other == name:
            assert step_of(name)(state, DATA)[1].admitted
        else:
            assert refused(step_of(other), state), other
            # Nor at a number of steps at which an epoch begins: its coins were thrown before, by the same keys.
            assert refused(step_of(other), state._replace(step=jnp.int32(8))), other


def test_an_epoch_goes_on_with_its_batches_in_pieces_of_any_size_and_is_paid_for_once():
    first, second = sampled(SHUFFLED), sampled(SHUFFLED, piece=4)
    state, report = first(start(), DATA)
    spent = float(report.spent)
    for step in (second, first, second):
        state, report = step(state, DATA)
        assert report.admitted
        assert float(report.spent) == spent
    # A state without a mark in the middle of an epoch has paid nobody.
    assert refused(first, state._replace(run=jnp.uint32(0)))


@pytest.mark.parametrize("name", ["shuffled", "a coin a step"])
def test_another_filter_refuses_the_state_also_in_the_middle_of_an_epoch_and_fit_says_why(name):
    other = filters.gdp_residue(1.0, 1e-6)
    make = {
        "shuffled": lambda ledger: sampled(SHUFFLED, ledger),
        "a coin a step": lambda ledger: make_step(loss, SGD, ledger, SCHEDULE, clip_norm=1.0, physical_batch=8),
    }[name]
    state, _ = make(FILTER)(start(), DATA)
    assert refused(make(other), state)
    with pytest.raises(ValueError, match="state must be one of the step's own filter and sampler"):
        training.fit(make(other), state, DATA, steps=5, evaluate=lambda params: 0.0)


def test_an_epoch_that_another_filter_paid_for_is_not_gone_on_with_under_a_fresh_account():
    """Else all its later batches run under a budget that holds none of them, and nothing of it is spent."""
    ledgers = filters.gdp_residue(1.2, 1e-6), filters.gdp_residue(0.1, 1e-6)
    first, second = (sampled(SHUFFLED, ledger) for ledger in ledgers)
    state, _ = first(start(ledgers[0]), DATA)
    for step in (1, 7, 8):
        changed = state._replace(filter_state=ledgers[1].init(), step=jnp.int32(step))
        assert refused(second, changed), step


def test_a_run_goes_on_under_a_lowered_budget_once_its_account_was_taken_over():
    ledgers = filters.gdp(2.0), filters.gdp(1.5)
    steps = [make_step(loss, SGD, ledger, SCHEDULE, clip_norm=1.0) for ledger in ledgers]
    state, report = steps[0](start(ledgers[0]), DATA)
    assert report.admitted
    assert refused(steps[1], state)
    lowered = state._replace(filter_state=filters.lower_budget(ledgers[0], state.filter_state, ledgers[1]))
    state, report = steps[1](lowered, DATA)
    assert report.admitted
    assert float(report.spent) == pytest.approx(0.25 * np.sqrt(2), rel=1e-6)


def test_a_transformation_refuses_a_foreign_account_and_is_not_halted_by_it():
    make = lambda mu: training.filtered_aggregate(  # noqa: E731
        filters.gdp(mu), training.schedules.constant(4.0, 1.0, 9), training.seeded_keys(0), clip_norm=1.0, size=SIZE
    )
    params, rows = {"w": jnp.zeros(3)}, {"w": DATA}
    low, high = make(1.0), make(2.0)
    state = high.init(params)
    updates, after = low.update(rows, state, params)
    assert not np.any(updates["w"])
    chex.assert_trees_all_equal(after, state)
    assert np.any(high.update(rows, state, params)[0]["w"])


def test_a_durable_run_that_took_an_account_over_keeps_it_before_its_first_charge(tmp_path):
    """Also where the program that resumes it begins with a fresh account."""
    high, low = filters.gdp(2.0), filters.gdp(1.0)
    split = training.make_step(loss, SGD, low, training.schedules.constant(4.0, 1.0, 9), clip_norm=1.0)
    account = high.update(0.9, high.init())[1]
    begun = start(low)._replace(filter_state=filters.lower_budget(high, account, low))
    for state in (begun, start(low)):
        with training.durable_run(tmp_path, split, state, low, resume=True) as run:
            assert float(low.spent(run.state.filter_state)) == pytest.approx(0.9, rel=1e-6)
            chex.assert_trees_all_equal(run.state.filter_state, begun.filter_state)
    with training.durable_run(tmp_path, split, start(low), low, resume=True) as run:
        assert run.step(run.state, DATA)[1].admitted
    with training.durable_run(tmp_path, split, start(low), low, resume=True) as run:
        assert float(low.spent(run.state.filter_state)) == pytest.approx(np.hypot(0.9, 0.25), rel=1e-6)
