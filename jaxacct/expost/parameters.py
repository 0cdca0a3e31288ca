"""Checks of noise parameters: errors where they are concrete, failing closed where they are traced.

Orders, budgets and sensitivities lie between 2^-300 and 2^300 (about 1e-90 and 1e90). Outside of that a noise scale
may underflow to zero, and zero noise would release the value itself.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct.filters.amounts import caller_dtype, outward

UP = 1 + 2.0**-48  # covers the roundings of every noise scale, and of the sums of increments
_LEAST, _MOST = 2.0**-300, 2.0**300


def check_sizes(**named: ArrayLike) -> None:
    """Raises ValueError unless every concrete value is a positive number that scales can be made from."""
    _validate.positive(**named)
    for name, value in named.items():
        if not _validate.is_traced(value) and not np.all(_inside(np.asarray(value, np.float64))):
            raise ValueError(f"{name} must be between 1e-90 and 1e90, got {value}")


def check_order(order: ArrayLike) -> None:
    """Raises ValueError unless every concrete order is above 1, and a number that scales can be made from."""
    _validate.greater(1.0, order=order)
    check_sizes(order=order)


def check_row(epsilons: ArrayLike, name: str = "epsilons") -> None:
    """Raises ValueError unless ``epsilons`` are one row of budgets, positive where concrete."""
    _validate.numbers(**{name: epsilons})
    if np.ndim(epsilons) != 1 or np.shape(epsilons)[0] < 1:
        raise ValueError(f"{name} must have shape (m,) with m >= 1, got shape {np.shape(epsilons)}")
    check_sizes(**{name: epsilons})


def check_budgets(epsilons: ArrayLike, name: str = "epsilons") -> None:
    """Raises ValueError unless concrete ``epsilons`` are one row of budgets that rise or stay."""
    check_row(epsilons, name)
    if not _validate.is_traced(epsilons) and np.any(np.diff(np.asarray(epsilons, np.float64)) < 0):
        raise ValueError(f"{name} must not fall, got {np.asarray(epsilons).tolist()}")


def usable(*values: Array) -> Array:
    """Where all values, traced or not, are what `check_sizes` asks for (False for NaN)."""
    return functools.reduce(operator.and_, map(_inside, values))


def usable_order(order: Array) -> Array:
    """Where an order is what `check_order` asks for."""
    return usable(order) & (order > 1)


def in_caller_dtype(value: Array, *, up: bool) -> Array:
    """A computed bound, as it is returned: NumPy's float64, or rounded to the program's float type inside a trace."""
    if not _validate.is_traced(value):
        return np.asarray(value, np.float64)[()]
    dtype = caller_dtype()
    with jax.enable_x64(True):
        return outward(value, dtype, up=up)


def rounded_up(function: Callable[..., Array]) -> Callable[..., Array]:
    """Runs a function in float64 and returns its upper bound as `in_caller_dtype` does."""

    @functools.wraps(function)
    def inner(*args: ArrayLike) -> Array:
        return in_caller_dtype(in_float64(function)(*args), up=True)

    return inner


def _inside(value: Array) -> Array:
    return (value >= _LEAST) & (value <= _MOST)
