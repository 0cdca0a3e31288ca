"""Powers by FFT: the error bound holds against exact arithmetic, and is not absurdly large."""

import jax
import numpy as np
import pytest

from jaxacct._numerics.fft_powers import convolved


def _exact(measure, exponent, rest):
    """Circular convolution in long double, term by term."""
    result = rest.astype(np.longdouble)
    shifted = np.stack([np.roll(measure.astype(np.longdouble), k) for k in range(rest.size)])
    for _ in range(exponent):
        result = (result[:, None] * shifted).sum(0)
    return result


@pytest.mark.parametrize("n", [64, 96, 160])
def test_a_convolution_power_is_within_its_error_in_numpy_and_in_jax(n):
    rng, index = np.random.default_rng(n), np.arange(40)
    measures = np.exp(-0.5 * ((index - 20) / np.array([[3.0], [0.7]])) ** 2) * rng.uniform(0.5, 1.5, (2, 40))
    measures /= measures.sum(-1, keepdims=True)
    other = rng.random(n) / n
    exact = [_exact(np.pad(m, (0, n - 40)), 5, other) for m in measures]
    with jax.enable_x64(True):
        program = jax.jit(lambda *given: convolved(given[0], 5, n, given[1]))
        traced = [np.asarray(x) for x in program(measures, other)]
    for product, error in (convolved(measures, 5, n, other), traced):
        assert product.shape == (2, n)
        assert error.shape == (2,)
        assert np.all(np.abs(product - exact) <= error[:, None])
        assert np.all(error < 1e-12)
    alone, error = convolved(measures, 5, n)
    point = np.eye(n)[0]
    exact = [_exact(np.pad(m, (0, n - 40)), 5, point) for m in measures]
    assert np.all(np.abs(alone - exact) <= error[:, None])
