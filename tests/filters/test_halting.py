"""A loop that runs a step until the filter refuses."""

from __future__ import annotations

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import Gaussian, PoissonSampled, filters


def descend(carry, state):
    """A step of noisy descent whose noise depends on what was released."""
    params, key, n = carry
    sigma = 2.0 + jnp.abs(params).sum()

    def run():
        noise = sigma * jax.random.normal(jax.random.fold_in(key, n), params.shape)
        return params - 0.05 * (params + noise), key, n + 1

    return PoissonSampled(Gaussian(sigma), 0.1), run


def start(seed=0):
    return jnp.ones(3), jax.random.key(seed), jnp.int32(0)


def by_hand(ledger, carry, most):
    state = ledger.init()
    for steps in range(most):
        query, run = descend(carry, state)
        admitted, state = ledger.update(query, state)
        if not admitted:
            return carry, state, steps
        carry = run()
    return carry, state, most


@pytest.fixture(scope="module")
def ledger():
    return filters.renyi(2.2, 1e-5, order=8)


loop = jax.jit(lambda ledger, carry, length: filters.halting_scan(descend, ledger, carry, length=length))


def test_it_stops_where_a_loop_by_hand_does_and_keeps_what_was_there(ledger):
    end = loop(ledger, start(), 10_000)
    (params, _, n), state, steps = by_hand(ledger, start(), 10_000)
    assert int(end.steps) == steps == int(n) == int(end.carry[2])
    assert 20 < steps < 10_000
    assert end.refused
    np.testing.assert_allclose(end.carry[0], params, rtol=1e-4)
    chex.assert_trees_all_close(ledger.spent(end.state), ledger.spent(state), rtol=1e-4)
    assert {leaf.dtype for leaf in jax.tree.leaves(end.carry[0])} == {jnp.dtype("float32")}


def test_a_length_ends_it_first_without_asking_again_and_it_goes_on_from_a_state(ledger):
    half = loop(ledger, start(), 7)
    assert int(half.steps) == 7
    assert not half.refused
    resume = lambda f, c, s: filters.halting_scan(descend, f, c, state=s, length=5)  # noqa: E731
    rest = jax.jit(resume)(ledger, half.carry, half.state)
    whole = loop(ledger, start(), 12)
    assert int(rest.steps) == 5
    chex.assert_trees_all_equal(rest.state, whole.state)
    np.testing.assert_array_equal(rest.carry[0], whole.carry[0])
    none = loop(ledger, start(), 0)
    assert int(none.steps) == 0
    chex.assert_trees_all_equal(none.state, ledger.init())


def test_many_interactions_each_stop_by_themselves(ledger):
    keys = jnp.stack([start(seed)[1] for seed in range(5)])
    ledgers = filters.renyi(np.linspace(1.9, 2.5, 5), 1e-5, order=8)
    run = lambda f, key: filters.halting_scan(descend, f, (jnp.ones(3), key, jnp.int32(0)), length=5000)  # noqa: E731
    many = jax.jit(jax.vmap(run))(ledgers, keys)
    assert len(set(many.steps.tolist())) > 3
    single = jax.jit(run)(filters.renyi(1.9 + 0.15, 1e-5, order=8), keys[1])
    assert int(single.steps) == int(many.steps[1])
    assert many.refused.all()
