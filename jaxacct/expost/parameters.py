"""Checks of noise parameters: errors where they are concrete, failing closed where they are traced.

Orders, budgets and sensitivities lie between 2^-300 and 2^300 (about 1e-90 and 1e90). Outside of that a noise scale
may underflow to zero, and zero noise would release the value itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate

UP = 1 + 2.0**-48  # covers the roundings of every noise scale, and of the sums of increments
_LEAST, _MOST = 2.0**-300, 2.0**300


def check_sizes(**named: ArrayLike) -> None:
    """Raises ValueError unless every concrete value is a positive number that scales can be made from."""
    _validate.positive(**named)
    for name, value in named.items():
        if not _validate.is_traced(value) and not np.all(_inside(np.asarray(value, np.float64))):
            raise ValueError(f"{name} must be between 1e-90 and 1e90, got {value}")


def check_epsilon(epsilon: ArrayLike) -> None:
    """Raises ValueError unless concrete ``epsilon``, returned by a mechanism, is at least 0; infinity is allowed."""
    _validate.numbers(epsilon=epsilon)
    if not _validate.is_traced(epsilon) and not np.all(np.asarray(epsilon, np.float64) >= 0):
        raise ValueError(f"epsilon must be at least 0, got {epsilon}")


def check_order(order: ArrayLike) -> None:
    """Raises ValueError unless every concrete order is above 1, and a number that scales can be made from."""
    _validate.greater(1.0, order=order)
    check_sizes(order=order)


def check_row(epsilons: ArrayLike) -> None:
    """Raises ValueError unless ``epsilons`` are one row of budgets, positive where concrete."""
    _validate.numbers(epsilons=epsilons)
    if np.ndim(epsilons) != 1 or np.shape(epsilons)[0] < 1:
        raise ValueError(f"epsilons must have shape (m,) with m >= 1, got shape {np.shape(epsilons)}")
    check_sizes(epsilons=epsilons)


def check_budgets(epsilons: ArrayLike) -> None:
    """Raises ValueError unless concrete ``epsilons`` are one row of budgets that rise or stay."""
    check_row(epsilons)
    if not _validate.is_traced(epsilons):
        row = np.asarray(epsilons, np.float64)
        if np.any(row[1:] < row[:-1]):
            raise ValueError(f"epsilons must not fall, got {row.tolist()}")


def usable(*values: Array) -> Array:
    """Where all values, traced or not, are what `check_sizes` asks for (False for NaN)."""
    good = _inside(values[0])
    for value in values[1:]:
        good &= _inside(value)
    return good


def usable_order(order: Array) -> Array:
    """Where an order is what `check_order` asks for."""
    return usable(order) & (order > 1)


def _inside(value: Any) -> Any:
    return (value >= _LEAST) & (value <= _MOST)
