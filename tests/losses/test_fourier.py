"""Powers by FFT: the error bound holds against exact arithmetic, and is not absurdly large."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses import fourier
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


def test_errors_are_those_of_the_docstring(monkeypatch):
    """Frequency by frequency, with roundings and butterflies that cost so much that every term is seen."""
    unit, butterfly, n = 1e-5, 1e-4, 16
    monkeypatch.setattr(fourier, "UNIT", unit)
    monkeypatch.setattr(fourier, "ETA", butterfly)
    generator = np.random.default_rng(1)
    measures, rest = generator.random((2, n)) ** 3, generator.random(n)
    measures /= [[3.0], [5.0]]
    exponents, leftovers = np.array([5.0, 3.0]), np.array([0.0, 6.0])
    with jax.enable_x64(True):
        given = (jnp.asarray(x) for x in (measures, rest, exponents, leftovers))
        steps, step_error, product, error = (np.asarray(x) for x in powers(*given))
    eta = (1 + butterfly) ** 5 - 1
    off = [eta * m.sum() * (1 + 1e-9) for m in (*measures, rest)]
    spectra = [np.fft.fft(m) for m in (*measures, rest)]
    sizes = [np.abs(s) * (1 + 8 * unit) + e for s, e in zip(spectra, off, strict=True)]

    def power(k, m):
        """The size of a power, and its error relative to that."""
        size = sizes[k] ** m * (1 + 4 * unit * (m + 4))
        return size, m * off[k] / sizes[k] + 6 * unit * (m + 1)

    def entry(size, relative):
        return np.mean(size * relative + eta * (size + size * relative)) * (1 + 1e-9)

    np.testing.assert_allclose(step_error, [entry(*power(k, exponents[k])) for k in range(2)], rtol=1e-12)
    (one, first), (two, second) = (power(k, leftovers[k]) for k in range(2))
    relative = off[2] / sizes[2] + first + second + 6 * unit * 2
    np.testing.assert_allclose(error, entry(sizes[2] * one * two, relative), rtol=1e-12)
    for k in range(2):
        np.testing.assert_allclose(steps[k], np.fft.ifft(spectra[k] ** exponents[k]).real, rtol=1e-11)
    np.testing.assert_allclose(product, np.fft.ifft(spectra[2] * spectra[1] ** 6).real, rtol=1e-11)
