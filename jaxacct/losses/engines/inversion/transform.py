"""The Fourier transform of a weighted set of losses at equally spaced frequencies, and its rounding error.

In float64, exp(i w_j x) for j = wide a + b is a product: two short tables and a matrix product instead of a long table.
NumPy takes settings and points in blocks: tables stay in a core's cache, and products stay so small that the BLAS works
them off alone. Its own threads would wait for each other where the settings already share the cores.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, product, shared, xp
from jaxacct._numerics.rounding import UNIT

_TABLE = 2**15  # numbers in a table, at most
_ALONE = 2**15  # multiplications in a complex product of matrices up to which OpenBLAS starts no threads


class Transform(NamedTuple):
    """Real part minus 1 and imaginary part of the transforms, within ``error``; shape ``(B, K, nodes)``."""

    real: Array
    imag: Array
    error: Array


@shared(static=("nodes",))
def transform(losses: Array, weights: Array, spacing: Array, nodes: int) -> Transform:
    """In float64, at ``nodes`` multiples of ``spacing``, shape ``(B,)``; ``nodes`` is a power of 2.

    ``losses`` and ``weights``, whose totals are 1, have shape ``(B, K, S)``.
    """
    wide = 1 << ((nodes.bit_length() - 1) // 2)
    tall = nodes // wide
    spacing = spacing[:, None, None]
    if array_module(losses) is np:
        found = _in_blocks(losses, weights, spacing, tall, wide)
    else:
        inner = _turned(losses * spacing, wide) * weights[:, :, None, :]
        found = product(_turned(losses * (wide * spacing), tall), inner.swapaxes(-1, -2))
    found = found.reshape(*losses.shape[:-1], nodes)
    error = xp.full(found.shape, (80.0 + 5.0 * (tall + wide) + 3.0 * losses.shape[-1]) * UNIT)
    return Transform(xp.real(found) - 1.0, xp.imag(found), error)


def _in_blocks(losses: Array, weights: Array, spacing: Array, tall: int, wide: int) -> Array:
    """The products of tables, shape ``(B, K, tall, wide)``."""
    found = np.zeros((*losses.shape[:-1], tall, wide), np.complex128)
    # Factors of high x thick and thick x wide numbers.
    thick = max(32, _ALONE // (tall * wide))
    high = max(1, min(tall, _ALONE // (thick * wide)))
    rows = max(1, _TABLE // (tall * thick * losses.shape[1]))
    for row in range(0, len(losses), rows):
        some = slice(row, row + rows)
        for first in range(0, losses.shape[-1], thick):
            block = losses[some, :, first : first + thick]
            outer = _powers(block * (wide * spacing[some]), tall)
            inner = _powers(block * spacing[some], wide)
            inner *= weights[some, :, None, first : first + thick]
            outer = outer.reshape(*block.shape[:-1], tall // high, high, block.shape[-1])
            product = np.matmul(outer, inner.swapaxes(-1, -2)[:, :, None])
            found[some] += product.reshape(*block.shape[:-1], tall, wide)
    return found


def _powers(phase: Array, count: int) -> Array:
    """exp(i j phase) for j < ``count``, a power of 2, on a new axis before the last; NumPy's.

    By multiplication, so that two transcendental functions are enough: docs/proofs/transform-rounding.md counts what
    that rounds to.
    """
    base = (np.cos(phase) + 1j * np.sin(phase))[..., None, :]
    table = np.empty((*phase.shape[:-1], count, phase.shape[-1]), np.complex128)
    table[..., :1, :] = 1.0
    known = 1
    while known < count:
        np.multiply(table[..., :known, :], base, out=table[..., known : 2 * known, :])
        known *= 2
        base = base * base
    return table


def _turned(phase: Array, count: int) -> Array:
    """The same in a program, one by one: fewer operations to compile, and more to run."""
    return jnp.exp(1j * (phase[..., None, :] * np.arange(float(count))[:, None]))
