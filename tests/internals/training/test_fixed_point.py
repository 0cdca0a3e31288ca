"""Sums in whole numbers: no size overflows, and noise moves them by multiples of the quantum."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import largest_sigma
from jaxacct.training.gradients import fixed_point


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
