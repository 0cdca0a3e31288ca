"""What the curves of one-parameter families share: which arguments make sense, and what the others get.

A parameter of 0 is perfect privacy; negative, infinite or NaN ones are no guarantee at all (delta 1, epsilon infinite).
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct._rounding import EPS, inflated

__all__ = ["delta_of", "epsilon_of"]


def delta_of(parameter: ArrayLike, epsilon: ArrayLike, log_delta: Callable[[Array, Array], Array]) -> Array:
    """exp(log_delta(parameter, epsilon)) where both make sense, rounded up (inside ``enable_x64``)."""
    parameter, epsilon = jnp.broadcast_arrays(jnp.asarray(parameter, jnp.float64), jnp.asarray(epsilon, jnp.float64))
    good = (parameter > 0) & (parameter < jnp.inf) & (epsilon >= 0) & (epsilon < jnp.inf)
    value = inflated(jnp.exp(log_delta(jnp.where(good, parameter, 1.0), jnp.where(good, epsilon, 1.0))), 4 * EPS)
    # An exponential that underflowed to 0 is no upper bound; the smallest normal number is.
    value = jnp.clip(value, jnp.finfo(jnp.float64).tiny, 1.0)
    perfect = (parameter == 0) & (epsilon >= 0)
    perfect |= (epsilon == jnp.inf) & (parameter >= 0) & (parameter < jnp.inf)
    return jnp.where(good, value, jnp.where(perfect, 0.0, 1.0))


def epsilon_of(parameter: ArrayLike, delta: ArrayLike, from_log: Callable[[Array, Array], Array]) -> Array:
    """from_log(parameter, log delta), an epsilon, where both make sense (inside ``enable_x64``)."""
    parameter, delta = jnp.broadcast_arrays(jnp.asarray(parameter, jnp.float64), jnp.asarray(delta, jnp.float64))
    good = (parameter > 0) & (parameter < jnp.inf) & (delta > 0) & (delta < 1)
    value = from_log(jnp.where(good, parameter, 1.0), jnp.log(jnp.where(good, delta, 0.5)))
    perfect = (parameter == 0) & (delta >= 0) | ((parameter >= 0) & (delta >= 1))
    return jnp.where(good, value, jnp.where(perfect, 0.0, jnp.inf))
