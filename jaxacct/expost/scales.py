"""Noise scales of private accuracy checks: plain Gaussian answers, or a sparse vector.

The sparse vector's proof is in docs/theorems/private-checks.md; queries may be chosen adaptively, from earlier answers
and from anything else that both data sets share.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import above, below
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.manual_axes import fori_loop
from jaxacct.expost.parameters import UP, check_order, check_sizes, usable, usable_order

_NEWTON = 40

__all__ = ["plain_gaussian_scale", "sparse_vector_scales"]


def plain_gaussian_scale(epsilon: ArrayLike, *, order: ArrayLike, sensitivity: ArrayLike, checks: ArrayLike) -> Array:
    """Standard deviation of Gaussian noise for ``checks`` answers that are (order, epsilon)-Rényi together.

    sqrt(order sensitivity^2 checks / (2 epsilon)), Appendix D: releases with m budgets need m - 1 checks, because
    the last one is returned unchecked. The queries may be chosen adaptively.

    Args:
        epsilon: Rényi divergence for all checks together, > 0; any shape.
        order: above 1.
        sensitivity: of one answer, > 0.
        checks: whole number >= 1. All shapes broadcast.

    Returns:
        A float64 array, rounded up, also for whatever traced numbers were rounded from; infinity where traced values
        make no sense.

    Raises:
        ValueError: concrete values out of range.
    """
    check_order(order)
    check_sizes(epsilon=epsilon, sensitivity=sensitivity)
    _validate.count(checks=checks)
    return _plain(below(epsilon), above(order), above(sensitivity), checks)


def sparse_vector_scales(epsilon: ArrayLike, *, order: ArrayLike, sensitivity: ArrayLike) -> tuple[Array, Array]:
    """Noise of a sparse vector that is (order, epsilon)-Rényi up to its first "above": (sigma, scale).

    The split of epsilon between threshold and queries minimises the total variance sigma^2 + 2 scale^2
    (Appendix D). With e1 for the threshold and e2 for the queries it is order D^2 / (2 e1) + 8 D^2 / e2^2, and
    least where order e2^3 = 32 e1^2, which in x = log(e2 / e1) is a strictly increasing equation of slope 2 to 3.

    Args:
        epsilon: Rényi divergence of the whole sequence of answers, > 0; any shape.
        order: above 1.
        sensitivity: of one query, > 0. All shapes broadcast.

    Returns:
        ``(sigma, scale)``, float64 arrays of the broadcast shape, rounded up, which are the standard deviation of the
        threshold's Gaussian noise, drawn once, and the scale of each query's Laplace noise (standard deviation
        sqrt(2) scale). Infinity where traced values make no sense.

    Raises:
        ValueError: concrete values out of range.
    """
    check_order(order)
    check_sizes(epsilon=epsilon, sensitivity=sensitivity)
    return _sparse_vector(below(epsilon), above(order), above(sensitivity))


def _wide(*values: ArrayLike) -> list[Array]:
    return list(jnp.broadcast_arrays(*(jnp.asarray(v, jnp.float64) for v in values)))


@in_float64
@jax.jit
def _plain(epsilon: ArrayLike, order: ArrayLike, sensitivity: ArrayLike, checks: ArrayLike) -> Array:
    epsilon, order, sensitivity, checks = _wide(epsilon, order, sensitivity, checks)
    sigma = sensitivity * jnp.sqrt(0.5 * order * checks / epsilon) * UP
    return jnp.where(usable_order(order) & usable(epsilon, sensitivity) & (checks >= 1), sigma, jnp.inf)


@in_float64
@jax.jit
def _sparse_vector(epsilon: ArrayLike, order: ArrayLike, sensitivity: ArrayLike) -> tuple[Array, Array]:
    epsilon, order, sensitivity = _wide(epsilon, order, sensitivity)
    good = usable_order(order) & usable(epsilon, sensitivity)
    constant = jnp.log(jnp.where(good, order, 2.0)) + jnp.log(jnp.where(good, epsilon, 1.0)) - jnp.log(32.0)

    def newton(_: int, x: Array) -> Array:
        # Slope in [2, 3]: every step leaves at most a third of the error.
        excess = constant - 3.0 * jax.nn.softplus(-x) + 2.0 * jax.nn.softplus(x)
        return x - excess / (2.0 + jax.nn.sigmoid(-x))

    x = fori_loop(0, _NEWTON, newton, jnp.zeros_like(constant))
    # Every split is valid: rounding x costs utility and no privacy.
    threshold, queries = epsilon * jax.nn.sigmoid(-x), epsilon * jax.nn.sigmoid(x)
    sigma = sensitivity * jnp.sqrt(0.5 * order / threshold) * UP
    scale = 2.0 * sensitivity / queries * UP
    return jnp.where(good, sigma, jnp.inf), jnp.where(good, scale, jnp.inf)
