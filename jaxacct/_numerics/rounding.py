"""Outward rounding: numbers made a little larger or smaller, so that a computed bound stays a bound.

A float64 operation is off by at most ``UNIT`` of its result. Code that computes a bound counts the operations (or
bounds their number), and moves the result by more than they can be off, to the safe side, which these functions name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar, cast

import numpy as np

from jaxacct._numerics.arrays import Array, Real, array_module, stopped, xp

_Number = TypeVar("_Number", bound=Real)

EPS = 2.0**-52
"""The distance from 1.0 to the next float64."""

UNIT = 2.0**-53
"""The largest relative error of one float64 operation that rounds to the nearest."""


def inflated(value: _Number, share: Real) -> _Number:
    """``value``, larger in magnitude by ``share`` of itself."""
    return cast(_Number, value * (1.0 + share))


def deflated(value: _Number, share: Real) -> _Number:
    """``value``, smaller in magnitude by ``share`` of itself."""
    return cast(_Number, value * (1.0 - share))


def next_to(value: Fraction, toward: float) -> float:
    """The float64 next to ``value`` that is no smaller, or no larger: ``toward`` is inf or -inf."""
    nearest = float(value)
    beyond = Fraction(nearest) < value if toward > 0 else Fraction(nearest) > value
    return math.nextafter(nearest, toward) if beyond else nearest


def total(terms: Sequence[Real]) -> Array:
    """The sum of arrays of numbers >= 0 that broadcast, off by less than 2 units however many there are.

    The error of each addition is found exactly, and the errors are added at the end (Knuth 1969, section 4.2.2,
    theorem B; with n terms the result is within 1 unit, and n^2 units squared: Ogita, Rump, Oishi 2005, Prop. 4.5).
    """
    if all(isinstance(term, np.ndarray | np.generic | float) and not np.ndim(term) for term in terms):
        try:
            return cast(Array, np.float64(math.fsum(terms)))
        except OverflowError:
            return cast(Array, np.float64(np.inf))
    value, missed = terms[0], 0.0
    for term in terms[1:]:
        new = value + term
        added = new - value
        missed = missed + ((value - (new - added)) + (term - added))
        value = new
    missed = xp.where(value < np.inf, missed, 0.0) if len(terms) > 1 else missed
    return cast(Array, value + missed)


def quotient_up(first: Array, second: Array) -> Array:
    """At least ``first / second``, positive float64 arrays: the quotient itself, or the next float64.

    NumPy's remainder of the division by the quotient is exact (Dekker 1971) where nothing overflows or is subnormal, so
    that a quotient that is large enough stays as it is. Elsewhere, and inside a trace, it is always the next one.
    """
    with np.errstate(all="ignore"):
        quotient = xp.asarray(first / second)
        still = stopped(quotient)  # `nextafter` has no derivative
        unit = xp.where(still > 0, xp.nextafter(still, np.inf) - still, 0.0)
        above = quotient + xp.where(still < np.inf, unit, 0.0)
        if array_module(first, second) is not np:
            return above
        product, missed = _product(quotient, np.asarray(second))
        exact = (quotient > _SMALL) & (quotient < _LARGE) & (second > _SMALL) & (second < _LARGE) & (first > _SMALL)
        return np.where(exact & ((first - product) - missed <= 0.0), quotient, above)


_SMALL, _LARGE = 1e-140, 1e140  # between which products, and the errors of products, are normal numbers


def _product(first: Array, second: Array) -> tuple[Array, Array]:
    """The rounded product and its error, exactly (Veltkamp's and Dekker's)."""
    product = first * second
    (a, b), (c, d) = _halves(first), _halves(second)
    return product, ((a * c - product) + a * d + b * c) + b * d


def _halves(value: Array) -> tuple[Array, Array]:
    """Two numbers of 26 bits whose sum is ``value``."""
    scaled = value * 134217729.0
    high = scaled - (scaled - value)
    return high, value - high
