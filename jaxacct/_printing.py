"""Formats bounds for people: lower bounds are rounded down, upper bounds up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np


def rounded_up(value: float, digits: int = 6) -> str:
    """``value`` with ``digits`` significant digits, no smaller than it: an upper bound stays one."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 6) -> str:
    """``value`` with ``digits`` significant digits, no larger than it: a lower bound stays one."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{Context(prec=digits, rounding=rounding).create_decimal(value):.{digits}g}"


def plainly(value: object, names: Iterable[str]) -> str:
    """``Gaussian(sigma=1.0)``: a value by its type and these attributes, numbers as numbers."""
    return f"{type(value).__name__}({', '.join(f'{name}={_plain(getattr(value, name))}' for name in names)})"


def _plain(value: object) -> str:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return f"({', '.join(map(_plain, value))}{',' if len(value) == 1 else ''})"
    scalar = isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim)
    return str(value) if scalar and np.asarray(value).dtype.kind in "fiub" else repr(value)
