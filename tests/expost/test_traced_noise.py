"""Noise of traced parameters is no less than that of any Python floats that they were rounded from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import expost

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
# (epsilon, order, sensitivity): each rounds up or down by itself.
NUMBERS = [tuple(RNG.uniform(low, high) for low, high in ((0.05, 3.0), (1.5, 9.0), (0.1, 5.0))) for _ in range(10)]


def single(kind):
    return lambda e, a, s: kind(jnp.zeros(16), s, order=8.0).path(KEY, jnp.reshape(e, 1))[0]


def answered(check):
    """What a check adds to its threshold, and to scores."""
    return lambda e, a, s: jnp.stack(jax.tree.leaves(check(e, s).start(KEY)))


RELEASES = {
    "brownian": single(expost.Brownian),
    "precision_weighted": single(expost.PrecisionWeighted),
    "laplace_reduction": lambda e, a, s: expost.LaplaceReduction(jnp.zeros(16), s).path(KEY, jnp.reshape(e, 1))[0],
    "brownian_step": lambda e, a, s: expost.reduction.brownian_step(
        KEY, jnp.zeros(16), jnp.zeros(16), 0.0, e, order=a, sensitivity=s
    ),
    "doubling": single(expost.Doubling),
    "plain_gaussian_scale": lambda e, a, s: expost.scales.plain_gaussian_scale(e, order=a, sensitivity=s, checks=3),
    "sparse_vector_scales": lambda e, a, s: jnp.stack(expost.scales.sparse_vector_scales(e, order=a, sensitivity=s)),
    "AboveThreshold": answered(lambda e, s: expost.AboveThreshold(0.0, e, s)),
    "SparseVector": answered(lambda e, s: expost.SparseVector(0.0, e, s, order=2.0)),
}


@pytest.mark.parametrize("name", RELEASES)
def test_traced_parameters_draw_no_less_noise_than_the_floats_they_were(name):
    draw = RELEASES[name]
    with jax.enable_x64(True):  # so that the noise of the floats themselves comes out unrounded
        exact = [np.abs(np.asarray(draw(*map(np.float64, numbers)))) for numbers in NUMBERS]
        narrow = jax.jit(draw)
        found = [np.abs(np.asarray(narrow(*map(np.float32, numbers)))) for numbers in NUMBERS]
    for one, other in zip(found, exact, strict=True):
        assert np.all(one.astype(np.float64) >= other * (1 - 1e-15))
        assert np.all(one <= other * (1 + 1e-6))


def test_equal_budgets_repeat_a_release_whichever_of_them_is_traced():
    value, last = jnp.ones(4), jnp.arange(4.0)
    step = lambda s, e: expost.reduction.brownian_step(KEY, value, last, s, e, order=2.0, sensitivity=1.0)  # noqa: E731
    for spent, epsilon in ((0.3, 0.3), (np.float32(0.3), 0.3)):
        both = jax.jit(step)(spent, epsilon)
        one = jax.jit(lambda e, s=spent: step(s, e))(epsilon)
        other = jax.jit(lambda s, e=epsilon: step(s, e))(spent)
        for found in (both, one, other):
            np.testing.assert_array_equal(found, last)
    assert np.isnan(jax.jit(step)(0.31, 0.3)).all()
