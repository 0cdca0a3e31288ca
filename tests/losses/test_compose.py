"""Parts of a composition by themselves, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.compose import _Measures, _rounded, _supports, _tilt_sums, _unroll, _within


def test_exponential_moments_of_measures_that_may_be_empty():
    rng = np.random.default_rng(0)
    steps, rest = rng.random((2, 2, 8)), rng.random((2, 8))
    steps[1, 0] = rest[1] = 0.0  # nothing is left below
    spacing, means, lowest = 0.5, np.array([0.3, -1.0]), np.array([-3.0, 2.0])
    losses = (lowest[:, None] + np.arange(8)) * spacing - means[:, None]
    with jax.enable_x64(True):
        given = (jnp.asarray(x) for x in (steps, rest, np.zeros((2, 2)), np.zeros(2), lowest, -1.0))
        for s in (2.0, -3.0, 400.0):
            found = _tilt_sums(_Measures(*given), spacing, jnp.asarray(means), jnp.asarray(0.1), jnp.asarray(s))
            given = (jnp.asarray(x) for x in (steps, rest, np.zeros((2, 2)), np.zeros(2), lowest, -1.0))
            for masses, at, value in ((steps, losses, found[0]), (rest, (np.arange(8) - 1) * spacing - 0.1, found[1])):
                value, empty = np.asarray(value), masses.sum(-1) == 0
                with np.errstate(divide="ignore"):
                    truth = np.logaddexp.reduce(np.log(masses) + s * at, -1)
                np.testing.assert_allclose(value[~empty], truth[~empty], rtol=1e-13)
                assert np.all(value[~empty] >= truth[~empty] - 1e-12 * np.abs(truth[~empty]))
                assert np.all((value[empty] < -600) & np.isfinite(value[empty]))


@pytest.mark.slow
def test_entries_keep_their_errors_and_mostly_errors_are_missing_mass():
    value = np.array([[0.0, 1.0, 1e-3, -1e-6, 0.5], [0.2, 1.0, 1e-3, 8.1e-4, 7.9e-4]])
    error = np.array([1e-3, 1e-4])
    within = np.array([True, True, True, True, False])
    with jax.enable_x64(True):
        kept, dropped = (np.asarray(x) for x in _rounded(jnp.asarray(value), jnp.asarray(error), jnp.asarray(within)))
    np.testing.assert_allclose(kept, [[0, 1.001, 0, 0, 0], [0.1999, 0.9999, 9e-4, 7.1e-4, 0]], rtol=1e-12)
    np.testing.assert_allclose(dropped, [1e-3 + 2e-3 + 1e-3, 0.0], rtol=2e-9)
    assert dropped[0] >= 4e-3
    first, last = (np.asarray(x) for x in _supports(jnp.asarray(kept)))
    np.testing.assert_array_equal(first, [1, 0])
    np.testing.assert_array_equal(last, [1, 3])
    nothing = [int(x) for x in _supports(jnp.zeros(5))]
    assert nothing == [5, -1]
    with jax.enable_x64(True):
        inside = _within(jnp.asarray(3.0), jnp.asarray(5.0), jnp.asarray(2.0), 6)
        np.testing.assert_array_equal(inside, [False, True, True, True, False, False])
        turned = _unroll(jnp.arange(8.0).reshape(1, 1, 8), jnp.asarray([-3.0]))
    np.testing.assert_array_equal(np.asarray(turned)[0, 0], np.roll(np.arange(8.0), 3))
