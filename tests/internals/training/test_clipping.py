"""Clipped sums: bounded for sure, exact, and deaf to broken records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import clipped_gradient_sum, fixed_point, largest_sigma
from tests.training.test_clipping import exact_norm, loss, problem


def as_float(total, unit=1.0):
    return jax.tree.map(lambda v: np.asarray(v, np.float64), fixed_point.released(total, unit))


@pytest.mark.parametrize("physical_batch", [1, 3, 16, 50, 64])
def test_pieces_give_the_same_sum_as_one_pass(physical_batch):
    params, data = problem()
    mask = jnp.asarray(np.random.default_rng(1).random(50) < 0.7)
    total = clipped_gradient_sum(loss, params, data, mask, 0.5, physical_batch=physical_batch)
    # Written out by hand: each example alone, clipped, summed in float64.
    expected = {"w": np.zeros(6), "b": np.zeros(())}
    for i in np.flatnonzero(np.asarray(mask)):
        gradient = jax.grad(loss)(params, (data[0][i], data[1][i]))
        factor = min(1.0, 0.5 / exact_norm(gradient))
        expected = {name: expected[name] + factor * np.asarray(gradient[name], np.float64) for name in expected}
    for name, value in as_float(total, 0.5).items():
        np.testing.assert_allclose(value, expected[name], atol=2e-4)


def test_whole_numbers_make_the_sum_independent_of_the_order():
    random = np.random.default_rng(2)
    vectors = jnp.asarray(random.normal(size=(200, 40)) * 0.1, jnp.float32)
    everyone = jnp.ones(200, bool)
    one = fixed_point.accumulate(fixed_point.empty_sum(jnp.zeros(40), 200), vectors, everyone, jnp.asarray)
    order = random.permutation(200)
    other = fixed_point.empty_sum(jnp.zeros(40), 200)
    for part in np.split(order, 8):
        other = fixed_point.accumulate(other, vectors[part], everyone[:25], jnp.asarray)
    assert np.array_equal(one.high, other.high)
    assert np.array_equal(one.low, other.low)
    np.testing.assert_allclose(fixed_point.released(one, 1.0), np.asarray(vectors).sum(0), atol=200 * 2.0**-23)


def test_sums_of_the_largest_size_do_not_overflow():
    for size in (1, 2**18, 2**20):
        bits = fixed_point.high_bits(size)
        assert size * 2**bits <= 2**30
        assert 11 * largest_sigma(size) * 2**bits <= 2**29
    total = fixed_point.empty_sum(jnp.zeros(1), 2**18)
    for sign in (1.0, -1.0):
        full = fixed_point.accumulate(total, jnp.full((2**18, 1), sign), jnp.ones(2**18, bool), jnp.asarray)
        assert fixed_point.released(full, 1.0).tolist() == [sign * 2**18]
    with pytest.raises(ValueError, match="physical_batch"):
        fixed_point.accumulate(total, jnp.zeros((2**18 + 1, 1)), jnp.ones(2**18 + 1, bool), jnp.asarray)
    with pytest.raises(ValueError, match="size must be"):
        fixed_point.empty_sum(jnp.zeros(1), 2**31)


def test_noise_moves_an_exact_sum_by_a_multiple_of_the_quantum():
    vectors = jnp.asarray(np.random.default_rng(0).uniform(-0.1, 0.1, (100, 50)), jnp.float32)
    total = fixed_point.accumulate(fixed_point.empty_sum(jnp.zeros(50), 100), vectors, jnp.ones(100, bool), jnp.asarray)
    noise = jnp.asarray(np.random.default_rng(1).normal(size=50), jnp.float32)
    after = fixed_point.offset(total, noise)
    moved = (np.asarray(after.high - total.high, np.int64) * 2**12 + np.asarray(after.low - total.low)) / 2.0**24
    rounded_down = np.asarray(noise, np.float64) - moved
    assert rounded_down.min() >= 0
    assert rounded_down.max() < 2.0**-24
