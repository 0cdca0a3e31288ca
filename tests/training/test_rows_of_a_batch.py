"""A hypothesis of docs/proofs/filters.md: other rows of a batch, and one's own place in it, change no bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.training import per_example_gradients

RNG = np.random.default_rng(4)


def dense(params, example):
    x, y = example
    hidden = jnp.tanh(x.reshape(-1) @ params[0])
    return -jax.nn.log_softmax(hidden @ params[1])[y]


def convolution(params, example):
    x, y = example
    image = jax.lax.conv_general_dilated(x[None], params[0], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return -jax.nn.log_softmax(jax.nn.relu(image).reshape(-1) @ params[1])[y]


LOSSES = {
    dense: [RNG.normal(size=(147, 33)) / 12, RNG.normal(size=(33, 5)) / 6],
    convolution: [RNG.normal(size=(3, 3, 3, 8)) / 5, RNG.normal(size=(128, 5)) / 11],
}
ROWS = 64


@pytest.mark.parametrize("loss", LOSSES)
def test_a_gradient_has_the_same_bits_wherever_it_stands_in_a_piece(loss):
    params = [jnp.asarray(x, jnp.float32) for x in LOSSES[loss]]
    data = jnp.asarray(RNG.normal(size=(ROWS, 7, 7, 3)), jnp.float32), jnp.asarray(RNG.integers(0, 5, ROWS))
    gradients = jax.jit(lambda rows: per_example_gradients(loss, params, rows))
    found = gradients(data)
    order = RNG.permutation(ROWS)
    moved = gradients(jax.tree.map(lambda x: x[order], data))
    alone = gradients((data[0].at[1:].set(9.0), data[1].at[1:].set(0)))
    for one, two, three in zip(*map(jax.tree.leaves, (found, moved, alone)), strict=True):
        np.testing.assert_array_equal(one[order], two)
        np.testing.assert_array_equal(one[0], three[0])
