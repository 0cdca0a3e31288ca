"""Outward rounding: numbers made a little larger or smaller, so that a computed bound stays a bound.

A float64 operation is off by at most ``UNIT`` of its result. Whoever computes a bound counts the operations (or bounds
their number), and moves the result by more than they can be off, to the side that is safe; the share that each place
needs is said there. These functions name the side, so that no place spells a sign of its own.
"""

from __future__ import annotations

from typing import Any

__all__ = ["EPS", "UNIT", "deflated", "inflated"]

EPS = 2.0**-52
"""The distance from 1.0 to the next float64."""

UNIT = 2.0**-53
"""The largest relative error of one float64 operation that rounds to the nearest."""


def inflated(value: Any, share: Any) -> Any:
    """``value``, larger in magnitude by ``share`` of itself."""
    return value * (1.0 + share)


def deflated(value: Any, share: Any) -> Any:
    """``value``, smaller in magnitude by ``share`` of itself."""
    return value * (1.0 - share)
