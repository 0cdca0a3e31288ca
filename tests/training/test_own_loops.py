"""What a loop of one's own is made of: releases of every sampler, `select`, losses with more to say, strict modes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxacct import Gaussian, PoissonSampled, RandomAllocation, filters, training
from jaxacct.training.schedules import adaptive, constant
from tests.contract.test_samplers import CASES as MECHANISMS
from tests.contract.test_samplers import N
from tests.refusals import all_refused
from tests.training.small import begun

SGD, KEYS = optax.sgd(1.0), training.seeded_keys(5)
DATA = jnp.asarray(np.random.default_rng(3).normal(size=(N, 3)), jnp.float32)
PARAMS = {"w": jnp.zeros(3), "empty": jnp.zeros((0, 2))}


def loss(params, row):
    return jnp.sum((params["w"] - row) ** 2) + jnp.sum(params["empty"])


def made(budget, plan, loss=loss, **options):
    return begun(budget, plan, loss, PARAMS, SGD, seed=5, **options)


@pytest.mark.parametrize("name", ["truncated", "with", "allocated"])
def test_a_release_with_a_sampler_is_the_one_of_the_step_that_is_charged_for_it(name):
    drawn = training.sampler(dataclasses.replace(MECHANISMS[name], mechanism=Gaussian(4.0)), N, piece=8)
    budget = filters.gdp_residue(3.0, 1e-6)
    step, state = made(budget, drawn.schedule(20), sampler=drawn)
    release = jax.jit(
        lambda params, number: training.noisy_gradient(
            loss, params, DATA, training.step_keys(KEYS, number), clip_norm=1.0, sampler=drawn
        )
    )
    assert drawn.query(budget) is drawn.mechanism
    for number in range(3):
        after, report = step(state, DATA)
        assert report.admitted
        noisy = release(state.params, number)
        np.testing.assert_allclose(state.params["w"] - after.params["w"], noisy["w"], rtol=1e-4, atol=1e-6)
        state = after


def test_a_release_needs_a_sampler_or_its_numbers_and_not_both():
    drawn = training.sampler(MECHANISMS["allocated"], N)

    def release(data=DATA, **given):
        return lambda: training.noisy_gradient(loss, PARAMS, data, training.step_keys(KEYS, 0), clip_norm=1.0, **given)

    alone, both = ({}, {"sigma": 1.0}, {"rate": 0.5}), ({"sigma": 1.0}, {"full_batch": True}, {"size": N + 1})
    all_refused(
        *(("sigma and rate must be given without a sampler", release(**given)) for given in alone),
        *(("sampler has its own noise, rate and size", release(sampler=drawn, **given)) for given in both),
        (f"data must hold the sampler's {N} examples", release(DATA[:-1], sampler=drawn)),
        ("data must be a tree of arrays for a sampler", release(training.shard_examples(DATA), sampler=drawn)),
        ("schedule must have the sampler's", lambda: made(filters.gdp(3.0), constant(9.0, 0.1, 9), sampler=drawn)),
    )


def test_batches_of_an_epoch_are_not_resumed(tmp_path):
    drawn = training.sampler(RandomAllocation(Gaussian(4.0), 5), N)
    budget = filters.gdp_residue(2.0, 1e-5)
    run = training.durable_run(tmp_path, *made(budget, drawn.schedule(5), sampler=drawn), budget)
    with pytest.raises(ValueError, match="whose charges a journal can hold: a resumed run would draw"), run:
        pass


def test_what_a_loss_returns_beside_its_value_is_dropped_from_every_release():
    both = lambda params, row: (loss(params, row), {"norm": jnp.sum(row**2), "row": row})  # noqa: E731
    gradients, aux = training.per_example_gradients(both, PARAMS, DATA, has_aux=True)
    np.testing.assert_array_equal(aux["row"], DATA)
    np.testing.assert_array_equal(gradients["w"], training.per_example_gradients(loss, PARAMS, DATA)["w"])
    numbers = {"sigma": 1.0, "rate": 0.5, "clip_norm": 1.0}
    keys = training.step_keys(KEYS, 0)
    one = training.noisy_gradient(both, PARAMS, DATA, keys, has_aux=True, **numbers)
    np.testing.assert_array_equal(one["w"], training.noisy_gradient(loss, PARAMS, DATA, keys, **numbers)["w"])
    step, state = made(filters.gdp(3.0), constant(4.0, 1.0, 9), both, has_aux=True)
    assert step(state, DATA)[1].admitted
    with pytest.raises(ValueError, match=r"loss must return a pair \(loss, aux\) with has_aux"):
        training.per_example_gradients(loss, PARAMS, DATA, has_aux=True)
    with pytest.raises(ValueError, match="loss must"):
        training.per_example_gradients(both, PARAMS, DATA)


def test_a_loss_of_a_whole_batch_is_named_by_its_shape_and_not_by_a_tracer():
    with pytest.raises(ValueError, match=r"one real number for one example, got a traced float32\[3\]"):
        training.per_example_gradients(lambda params, row: params["w"] * row, PARAMS, DATA)


def test_select_keeps_several_trees_at_once_and_refuses_trees_of_other_kinds():
    new = (PARAMS, SGD.init(PARAMS), training.seeded_keys(1), jnp.int32(1))
    old = (jax.tree.map(lambda leaf: leaf - 1, PARAMS), SGD.init(PARAMS), training.seeded_keys(2), jnp.int32(0))
    for select in (training.select, jax.jit(training.select)):
        for admitted, wanted in ((True, new), (False, old), (jnp.bool_(True), new)):
            found = select(admitted, new, old)
            assert jax.tree.all(jax.tree.map(lambda one, other: bool(jnp.all(one == other)), found, wanted))
    for wrong in ({"w": jnp.zeros(3)}, {**PARAMS, "w": jnp.zeros((1, 3))}, {**PARAMS, "w": jnp.zeros(3, jnp.int32)}):
        with pytest.raises(ValueError, match="new must have the structure, shapes and types of old"):
            training.select(True, wrong, PARAMS)
    with pytest.raises(ValueError, match="admitted must be"):
        training.select(jnp.ones(3, bool), PARAMS, PARAMS)


@pytest.mark.parametrize("name", ["a coin a step", "an account each", "a sampler"])
def test_steps_run_under_debug_nans_and_strict_promotion(name):
    drawn = training.sampler(PoissonSampled(Gaussian(4.0), 0.2), N) if name == "a sampler" else None
    plan = drawn.schedule(9) if drawn else adaptive(4.0, 0.2, 9)
    budget = filters.renyi(3.0, 1e-5, order=8)
    budget = filters.per_example(budget, examples=N) if name == "an account each" else budget
    with jax.debug_nans(True), jax.numpy_dtype_promotion("strict"):
        step, state = made(budget, plan, sampler=drawn)
        found = training.fit(step, state, DATA, steps=3, evaluate=lambda params: 0.5, evaluate_every=2)
    assert found.stopped == "plan finished"
    assert np.isfinite(found.state.params["w"]).all()
    assert float(state.released.accuracy) == -1.0  # none was measured yet
