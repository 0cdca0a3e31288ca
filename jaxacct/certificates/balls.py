"""Arb's real and complex balls: exact entry of floats, ends of enclosures, and tails of the normal distribution."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol

from flint import acb as acb  # "as": for the other modules of this room
from flint import arb, ctx, fmpq


class Share(Protocol):
    """A number that has no short fraction."""

    def ball(self) -> arb:
        """The number as a ball at the current precision."""
        ...


Exact = int | Fraction | Share


def ball(value: Exact | float | arb) -> arb:
    """A number as a ball at the current precision."""
    if isinstance(value, Fraction):
        return arb(fmpq(value.numerator, value.denominator))
    return arb(value) if isinstance(value, int | float | arb) else value.ball()


def key_of(value: arb) -> tuple[int, ...]:
    """What tells a real ball from every other one, and the precision it is used at."""
    return (*(int(part) for end in (value.mid(), value.rad()) for part in end.man_exp()), ctx.prec)


def positive_part(value: arb) -> arb:
    """max(value, 0) of a ball."""
    return value.max(arb(0))


def up_to(most: arb) -> arb:
    """The ball from 0 to a number."""
    top = most.abs_upper()
    return arb(0) if top == 0 else arb(0).union(top)


def around_zero(most: arb) -> arb:
    """The ball from -most to most."""
    return arb(0, most.abs_upper())


def gaussian_tail(x: arb) -> arb:
    """The probability that a standard normal variable exceeds x."""
    return (x / arb(2).sqrt()).erfc() / 2


def laplace_tail(x: arb) -> arb:
    """The probability that a Laplace variable of scale 1 exceeds x."""
    zero = arb(0)
    return ((-x.max(zero)).exp() - x.min(zero).expm1()) / 2


def log2_size(value: arb) -> float:
    """The binary logarithm of a positive ball's upper end, roughly; -inf for 0."""
    top = value.abs_upper()
    if top == 0:
        return -math.inf
    mantissa, exponent = top.man_exp()
    return int(exponent) + math.log2(int(mantissa))


def digits_of(lower: arb, upper: arb) -> float:
    """To how many decimal digits two ends agree, relative to the upper one; inf where they are equal."""
    width = (upper - lower).abs_upper()
    return math.inf if width == 0 else (log2_size(upper) - log2_size(width)) * math.log10(2)
