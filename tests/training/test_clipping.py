"""Clipped sums: bounded for sure, exact, and deaf to broken records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import add_clipped, clipped_gradient_sum, empty_sum, gaussian_tree, global_norm


def loss(params, example):
    x, y = example
    return 0.5 * (jnp.dot(x, params["w"]) + params["b"] - y) ** 2


def problem(size=50, seed=0):
    random = np.random.default_rng(seed)
    params = {"w": jnp.asarray(random.normal(size=6), jnp.float32), "b": jnp.float32(0.3)}
    x = jnp.asarray(random.normal(size=(size, 6)), jnp.float32)
    return params, (x, jnp.asarray(random.normal(size=size), jnp.float32))


def exact_norm(tree):
    return np.sqrt(sum(np.sum(np.asarray(leaf, np.float64) ** 2) for leaf in jax.tree.leaves(tree)))


def clipped(tree, clip_norm):
    """One gradient as the sum holds it, in units of the clip norm: exact, in float64."""
    rows = jax.tree.map(lambda leaf: leaf[None], tree)
    total = jax.jit(add_clipped)(empty_sum(tree, 1), rows, jnp.ones(1, bool), clip_norm)
    limbs = (jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), limb) for limb in (total.high, total.low))
    return jax.tree.map(lambda high, low: (high * 2.0**12 + low) * 2.0**-24, *limbs)


@pytest.mark.parametrize("size", [1, 100, 30_000])
@pytest.mark.parametrize("scale", [1e-37, 1e-30, 1e-13, 1e-3, 1.0, 1e11, 1e25, 1e31])
@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 77.7])
def test_a_clipped_norm_never_exceeds_the_clip_norm(size, scale, clip_norm):
    random = np.random.default_rng(size)
    tree = {"a": random.uniform(-scale, scale, size), "b": random.uniform(-scale, scale, (2, 3))}
    tree = jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), tree)
    found = exact_norm(clipped(tree, clip_norm))
    assert found <= 1.0
    size = sum(leaf.size for leaf in jax.tree.leaves(tree))
    # Coordinates are truncated to multiples of 2^-24; a norm above 1e19 units counts as 0.
    wanted = exact_norm(tree) / float(np.float32(clip_norm))
    wanted = min(wanted, 1.0) if wanted < 1e19 else 0.0
    assert found == pytest.approx(wanted, rel=1e-4, abs=2.0**-24 * size**0.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3.4e38])
def test_a_gradient_that_is_not_finite_becomes_zero(bad):
    tree = {"a": jnp.array([bad, bad], jnp.float32), "b": jnp.ones(3)}
    assert exact_norm(clipped(tree, 1.0)) == 0


@pytest.mark.parametrize("entry", [1e17, 1e20, 1e33, 1e38, 2e38])
def test_a_norm_at_the_edge_of_float32_is_clipped_all_the_same(entry):
    tree = jnp.array([entry, -entry / 3, 1.0], jnp.float32)
    assert exact_norm(clipped(tree, 1e-3)) <= 1.0


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, np.nan])
def test_a_clip_norm_that_is_no_bound_gives_zero(clip_norm):
    assert exact_norm(clipped(jnp.ones(3), clip_norm)) == 0


def test_a_zero_gradient_stays_zero_and_short_ones_stay_as_they_are():
    assert exact_norm(clipped(jnp.zeros(4), 1.0)) == 0
    short = jnp.array([0.125, -0.25 - 2.0**-24], jnp.float32)
    assert np.array_equal(clipped(short, 1.0), short)


def test_the_norm_survives_numbers_whose_squares_do_not():
    assert float(global_norm(jnp.array([3e30, 4e30]))) == pytest.approx(5e30)
    assert float(global_norm(jnp.array([3e-30, 4e-30]))) == pytest.approx(5e-30)


def test_one_record_moves_the_exact_sum_by_at_most_the_clip_norm():
    params, data = problem()
    data = (data[0] * 100, data[1])  # everyone is clipped
    everyone = jnp.ones(50, bool)
    whole = clipped_gradient_sum(loss, params, data, everyone, 1.0, physical_batch=7)
    for left_out in (0, 13, 49):
        less = clipped_gradient_sum(loss, params, data, everyone.at[left_out].set(False), 1.0, physical_batch=7)
        units = jax.tree.map(lambda a, b, c, d: (a - b) * 2**12 + (c - d), whole.high, less.high, whole.low, less.low)
        assert 0.999 < exact_norm(units) / 2.0**24 <= 1.0


def test_a_nan_example_is_harmless():
    params, (x, y) = problem()
    mask = jnp.ones(50, bool)
    broken = clipped_gradient_sum(loss, params, (x.at[3].set(jnp.nan), y), mask, 1.0)
    without = clipped_gradient_sum(loss, params, (x, y), mask.at[3].set(False), 1.0)
    assert jax.tree.all(jax.tree.map(np.array_equal, broken, without))


def test_leaves_do_not_share_noise():
    noise = gaussian_tree(jax.random.key(0), [jnp.zeros(1000), jnp.zeros(1000)])
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.15
