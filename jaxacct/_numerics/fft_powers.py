"""Powers of a measure by FFT, with a bound on every entry's rounding error (docs/proofs/fft.md, lemmas 1 and 2).

Every entry of a transform of n points of x is off by at most eta' ||x||_1, eta' = (1 + ETA)^(log2 n + 1) - 1;
a product of transforms carries their errors along, frequency by frequency, and the inverse transform averages
them. All of it is computed from the transforms at hand, without an assumption on the distribution.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, xp
from jaxacct._numerics.rounding import UNIT, inflated

ETA = 8.0 * UNIT

Spectrum = tuple[Array, Array, Array]
"""A transform, bounds of its moduli, and bounds of its errors, frequency by frequency."""

_TINY = 1e-300  # no modulus is smaller, unless there is no mass


def _along_last(transform: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """``transform`` of the last axis, in float64 wherever it is mapped over.

    JAX's own rule for batches of transforms converts their input anew, by the flag of the program that maps: in a
    float32 program it would round to float32, which no bound here knows of.
    """
    wrapped = jax.custom_batching.custom_vmap(transform)

    @wrapped.def_vmap
    def _(size: int, mapped: list[bool], x: Array) -> tuple[Array, bool]:
        del size, mapped
        with jax.enable_x64(True):
            return wrapped(x), True

    return wrapped


_rfft = _along_last(lambda x: jnp.fft.rfft(x))


@functools.cache
def _irfft(n: int) -> Callable[[Array], Array]:
    return _along_last(lambda spectrum: jnp.fft.irfft(spectrum, n))


def convolved(measure: Array, count: int, n: int, other: Array | None = None) -> tuple[Array, Array]:
    """``(product, error)``: ``other * measure^count``, a circular convolution on ``n`` points of non-negative measures.

    Shapes ``(..., n)`` and ``(...)``: no entry is off by more than the error. ``count`` >= 1 and ``n`` (even; 2^k, 3
    2^k or 5 2^k) are static. Measures have at most ``n`` points, zeros follow; without ``other`` it is a point mass at
    0.
    """
    power, bound, errors = spectrum(measure, count, n, other)
    # The half spectrum stands for n frequencies: all but the first and the last count twice.
    ends = np.full(n // 2 + 1, 2.0 / n)
    ends[0] = ends[-1] = 1.0 / n
    product = np.fft.irfft(power, n) if array_module(power) is np else _irfft(n)(power)
    return product, inflated(((errors + eta_of(n) * (bound + errors)) * ends).sum(-1), 1e-9)


def eta_of(n: int) -> float:
    """What a transform of ``n`` points of total 1 may be off by, in each entry."""
    return math.expm1((math.log2(n) + 1.0) * math.log1p(ETA))


def spectrum(measure: Array, count: int, n: int, other: Array | None = None) -> tuple[Array, Array, Array]:
    """The transform of ``other * measure^count``, a bound on its moduli, and one on its error, each ``(..., n/2 + 1)``.

    See :func:`convolved`, which inverts it.
    """
    eta = eta_of(n)

    def transformed(x: Array) -> tuple[Array, Array, Array]:
        """The spectrum, a bound on its error, and on the moduli of what it stands for."""
        if array_module(measure, 0.0 if other is None else other) is np:
            spectrum = np.fft.rfft(x, n)
        else:
            spectrum = _rfft(jnp.concatenate([x, jnp.zeros((*x.shape[:-1], n - x.shape[-1]))], -1))
        error = inflated(eta * x.sum(-1, keepdims=True), 1e-9)
        return spectrum, error, inflated(xp.abs(spectrum), 8 * UNIT) + error

    base, off, modulus = transformed(measure)
    relative = count * off / xp.maximum(modulus, _TINY) + 6.0 * UNIT * (count + 1.0)
    power, bound = base, modulus
    for bit in bin(count)[3:]:  # square and multiply; the moduli go through the same motions
        power, bound = power * power, bound * bound
        if bit == "1":
            power, bound = power * base, bound * modulus
    bound = inflated(bound, 4.0 * UNIT * (count + 4.0))
    if other is not None:
        spectrum, off, modulus = transformed(other)
        power, bound = power * spectrum, bound * modulus
        relative = relative + off / xp.maximum(modulus, _TINY) + 12.0 * UNIT
    return power, bound, bound * relative


def product(first: Spectrum, second: Spectrum) -> Spectrum:
    """The product of two spectra: itself, a bound of its moduli, and one of its error."""
    (one, bound, error), (other, other_bound, other_error) = first, second
    both = bound * other_bound
    errors = error * (other_bound + other_error) + bound * other_error + 8.0 * UNIT * both
    return one * other, inflated(both, 8.0 * UNIT), inflated(errors, 1e-9)


def difference(first: np.ndarray, second: np.ndarray, n: int) -> Spectrum:
    """The spectrum of a signed law, with bounds as :func:`product` has them."""
    law = first - second
    found = np.fft.rfft(law, n)
    error = inflated(eta_of(n) * np.abs(law).sum() + UNIT * (first.sum() + second.sum()), 1e-9)
    return found, inflated(np.abs(found), 8.0 * UNIT) + error, np.full(found.shape, error)
