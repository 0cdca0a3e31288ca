"""Adds Gaussian noise to an exact sum: the point where private gradients become a release."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics import manual_axes
from jaxacct._numerics.float32 import no_less
from jaxacct._types import PyTree
from jaxacct.training import checks as _check
from jaxacct.training.gradients import fixed_point
from jaxacct.training.gradients.fixed_point import FixedPointSum
from jaxacct.training.keys import check_key

# Sums of four float32 normals never leave +-11: each is an inverse error function of a 23-bit uniform,
# within 5.5.
_LARGEST_NORMAL = 11.0
LEAST_SIGMA = 2.0**-24
"""The smallest noise multiplier of a release: a quantum of the exact sum. Less noise would be rounded away."""


def largest_sigma(size: int) -> float:
    """The largest noise multiplier that an exact sum of ``size`` examples can hold (11,900 for 2^18)."""
    _validate.whole(size=size)
    return 2.0**29 / 2.0 ** fixed_point.high_bits(int(size)) / _LARGEST_NORMAL


def usable_sigma(sigma: jax.Array, size: int) -> jax.Array:
    """Whether an exact sum of ``size`` examples can hold noise of the multiplier ``sigma``; False for NaN."""
    return (sigma >= LEAST_SIGMA) & (sigma <= largest_sigma(size))


def check_sigma(sigma: ArrayLike, size: int) -> None:
    """Raises ValueError unless ``sigma`` is one number, and one that `usable_sigma` takes where it is concrete."""
    _validate.number(_validate.positive, sigma=sigma)
    _validate.at_least(LEAST_SIGMA, sigma=sigma)
    _validate.at_most(largest_sigma(size), sigma=sigma)


def noise_length(tree: object, sigma: ArrayLike, rate: ArrayLike, clip_norm: ArrayLike, size: int) -> jax.Array:
    """The norm, about, of the noise alone in an averaged gradient of the shapes of ``tree``, () float32."""
    dimension = sum(leaf.size for leaf in jax.tree.leaves(tree))
    return sigma * jnp.float32(clip_norm * dimension**0.5 / size) / rate


def gaussian_tree(key: jax.Array, shapes: object) -> PyTree:
    """Independent N(0, 1) entries, float32, shaped like the pytree ``shapes``: one vector, cut into its leaves.

    Each entry is half a sum of four of JAX's normals. One float32 normal stops at 5.4 standard deviations
    and sits on at most 2^23 values; a half-sum of four reaches twice as far on a much finer set (Holohan &
    Braghin 2021, "Secure random sampling in differential privacy"). It is still an approximation of a real
    Gaussian, as in every implementation on floating-point hardware; the accounting is for the real one.
    """
    fixed_point.check_shapes(shapes)
    leaves, structure = jax.tree.flatten(shapes)
    sizes = [math.prod(jnp.shape(leaf)) for leaf in leaves]

    def add(total: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        return total + jax.random.normal(key, total.shape, jnp.float32), None

    # One generator in the program, whatever the number of leaves: it is what takes compilers longest.
    total = 0.5 * manual_axes.scan(add, jnp.zeros(sum(sizes), jnp.float32), jax.random.split(key, 4))[0]
    parts = zip(np.cumsum(sizes), sizes, leaves, strict=True)
    cut = [jax.lax.slice(total, [end - n], [end]).reshape(jnp.shape(leaf)) for end, n, leaf in parts]
    return jax.tree.unflatten(structure, cut)


def add_gaussian_noise(key: jax.Array, total: FixedPointSum, sigma: ArrayLike, clip_norm: ArrayLike) -> PyTree:
    """The release: ``total`` plus N(0, (sigma * clip_norm)^2) on every coordinate, a float32 pytree.

    The noise is added to the exact sum and the result converted to floating point afterwards, so rounding is
    post-processing of (sum + noise) and not part of the query.

    Args:
        key: a typed PRNG key that nothing else uses.
        total: from :func:`jaxacct.training.clipped_gradient_sum`, in units of ``clip_norm``.
        sigma: scalar noise multiplier in [2^-24, :func:`largest_sigma`]. The float32 that is used is no smaller than
            it: the least one above a concrete number, the next one above a traced number, whatever was rounded to it.
        clip_norm: scalar C in [1e-12, 1e12].

    Returns:
        The release. If a traced argument is out of range (or NaN) every entry is NaN: nothing is released with too
        little noise.

    Raises:
        ValueError: a pair of keys, no sum, or a sigma or clip norm that is not one number or, where it is concrete, out
            of range.
    """
    check_key(key)
    _validate.instance(FixedPointSum, total=total)
    check_sigma(sigma, total.size)
    _check.clip_norms(clip_norm=clip_norm)
    usable = usable_sigma(jnp.asarray(sigma), total.size) & _check.usable_clip(jnp.asarray(clip_norm))
    safe = jnp.where(usable, no_less(sigma), 1.0)
    noise = jax.tree.map(lambda leaf: leaf * safe, gaussian_tree(key, total.high))
    release = fixed_point.released(fixed_point.offset(total, noise), clip_norm)
    return jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), release)
