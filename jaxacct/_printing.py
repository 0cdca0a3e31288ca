"""Formats bounds for people: lower bounds are rounded down, upper bounds up."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


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
