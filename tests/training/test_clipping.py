"""Clipped sums: bounded for sure, exact, and deaf to broken records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import training
from jaxacct.training import clip_by_global_norm, clipped_gradient_sum, fixed_point, global_norm
from jaxacct.training.noise import add_gaussian_noise, gaussian_tree, largest_sigma


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


def as_float(total, unit=1.0):
    return jax.tree.map(lambda v: np.asarray(v, np.float64), fixed_point.released(total, unit))


@pytest.mark.parametrize("size", [1, 100, 30_000])
@pytest.mark.parametrize("scale", [1e-37, 1e-30, 1e-13, 1e-3, 1.0, 1e11, 1e25, 1e31])
@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 77.7])
def test_a_clipped_norm_never_exceeds_the_clip_norm(size, scale, clip_norm):
    random = np.random.default_rng(size)
    tree = {"a": random.uniform(-scale, scale, size), "b": random.uniform(-scale, scale, (2, 3))}
    tree = jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), tree)
    clipped = jax.jit(clip_by_global_norm)(tree, clip_norm)
    assert exact_norm(clipped) <= np.float32(clip_norm)
    wanted = min(exact_norm(tree), float(np.float32(clip_norm)))
    assert exact_norm(clipped) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3.4e38])
def test_a_gradient_that_is_not_finite_becomes_zero(bad):
    tree = {"a": jnp.array([bad, bad], jnp.float32), "b": jnp.ones(3)}
    for clip in (clip_by_global_norm, jax.jit(clip_by_global_norm)):
        assert exact_norm(clip(tree, 1.0)) == 0


@pytest.mark.parametrize("entry", [1e33, 1e36, 1e38, 2e38])
def test_a_norm_at_the_edge_of_float32_is_clipped_all_the_same(entry):
    tree = jnp.array([entry, -entry / 3, 1.0], jnp.float32)
    for clip in (clip_by_global_norm, jax.jit(clip_by_global_norm)):
        assert exact_norm(clip(tree, 1e-3)) <= np.float32(1e-3)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, np.nan])
def test_a_clip_norm_that_is_no_bound_gives_zero(clip_norm):
    assert exact_norm(clip_by_global_norm(jnp.ones(3), clip_norm)) == 0


def test_a_zero_gradient_stays_zero_and_short_ones_stay_as_they_are():
    assert exact_norm(clip_by_global_norm(jnp.zeros(4), 1.0)) == 0
    short = jnp.array([0.1, -0.2], jnp.float32)
    assert np.array_equal(clip_by_global_norm(short, 1.0), short)


def test_the_norm_survives_numbers_whose_squares_do_not():
    assert float(global_norm(jnp.array([3e30, 4e30]))) == pytest.approx(5e30)
    assert float(global_norm(jnp.array([3e-30, 4e-30]))) == pytest.approx(5e-30)


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
    one = fixed_point.accumulate(fixed_point.empty_sum(jnp.zeros(40), 200), vectors, everyone)
    order = random.permutation(200)
    other = fixed_point.empty_sum(jnp.zeros(40), 200)
    for part in np.split(order, 8):
        other = fixed_point.accumulate(other, vectors[part], everyone[:25])
    assert np.array_equal(one.high, other.high)
    assert np.array_equal(one.low, other.low)
    np.testing.assert_allclose(fixed_point.released(one, 1.0), np.asarray(vectors).sum(0), atol=200 * 2.0**-23)


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


def test_a_nan_example_outside_the_sample_is_harmless_too():
    params, (x, y) = problem()
    mask = jnp.zeros(50, bool).at[7].set(True)
    total = clipped_gradient_sum(loss, params, (x.at[0].set(jnp.nan), y), mask, 1.0, physical_batch=4)
    assert 0 < exact_norm(as_float(total)) <= 1


def test_an_empty_sample_sums_to_zero():
    params, data = problem()
    assert exact_norm(as_float(clipped_gradient_sum(loss, params, data, jnp.zeros(50, bool), 1.0))) == 0


def test_clip_scale_shrinks_the_clip_and_not_the_unit():
    params, data = problem()
    mask = jnp.zeros(50, bool).at[2].set(True)
    total = clipped_gradient_sum(loss, params, (data[0] * 100, data[1]), mask, 4.0, clip_scale=0.25)
    assert exact_norm(as_float(total)) == pytest.approx(0.25, rel=1e-4)
    assert exact_norm(as_float(total, 4.0)) == pytest.approx(1.0, rel=1e-4)


def test_sums_of_the_largest_size_do_not_overflow():
    for size in (1, 2**18, 2**20):
        bits = fixed_point.high_bits(size)
        assert size * 2**bits <= 2**30
        assert 11 * largest_sigma(size) * 2**bits <= 2**29
    total = fixed_point.empty_sum(jnp.zeros(1), 2**18)
    for sign in (1.0, -1.0):
        full = fixed_point.accumulate(total, jnp.full((2**18, 1), sign), jnp.ones(2**18, bool))
        assert fixed_point.released(full, 1.0).tolist() == [sign * 2**18]
    with pytest.raises(ValueError, match="physical_batch"):
        fixed_point.accumulate(total, jnp.zeros((2**18 + 1, 1)), jnp.ones(2**18 + 1, bool))
    with pytest.raises(ValueError, match="size must be"):
        fixed_point.empty_sum(jnp.zeros(1), 2**31)


@pytest.mark.parametrize(("sigma", "clip_norm"), [(0.7, 1.0), (5.0, 0.1), (300.0, 2.0)])
def test_noise_has_the_promised_standard_deviation(sigma, clip_norm):
    total = fixed_point.empty_sum({"a": jnp.zeros((300, 200)), "b": jnp.zeros(40_000)}, 1000)
    release = add_gaussian_noise(jax.random.key(3), total, sigma, clip_norm)
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(release)]) / (sigma * clip_norm)
    assert abs(values.mean()) < 4.5 / np.sqrt(1e5)
    assert abs(values.var() - 1) < 4.5 * np.sqrt(2 / 1e5)
    assert abs((values**4).mean() - 3) < 4.5 * np.sqrt(96 / 1e5)


def test_leaves_do_not_share_noise():
    noise = gaussian_tree(jax.random.key(0), [jnp.zeros(1000), jnp.zeros(1000)])
    assert abs(np.corrcoef(noise[0], noise[1])[0, 1]) < 0.15


def test_noise_moves_an_exact_sum_by_a_multiple_of_the_quantum():
    vectors = jnp.asarray(np.random.default_rng(0).uniform(-0.1, 0.1, (100, 50)), jnp.float32)
    total = fixed_point.accumulate(fixed_point.empty_sum(jnp.zeros(50), 100), vectors, jnp.ones(100, bool))
    noise = jnp.asarray(np.random.default_rng(1).normal(size=50), jnp.float32)
    after = fixed_point.offset(total, noise)
    moved = (np.asarray(after.high - total.high, np.int64) * 2**12 + np.asarray(after.low - total.low)) / 2.0**24
    rounded_down = np.asarray(noise, np.float64) - moved
    assert rounded_down.min() >= 0
    assert rounded_down.max() < 2.0**-24


@pytest.mark.parametrize("sigma", [0.0, -1.0, np.nan, np.inf, 1e9])
def test_a_sigma_that_cannot_be_served_releases_nothing(sigma):
    total = fixed_point.empty_sum(jnp.zeros(5), 10)
    assert np.isnan(add_gaussian_noise(jax.random.key(0), total, sigma, 1.0)).all()


def test_one_row_of_any_size_and_shape_never_moves_the_sum_by_more_than_the_clip_norm():
    rng = np.random.default_rng(8)
    shapes = {"a": (7, 5, 3, 11), "b": (1021,), "c": (784, 16), "d": ()}
    scales = [1e-38, 1e-25, 1e-12, 1e-4, 0.02, 1.0, 50.0, 1e6, 1e15, 1e18, 1e25, np.inf, np.nan]
    rows = {
        name: np.stack([rng.standard_normal(shape) * np.float32(scale) for scale in scales]).astype(np.float32)
        for name, shape in shapes.items()
    }
    # All of one sign and size, where sums of squares round the same way at every addition.
    rows = {name: np.concatenate([leaf, np.full((1, *leaf.shape[1:]), 0.1, np.float32)]) for name, leaf in rows.items()}
    count = len(scales) + 1
    empty = fixed_point.empty_sum({name: jnp.zeros(shape) for name, shape in shapes.items()}, 1000)
    for unit, clip_scale in ((1.0, 1.0), (0.3, 0.5), (1e-20, 1.0), (3.0, 1e-10)):
        for row in range(count):
            total = jax.jit(training.add_clipped)(empty, rows, jnp.arange(count) == row, unit, clip_scale=clip_scale)
            quanta = [
                int(h) * 2**12 + int(low)
                for name in shapes
                for h, low in zip(np.ravel(total.high[name]), np.ravel(total.low[name]), strict=True)
            ]
            length = sum(q * q for q in quanta)
            assert length <= (clip_scale * 2**24) ** 2 * (1 + 1e-12)
            if clip_scale == 1.0 and unit == 1.0 and 1.0 <= [*scales, 0.1][row] <= 1e15:
                assert length >= (2**24 * (1 - 5e-4)) ** 2


@pytest.mark.parametrize(
    ("lhs", "rhs", "options"),
    [
        ((2, 8, 8, 3), (3, 3, 3, 4), {"padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}),
        ((2, 4, 9, 7), (6, 2, 3, 2), {"padding": [(1, 0), (2, 2)], "window_strides": (2, 1), "feature_group_count": 2}),
        ((2, 3, 10), (5, 3, 3), {"padding": [(1, 2)], "rhs_dilation": (2,), "lhs_dilation": (2,)}),
    ],
)
def test_gradients_of_convolutions_are_what_they_were(lhs, rhs, options):
    from jaxacct.training.convolutions import in_canonical_order

    options = {"window_strides": (1,) * (len(lhs) - 2)} | options

    def loss(kernel, image):
        convolved = jax.jit(lambda image, kernel: jax.lax.conv_general_dilated(image, kernel, **options))
        return jnp.sum(jnp.sin(convolved(image, kernel)))

    kernel = jax.random.normal(jax.random.key(0), rhs)
    images = jax.random.normal(jax.random.key(1), (4, *lhs))
    gradients = jax.vmap(jax.grad(loss, argnums=(0, 1)), in_axes=(None, 0))
    found = jax.jit(in_canonical_order(gradients))(kernel, images)
    for one, other in zip(found, gradients(kernel, images), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
