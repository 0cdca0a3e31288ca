"""Powers by FFT: the error bound holds against exact arithmetic, and is not absurdly large."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.fourier import powers


def _exact(measures, exponents, rest):
    """Circular convolution in long double, term by term."""
    n = rest.size
    result = rest.astype(np.longdouble)
    for measure, exponent in zip(measures, exponents, strict=True):
        for _ in range(exponent):
            shifted = np.stack([np.roll(measure.astype(np.longdouble), k) for k in range(n)])
            result = (result[:, None] * shifted).sum(0)
    return result


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("exponents", [(1, 0), (3, 2), (16, 5)])
def test_every_entry_is_within_its_error_of_the_exact_power(seed, exponents):
    generator = np.random.default_rng(seed)
    # Tilted losses are like this: a narrow peak and tails over hundreds of orders of magnitude.
    index = np.arange(64)
    measures = np.stack([np.exp(-0.5 * ((index - c) / w) ** 2) for c, w in ((20, 3.0), (10, 0.7))])
    measures *= generator.uniform(0.5, 1.5, measures.shape)
    measures /= measures.sum(-1, keepdims=True)
    rest = np.zeros(64)
    rest[5] = 1.0
    with jax.enable_x64(True):
        counts = jnp.asarray(exponents, jnp.float64)
        steps, step_error, product, error = powers(jnp.asarray(measures), jnp.asarray(rest), counts, counts)
    steps, step_error, product, error = (np.asarray(x) for x in (steps, step_error, product, error))
    exact = _exact(measures, exponents, rest)
    actual = np.abs(product - exact).max()
    assert actual <= error
    assert error < 1e-12
    for k in range(2):
        single = _exact(measures[k : k + 1], exponents[k : k + 1], np.eye(64)[0])
        assert np.abs(steps[k] - single).max() <= step_error[k]
