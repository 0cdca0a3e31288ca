"""Parameters as float64 values; NaN where they make no sense."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxacct import _validate

__all__ = ["array_module", "fractional_steps", "nonnegative", "positive", "times", "whole_number", "whole_steps"]

_fractions = contextvars.ContextVar("fractions", default=False)


def array_module(*values: Any) -> Any:
    """NumPy for concrete numbers, which costs no compilation; jax.numpy for traced ones."""
    return jnp if _validate.is_traced(values) else np


def positive(value: Any) -> Any:
    """``value`` in float64, NaN where it is not a finite number above 0."""
    xp = array_module(value)
    value = xp.asarray(value, np.float64)
    return xp.where((value > 0) & xp.isfinite(value), value, np.nan)


def nonnegative(value: Any, most: float = np.inf) -> Any:
    """``value`` in float64, NaN where it is not a finite number of at least 0 and at most ``most``."""
    xp = array_module(value)
    value = xp.asarray(value, np.float64)
    return xp.where((value >= 0) & xp.isfinite(value) & (value <= most), value, np.nan)


def whole_number(value: Any, least: float) -> Any:
    """``value`` in float64, NaN where it is not a whole number of at least ``least``."""
    xp = array_module(value)
    value = xp.asarray(value, np.float64)
    return xp.where((value >= max(least, 1.0)) & (value == xp.floor(value)) & (value <= 2.0**53), value, np.nan)


def whole_steps(steps: Any) -> Any:
    """Steps as float64, NaN where they are not a whole number of at least 1."""
    if not _fractions.get():
        return whole_number(steps, 1.0)
    xp = array_module(steps)
    steps = xp.asarray(steps, np.float64)
    return xp.where((steps >= 1.0) & (steps <= 2.0**53), steps, np.nan)


@contextlib.contextmanager
def fractional_steps() -> Iterator[None]:
    """Lets steps be any numbers of at least 1, for differences between them."""
    token = _fractions.set(True)
    try:
        yield
    finally:
        _fractions.reset(token)


def times(count: Any, steps: Any) -> Any:
    """The product of two numbers of steps."""
    return whole_steps(count) * whole_steps(steps)
