"""`check_step` finds each planted mistake, and nothing in what is right."""

import functools

import pytest

from jaxacct import testing
from tests.testing import library_steps, own_loops, planted


@pytest.mark.parametrize("mistake", planted.MISTAKES)
def test_each_planted_mistake_is_found(mistake):
    sampled = planted.MISTAKES[mistake]
    step = functools.partial(planted.step, mistake=mistake, sampled=sampled)
    found = testing.check_step(step, planted.DATA, mechanism=planted.SAMPLED if sampled else planted.FULL)
    print(mistake, found)
    assert not found.ok, found


@pytest.mark.parametrize("sampled", [False, True])
def test_nothing_is_found_in_the_step_without_a_mistake(sampled):
    step = functools.partial(planted.step, sampled=sampled)
    found = testing.check_step(step, planted.DATA, mechanism=planted.SAMPLED if sampled else planted.FULL)
    assert found.ok, found
    assert found.moved > 0.9


def check_loop(loop, wrong):
    step = functools.partial(loop.step, wrong=wrong)
    about = dict(mechanism=loop.mechanism, relation=loop.relation, keys=loop.keys, steps=loop.steps)
    return testing.check_step(step, loop.data, **about)


@pytest.mark.parametrize("name", own_loops.LOOPS)
def test_each_loop_is_found_wrong_if_it_is(name):
    found = check_loop(own_loops.LOOPS[name], True)
    print(name, found)
    assert not found.ok, found


@pytest.mark.parametrize("name", own_loops.LOOPS)
def test_nothing_is_found_in_loops_that_are_right(name):
    found = check_loop(own_loops.LOOPS[name], False)
    print(name, found)
    assert found.ok, found
    assert found.moved > 0.6


@pytest.mark.parametrize("name", library_steps.CASES)
def test_nothing_is_found_in_steps_of_this_library_and_of_optax(name):
    found = library_steps.CASES[name]().check(testing)
    print(name, found)
    assert found.ok, found
    assert found.moved > 0.45
    assert name == "optax" or not found.warnings, found
