"""`check_step` finds each planted mistake, and nothing in what is right."""

import functools

import jax
import jax.numpy as jnp
import pytest

from jaxacct import Gaussian, Laplace, testing
from tests.testing import own_loops, planted
from verification.audit import check_steps

QUICK = {
    "clip of each leaf", "half the noise", "noise on one leaf", "noise scaled by the data", "one key for all leaves",
    "one number for a leaf", "noise of NumPy", "loss is returned", "statistics of the batch",
    "skips what is not finite", "divided by the sample", "fixed size for coins", "only the first are kept",
    "momentum_of_what_is_private", "two_steps_with_one_key",
    "noise whose sum is zero", "private value goes to a callback", "rows cut to a multiple", "coins in pairs",
    "individual", "coins", "moving clip norm", "without replacement",
}  # fmt: skip


def each(names):
    """Parameters; those that are not quick are slow tests."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("mistake", each(planted.MISTAKES))
def test_each_planted_mistake_is_found(mistake):
    sampled = planted.MISTAKES[mistake]
    step = functools.partial(planted.step, mistake=mistake, sampled=sampled)
    found = testing.check_step(step, planted.DATA, mechanism=planted.SAMPLED if sampled else planted.FULL)
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
    assert not found.ok, found


@pytest.mark.parametrize("name", each(own_loops.LOOPS))
def test_nothing_is_found_in_loops_that_are_right(name):
    found = check_loop(own_loops.LOOPS[name], False)
    assert found.ok, found
    assert found.moved > 0.6


@pytest.mark.parametrize("name", each(check_steps.CASES | check_steps.OPTIONAL))
def test_nothing_is_found_in_steps_of_this_library_of_its_examples_and_of_optax(name):
    for needed in ("equinox", "jax_privacy"):
        if needed in name:
            pytest.importorskip(needed, reason=f"{needed} is not installed")
    found = (check_steps.CASES | check_steps.OPTIONAL)[name]().check(testing)
    assert found.ok, found
    assert found.moved > (0.8 if name.startswith("example") else 0.45)
    assert name == "optax" or not found.warnings, found


def test_the_answer_says_where_a_leak_is_and_that_it_proves_nothing():
    step = functools.partial(planted.step, mistake="loss is returned")
    found = testing.check_step(step, planted.DATA, mechanism=planted.FULL)
    (leak,) = found.leaks
    assert (leak.kind, leak.where, leak.severity) == ("output", "['more']", "critical")
    assert str(leak) in str(found)
    assert "cannot prove" in str(found)
    assert testing.check_step(step, planted.DATA, mechanism=planted.FULL, private=["['more']"]).ok


def test_what_cannot_be_checked_is_refused_by_name():
    def endless(data, key):
        def more(carry):
            return carry[0] + jax.random.normal(key), carry[1] + 1

        return jax.lax.while_loop(lambda carry: carry[1] < data[1].sum(), more, (jnp.sum(data[0]), 0))[0]

    with pytest.raises(ValueError, match="step must draw its noise outside of loops"):
        testing.check_step(endless, planted.DATA, mechanism=Gaussian(1.0))
    with pytest.raises(ValueError, match="mechanism must be a Gaussian or sample one"):
        testing.check_step(planted.step, planted.DATA, mechanism=Laplace(1.0))
    with pytest.raises(ValueError, match="relation must be"):
        testing.check_step(planted.step, planted.DATA, mechanism=planted.FULL, relation="add")
