"""Curves of one-parameter families (mu-GDP, rho-zCDP): evaluation in NumPy or JAX, and answers for invalid arguments.

A parameter of 0 is perfect privacy; negative, infinite or NaN ones are no guarantee at all (delta 1, epsilon infinite).
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.rounding import EPS, inflated


def check(**named: ArrayLike) -> None:
    """Raises ValueError unless ``delta`` lies strictly between 0 and 1, and every other number is at least 0."""
    for name, value in named.items():
        (_validate.probability if name == "delta" else _validate.nonnegative)(**{name: value})


def answered(formula: Callable[..., Array], **named: ArrayLike) -> Array:
    """``formula`` of checked float64 arrays: in NumPy where all are concrete, else under ``jit``."""
    check(**named)
    numbers = named.values()
    if _validate.is_traced(named):
        return _compiled(formula, *(jnp.asarray(number, jnp.float64) for number in numbers))
    with np.errstate(all="ignore"):  # invalid numbers fail closed
        return formula(*np.broadcast_arrays(*(np.asarray(number, np.float64) for number in numbers)))


@functools.partial(jax.jit, static_argnums=0)
def _compiled(formula: Callable[..., Array], *numbers: Array) -> Array:
    return formula(*jnp.broadcast_arrays(*numbers))


def delta_of(parameter: Array, epsilon: Array, log_delta: Callable[[Array, Array], Array]) -> Array:
    """exp(log_delta(parameter, epsilon)) where both make sense, rounded up (inside ``enable_x64``)."""
    good = (parameter > 0) & (parameter < np.inf) & (epsilon >= 0) & (epsilon < np.inf)
    value = inflated(xp.exp(log_delta(xp.where(good, parameter, 1.0), xp.where(good, epsilon, 1.0))), 4 * EPS)
    # An exponential that underflowed to 0 is no upper bound; the smallest normal number is.
    value = xp.clip(value, np.finfo(np.float64).tiny, 1.0)
    perfect = (parameter == 0) & (epsilon >= 0)
    perfect |= (epsilon == np.inf) & (parameter >= 0) & (parameter < np.inf)
    return xp.where(good, value, xp.where(perfect, 0.0, 1.0))


def epsilon_of(parameter: Array, delta: Array, from_log: Callable[[Array, Array], Array]) -> Array:
    """from_log(parameter, log delta), an epsilon, where both make sense (inside ``enable_x64``)."""
    good = (parameter > 0) & (parameter < np.inf) & (delta > 0) & (delta < 1)
    value = from_log(xp.where(good, parameter, 1.0), xp.log(xp.where(good, delta, 0.5)))
    perfect = (parameter == 0) & (delta >= 0) | ((parameter >= 0) & (delta >= 1))
    return xp.where(good, value, xp.where(perfect, 0.0, np.inf))
