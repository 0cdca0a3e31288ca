"""Arb's real and complex balls: exact entry of floats, ends of enclosures, and tails of the normal distribution."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

try:
    from flint import acb, arb, ctx, fmpq
except ImportError as problem:  # pragma: no cover
    raise ImportError(
        "certificates need python-flint, which is not installed; install jaxacct with its extra: "
        "pip install 'jaxacct[certify]'"
    ) from problem

__all__ = [
    "acb",
    "arb",
    "ball",
    "ctx",
    "digits_of",
    "gaussian_tail",
    "key_of",
    "log2_size",
    "positive_part",
    "precision",
]


def ball(value: Any) -> Any:
    """A Python number, a `Fraction`, a ball or a `Share` as a ball at the current precision."""
    if isinstance(value, Fraction):
        return arb(fmpq(value.numerator, value.denominator))
    return value.ball() if hasattr(value, "ball") else arb(value)


def precision(bits: float) -> Any:
    """A context in which balls have at least ``bits`` bits."""
    return ctx.workprec(max(64, math.ceil(bits)))


def key_of(value: Any) -> tuple[Any, ...]:
    """What tells a real ball from every other one, and the precision it is used at."""
    return (*(int(part) for end in (value.mid(), value.rad()) for part in end.man_exp()), ctx.prec)


def positive_part(value: Any) -> Any:
    """max(value, 0) of a ball."""
    return value.max(arb(0))


def gaussian_tail(x: Any) -> Any:
    """Pr[N(0, 1) > x]."""
    return (x / arb(2).sqrt()).erfc() / 2


def log2_size(value: Any) -> float:
    """The binary logarithm of a positive ball's upper end, roughly; -inf for 0."""
    top = value.abs_upper()
    if top == 0:
        return -math.inf
    mantissa, exponent = top.man_exp()
    return int(exponent) + math.log2(int(mantissa))


def digits_of(lower: Any, upper: Any) -> float:
    """To how many decimal digits two ends agree, relative to the upper one; inf where they are equal."""
    width = (upper - lower).abs_upper()
    return math.inf if width == 0 else (log2_size(upper) - log2_size(width)) * math.log10(2)
