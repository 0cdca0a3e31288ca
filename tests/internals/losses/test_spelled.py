"""Concrete curves compile nothing, and what NumPy and JAX spell differently means the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct._numerics import curve_arrays as _spelled
from jaxacct._numerics.arrays import running_greatest

pytestmark = pytest.mark.usefixtures("in_float64")


@pytest.mark.parametrize("size", [0, 1, 4, 5, 11])
def test_mapping_in_pieces_is_mapping(size):
    rows, other = np.arange(3.0 * size).reshape(size, 3), np.arange(size)
    ask = lambda given: (given[0].sum(-1) * given[1], given[0][:, :2])  # noqa: E731
    for program in (lambda x: _spelled.mapped(ask, x, 4), jax.jit(lambda x: _spelled.mapped(ask, x, 4))):
        total, part = program((rows, other))
        np.testing.assert_array_equal(total, rows.sum(-1) * other)
        np.testing.assert_array_equal(part, rows[:, :2])


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (0,), (2, 0)])
def test_rows_of_any_batch(shape):
    one, other = np.random.default_rng(0).random((*shape, 4)), np.arange(2.0)
    ask = lambda a, b: {"sum": a.sum() + b.sum(), "joined": (jnp if isinstance(a, jax.Array) else np).append(a, b)}  # noqa: E731
    for found in (_spelled.rows(ask, one, other), _spelled.rows(ask, jnp.asarray(one), other)):
        np.testing.assert_allclose(found["sum"], one.sum(-1) + 1)
        assert found["joined"].shape == (*shape, 6)


def test_arrays_are_changed_as_copies():
    for given in (np.arange(4.0), jnp.arange(4.0)):
        np.testing.assert_array_equal(_spelled.put(given, 1, 9.0), [0, 9, 2, 3])
        np.testing.assert_array_equal(_spelled.added(given, np.array([1, 1]), np.array([2.0, 3.0])), [0, 6, 2, 3])
        np.testing.assert_array_equal(given, np.arange(4.0))
        for reverse in (False, True):
            rows, way = given[None] * np.array([[1.0], [-1.0]]), slice(None, None, -1 if reverse else 1)
            expected = np.maximum.accumulate(np.asarray(rows)[:, way], -1)[:, way]
            np.testing.assert_array_equal(running_greatest(rows, reverse=reverse), expected)
