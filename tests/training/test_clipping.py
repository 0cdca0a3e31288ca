"""Clipped sums: bounded for sure, exact, and deaf to broken records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import add_clipped, clipped_gradient_sum, empty_sum, global_norm

UNIT = 2.0**24  # quanta in a clip norm


def quanta(total):
    """A sum in whole 2^-24ths of the clip norm."""
    return jax.tree.map(lambda high, low: np.asarray(high, np.int64) * 2**12 + np.asarray(low), total.high, total.low)


def length(tree):
    """Of whole numbers: exact, unless it is far beyond a clip norm."""
    return np.sqrt(sum(np.sum(np.asarray(leaf, np.float64) ** 2) for leaf in jax.tree.leaves(tree)))


def clipped(tree, clip_norm, clip_scale=1.0):
    """One gradient as the sum holds it, in quanta."""
    rows = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32)[None], tree)
    return quanta(jax.jit(add_clipped)(empty_sum(tree, 1), rows, jnp.ones(1, bool), clip_norm, clip_scale=clip_scale))


@pytest.mark.parametrize("size", [1, 100, 30_000])
@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-13, 1e-3, 1.0, 1e11, 1e18, 1e25, 1e31, "equal"])
@pytest.mark.parametrize(
    ("clip_norm", "clip_scale"), [(1e-3, 1.0), (1.0, 1.0), (77.7, 1.0), (1e-15, 1.0), (0.3, 0.5), (3.0, 1e-10)]
)
def test_a_clipped_norm_never_exceeds_the_clip_norm(size, scale, clip_norm, clip_scale):
    random = np.random.default_rng(size)
    if scale == "equal":  # sums of squares round the same way every time
        tree = {"a": np.full(size, 0.1)}
    else:
        tree = {"a": random.uniform(-scale, scale, size), "b": random.uniform(-scale, scale, (2, 3))}
    found = length(clipped(tree, clip_norm, clip_scale))
    assert found <= clip_scale * UNIT
    # Coordinates are truncated to quanta; a norm above 1e19 clip norms counts as 0.
    wanted = length(tree) / float(np.float32(clip_norm))
    wanted = min(wanted, clip_scale) * UNIT if wanted < 1e19 else 0.0
    assert found == pytest.approx(wanted, rel=1e-4, abs=(size + 6) ** 0.5)


@pytest.mark.parametrize("entry", [1e17, 1e20, 1e33, 1e38, 2e38, 3.4e38, np.nan, np.inf, -np.inf])
def test_a_norm_at_the_edge_of_float32_is_clipped_and_one_that_is_not_finite_is_zero(entry):
    found = length(clipped({"a": np.array([entry, entry]), "b": np.ones(3)}, 1e-3))
    assert found <= UNIT
    assert found == 0 or abs(entry) < 3e38


def test_zero_and_short_gradients_stay_as_they_are_and_without_a_clip_norm_nothing_is_left():
    short = np.array([0.125, -0.25 - 2.0**-24])
    assert np.array_equal(clipped(short, 1.0), short * UNIT)
    assert not clipped(np.zeros(4), 1.0).any()
    for bad in (0.0, -1.0, np.nan):
        assert not clipped(np.ones(3), bad).any()
    # Squares of these overflow, and underflow.
    assert float(global_norm(jnp.array([3e30, 4e30]))) == pytest.approx(5e30)
    assert float(global_norm(jnp.array([3e-30, 4e-30]))) == pytest.approx(5e-30)


def test_one_record_moves_the_exact_sum_by_at_most_the_clip_norm_and_a_nan_one_by_nothing():
    random = np.random.default_rng(0)
    params = {"w": jnp.asarray(random.normal(size=6), jnp.float32), "b": jnp.float32(0.3)}
    x, y = (jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((50, 6), 50))
    everyone = jnp.ones(50, bool)

    def loss(params, example):
        x, y = example
        return 0.5 * (jnp.dot(x, params["w"]) + params["b"] - y) ** 2

    def total(x, mask):
        return quanta(clipped_gradient_sum(loss, params, (x * 100, y), mask, 1.0, physical_batch=7))

    whole = total(x, everyone)  # everyone is clipped
    for left_out in (0, 13, 49):
        less = total(x, everyone.at[left_out].set(False))
        assert 0.999 < length(jax.tree.map(np.subtract, whole, less)) / UNIT <= 1.0
        broken = total(x.at[left_out].set(jnp.nan), everyone)
        assert jax.tree.all(jax.tree.map(np.array_equal, broken, less))


@pytest.mark.parametrize("count", [1, 64, 65])
def test_sums_of_rows_and_of_pieces_of_any_size_are_exact(count):
    """Rows within the clip norm, of whole quanta: their sum is the integers' sum."""
    rows = np.random.default_rng(count).integers(-(2**20), 2**20, (count, 8))
    examples, some = (rows / UNIT).astype(np.float32), np.arange(count) % 3 > 0

    def summed(examples, mask):
        return clipped_gradient_sum(lambda w, x: jnp.sum(w * x), jnp.zeros(8), examples, mask, 1.0)

    assert np.array_equal(quanta(summed(examples, jnp.ones(count, bool))), rows.sum(0))
    start = summed(jnp.zeros((1000, 8)), jnp.zeros(1000, bool))
    assert np.array_equal(
        quanta(add_clipped(start, examples, some, 1.0, clip_scale=jnp.ones(count))), rows[some].sum(0)
    )
