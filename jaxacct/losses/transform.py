"""The Fourier transform of a weighted set of losses at equally spaced frequencies, and its rounding error.

In float64, exp(i w_j x) for j = side a + b is a product: two short tables and a matrix product instead of a long table.
Its error is some hundred units in all, which T steps make T times larger.

In float32 that would be far too much. But the losses have mean 0, so the transform minus 1 is a sum of terms of
second order, -2 sin^2(w x / 2) and sin(w x) - w x, each of which float32 knows to a relative unit. Then the error of
the transform's T-th power does not grow with T: at the frequencies that matter, T w^2 E[x^2] is a few units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxacct._arrays import array_module
from jaxacct._log1p import log1p
from jaxacct._rounding import UNIT

__all__ = ["Transform", "log_modulus_of", "transform", "transform_float32"]

Array = Any  # NumPy's or JAX's

_UNIT32 = 2.0**-24


class Transform(NamedTuple):
    """Real part minus 1 and imaginary part of the transforms, within ``error``; shape ``(B, K, nodes)``."""

    real: Array
    imag: Array
    error: Array


def transform(losses: Array, weights: Array, spacing: Array, nodes: int) -> Transform:
    """In float64, NumPy's or JAX's.

    Args:
        losses: shape ``(B, K, S)``.
        weights: totals 1, shape ``(B, K, S)``.
        spacing: distance of frequencies, shape ``(B,)``.
        nodes: number of frequencies, a power of 2.
    """
    xp = array_module(losses)
    side = 2 ** (nodes.bit_length() // 2)
    outer = nodes // side
    spacing = spacing[:, None, None]
    ci, si = _powers(losses * spacing, side)
    co, so = _powers(losses * (side * spacing), outer)
    weights = weights[:, :, None, :]
    # One product of tables twice as high and wide.
    table = xp.concatenate([ci * weights, si * weights], -2)
    both = xp.concatenate([co, so], -2)
    highest = {} if xp is np else {"precision": "highest"}
    found = xp.matmul(both, table.swapaxes(-1, -2), **highest)
    flat = lambda x: x.reshape(*losses.shape[:-1], nodes)  # noqa: E731
    real = flat(found[..., :outer, :side] - found[..., outer:, side:])
    imag = flat(found[..., :outer, side:] + found[..., outer:, :side])
    return Transform(real - 1.0, imag, xp.full_like(real, (80.0 + 12.0 * side + 2.0 * losses.shape[-1]) * UNIT))


def log_modulus_of(real: Array, imag: Array) -> Array:
    """log |1 + real + i imag|, without cancellation near 1, at least -345."""
    xp = array_module(real)
    square = 2.0 * real + real**2 + imag**2
    near = square > -0.5
    direct = xp.log(xp.maximum((1.0 + real) ** 2 + imag**2, 1e-300))
    return 0.5 * xp.where(near, log1p(xp.where(near, square, 0.0)), direct)


def _powers(phase: Array, count: int) -> tuple[Array, Array]:
    """cos(j phase) and sin(j phase) for j < ``count``, a power of 2, on a new axis before the last.

    By multiplication, so that two transcendental functions are enough: what the first rounds to grows with j, and
    each of log2(count) products adds 3 units.
    """
    xp = array_module(phase)
    cos, sin = xp.cos(phase)[..., None, :], xp.sin(phase)[..., None, :]
    real, imag = xp.ones_like(cos), xp.zeros_like(sin)
    while real.shape[-2] < count:
        real, imag = (
            xp.concatenate([real, real * cos - imag * sin], -2),
            xp.concatenate([imag, real * sin + imag * cos], -2),
        )
        cos, sin = (cos - sin) * (cos + sin), 2.0 * cos * sin
    return real, imag


def transform_float32(losses: Array, weights: Array, spacing: Array, nodes: int) -> Transform:
    """In float32 throughout: arguments and results are. See :func:`transform`; losses must have mean 0.

    Rounding x, w and their product moves a phase f by 4 units of itself, which changes 2 sin^2(f / 2) by as much
    times |f sin f| and sin f - f by as much times |f| (1 - cos f). A sum of S terms errs by S units of the sum
    of their sizes.
    """
    phase = losses[..., None, :] * (jnp.arange(nodes, dtype=jnp.float32) * spacing[:, None])[:, None, :, None]
    weights = weights[..., None, :]
    half = jnp.sin(0.5 * phase)
    second = 2.0 * half * half
    square = phase * phase
    series = phase * square * (1.0 - square / 20.0 * (1.0 - square / 42.0 * (1.0 - square / 72.0))) / 6.0
    third = jnp.where(jnp.abs(phase) < 0.6, series, phase - jnp.sin(phase))
    moved = 4.0 * jnp.abs(phase) * (jnp.abs(jnp.sin(phase)) + second)
    size = (losses.shape[-1] + 24.0) * (second + jnp.abs(third)) + moved
    underflow = 1e-30
    error = _UNIT32 * (weights * size).sum(-1) * 1.01 + underflow
    return Transform(-(weights * second).sum(-1), -(weights * third).sum(-1), error)
