"""Powers by FFT: the error bound holds against exact arithmetic, and is not absurdly large."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses import fourier
from jaxacct.losses.fourier import convolved, powers


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


@pytest.mark.parametrize("n", [64, 96, 160])
def test_a_convolution_power_is_within_its_error_in_numpy_and_in_jax(n):
    rng, index = np.random.default_rng(n), np.arange(40)
    measures = np.exp(-0.5 * ((index - 20) / np.array([[3.0], [0.7]])) ** 2) * rng.uniform(0.5, 1.5, (2, 40))
    measures /= measures.sum(-1, keepdims=True)
    other = rng.random(n) / n
    exact = [_exact(np.pad(m, (0, n - 40))[None], (5,), other) for m in measures]
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
    assert np.all(
        np.abs(alone - [_exact(np.pad(m, (0, n - 40))[None], (5,), point) for m in measures]) <= error[:, None]
    )


@pytest.mark.parametrize("n", [2**16, 3 * 2**15, 5 * 2**14])
def test_a_transform_is_off_by_much_less_than_is_charged(n):
    """There and back: the sum of both transforms' errors, in every entry."""
    x = np.random.default_rng(n).random(n)
    x /= x.sum()
    off = np.abs(np.fft.irfft(np.fft.rfft(x), n) - x).max()
    assert off <= fourier.ETA * np.log2(n) * x.sum() / n * 100
    spectrum = np.fft.rfft(x)
    few = np.random.default_rng(1).integers(0, n // 2, 20)
    exact = [np.exp(-2j * np.pi * ((k * np.arange(n)) % n) / n) @ x for k in few]
    assert np.abs(spectrum[few] - exact).max() <= 0.1 * fourier.ETA * np.log2(n)


def test_errors_of_a_convolution_power_are_those_of_the_docstring(monkeypatch):
    unit, butterfly, n = 1e-5, 1e-4, 16
    monkeypatch.setattr(fourier, "UNIT", unit)
    monkeypatch.setattr(fourier, "ETA", butterfly)
    rng = np.random.default_rng(1)
    measure, other = rng.random(n) ** 3, rng.random(n)
    measure /= 3.0
    eta = (1 + butterfly) ** 5 - 1
    off = [eta * m.sum() * (1 + 1e-9) for m in (measure, other)]
    sizes = [np.abs(np.fft.fft(m)) * (1 + 8 * unit) + e for m, e in zip((measure, other), off, strict=True)]
    for count in (1, 6):
        size = sizes[0] ** count * (1 + 4 * unit * (count + 4))
        relative = count * off[0] / sizes[0] + 6 * unit * (count + 1)
        for rest in (None, other):
            if rest is not None:
                size, relative = size * sizes[1], relative + off[1] / sizes[1] + 12 * unit
            product, error = convolved(measure, count, n, rest)
            expected = np.mean(size * relative + eta * (size + size * relative)) * (1 + 1e-9)
            np.testing.assert_allclose(error, expected, rtol=1e-12)
            exact = np.fft.fft(measure) ** count * (1 if rest is None else np.fft.fft(rest))
            np.testing.assert_allclose(product, np.fft.ifft(exact).real, rtol=1e-11)
