"""The fast ways to gradients give what the plain ones give, row by row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import training


def both_gradients(loss, params, examples):
    @jax.jit
    def run(params, examples):
        plain = jax.vmap(jax.grad(loss), in_axes=(None, 0))(params, examples)
        return plain, training.per_example_gradients(loss, params, examples)

    return run(params, examples)


ONE = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "window_strides": (1, 1)}  # image an example
CONVOLUTIONS = [
    ((2, 4, 9, 7), (6, 2, 3, 2), {"padding": [(1, 0), (2, 2)], "window_strides": (2, 1), "feature_group_count": 2}),
    ((2, 3, 10), (5, 3, 3), {"padding": [(1, 2)], "window_strides": (1,), "rhs_dilation": (2,), "lhs_dilation": (2,)}),
    # The gradient with respect to a kernel is a convolution in groups, taken as matrices.
    ((1, 9, 7, 4), (3, 2, 2, 6), ONE | {
        "padding": [(1, 0), (2, 2)], "window_strides": (2, 1), "feature_group_count": 2}),
    ((1, 10, 9, 2), (3, 3, 2, 5), ONE | {
        "padding": [(-1, 3), (0, -1)], "rhs_dilation": (2, 1), "lhs_dilation": (1, 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("image", "kernel", "options"), CONVOLUTIONS)
def test_gradients_of_convolutions_are_those_of_vmap_and_grad(image, kernel, options):
    def loss(kernel, image):
        convolved = jax.jit(lambda image, kernel: jax.lax.conv_general_dilated(image, kernel, **options))
        return jnp.sum(jnp.sin(convolved(image, kernel)))

    kernel = jax.random.normal(jax.random.key(0), kernel)
    images = jax.random.normal(jax.random.key(1), (4, *image))
    plain, found = both_gradients(loss, kernel, images)
    np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [
        ((3, 2, 1), (3, 2, 1), "VALID"),  # 7 rows are no multiple of 3
        ((2, 3, 1), (2, 3, 1), "SAME"),  # padded
        ((3, 3, 1), (2, 2, 1), "VALID"),  # overlapping
    ],
)
@pytest.mark.parametrize("least", [False, True])
def test_gradients_of_pooling_are_those_of_vmap_and_grad_ties_included(window, strides, padding, least):
    start, choose = (jnp.inf, jax.lax.min) if least else (-jnp.inf, jax.lax.max)

    def loss(weight, image):
        pooled = jax.lax.reduce_window(weight * image, start, choose, window, strides, padding)
        return jnp.sum(jnp.sin(pooled))

    # Of five numbers only, so that most windows hold their extreme more than once.
    images = jnp.asarray(np.random.default_rng(1).integers(-2, 3, (5, 7, 8, 3)), jnp.float32)
    weight = jnp.arange(7.0 * 8 * 3).reshape(7, 8, 3) % 3 - 1
    plain, found = both_gradients(loss, weight, images)
    np.testing.assert_allclose(found, plain, rtol=1e-6)


WIDE = {
    "as large as the image": ((5, 5, 2), (5, 5, 2, 3), {"padding": "VALID"}),
    "in one dimension": ((4, 2), (4, 2, 3), {"padding": "VALID", "dimension_numbers": ("NHC", "HIO", "NHC")}),
    "in groups": ((4, 4, 4), (4, 4, 2, 4), {"padding": "VALID", "feature_group_count": 2}),
    "spread": ((3, 3, 2), (5, 5, 2, 3), {"padding": [(0, 0)] * 2, "lhs_dilation": (2, 2)}),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize("name", WIDE)
def test_a_row_that_is_not_finite_spoils_no_other_rows_convolution(name, jitted, dtype):
    image, kernel, options = WIDE[name]
    options = {"window_strides": (1,) * (len(image) - 1), "dimension_numbers": ("NHWC", "HWIO", "NHWC")} | options

    def loss(kernel, image):
        return jnp.sum(jnp.sin(jax.lax.conv_general_dilated(image[None], kernel, **options)))

    with jax.enable_x64(dtype == "float64"):
        random = np.random.default_rng(0)
        params, images = random.standard_normal(kernel).astype(dtype), random.standard_normal((8, *image)).astype(dtype)
        images[2] = np.inf

        def take(params, images):
            return training.per_example_gradients(loss, params, images)

        found = np.asarray((jax.jit(take) if jitted else take)(jnp.asarray(params), jnp.asarray(images)))
        alone = np.stack([np.asarray(jax.grad(loss)(jnp.asarray(params), jnp.asarray(one))) for one in images])
    others = np.arange(8) != 2
    assert np.all(np.isfinite(found[others]))
    np.testing.assert_allclose(found[others], alone[others], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "groups", "reached"), [("float32", 1, True), ("float32", 2, False), ("float64", 1, False)]
)
def test_convolutions_that_no_form_reaches_are_refused_where_xla_would_mix_rows(dtype, groups, reached):
    def loss(kernel, images):
        def step(total, image):
            found = jax.lax.conv_general_dilated(image[None], kernel, (1, 1), "VALID", feature_group_count=groups)
            return total + jnp.sum(jnp.sin(found)), None

        return jax.lax.scan(step, jnp.zeros((), kernel.dtype), images)[0]

    with jax.enable_x64(dtype == "float64"):
        kernel, images = jnp.ones((4, 2, 3, 3), dtype), jnp.ones((3, 2, 2 * groups, 3, 3), dtype).at[1].set(jnp.inf)
        if reached:
            assert np.all(np.isfinite(training.per_example_gradients(loss, kernel, images)[jnp.array([0, 2])]))
        else:
            with pytest.raises(ValueError, match="loss must not convolve in groups, or in float64, inside a loop"):
                training.per_example_gradients(loss, kernel, images)


@pytest.mark.parametrize("looped", [False, True])
def test_a_function_that_computes_all_rows_until_the_last_converges_is_refused(looped):
    """Of eight rows the sum moved by 14 clip norms, where their gradients were differences that cancel."""

    def loss(weight, x):
        found = jax.scipy.special.betainc(jnp.exp(x[1]), jnp.exp(x[2]), jax.nn.sigmoid(x[0]))
        return weight * found

    def in_a_loop(weight, x):
        return jax.lax.fori_loop(0, 2, lambda _, total: total + loss(weight, x), 0.0)

    take = training.per_example_gradients
    with pytest.raises(ValueError, match=r"loss must not use jax\.scipy\.special\.betainc"):
        take(in_a_loop if looped else loss, jnp.float32(1.0), jnp.ones((8, 3)))
    assert np.all(np.isfinite(take(lambda w, x: w * jax.scipy.special.gammainc(1.0, x[0]), 1.0, jnp.ones((8, 3)))))
