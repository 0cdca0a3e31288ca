"""Exact samplers of discrete noise: whole numbers and the operating system's coins, no floating point.

Canonne, Kamath, Steinke 2020, "The Discrete Gaussian for Differential Privacy", Algorithms 1 to 3. The law of what
comes back is the discrete Laplace or Gaussian one to the last digit, given coins that are fair. How long a draw takes
depends on what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from secrets import randbelow
from typing import Any, overload

import numpy as np

from jaxacct import _validate

Number = int | float | Fraction


@overload
def discrete_laplace(scale: Number, size: None = None) -> int: ...
@overload
def discrete_laplace(scale: Number, size: int) -> list[int]: ...
def discrete_laplace(scale: Number, size: int | None = None) -> int | list[int]:
    """Draws X with Pr[X = x] proportional to exp(-|x| / scale), x whole: the noise of `jaxacct.DiscreteLaplace`.

    Args:
        scale: above 0; a float is the fraction that it is.
        size: how many draws, a list of them; one number without it.

    Raises:
        ValueError: a scale that is no finite number above 0, or a size that is no whole number.
    """
    exact = as_fraction(_validate.positive, scale=scale)
    return _draws(lambda: _laplace(exact.numerator, exact.denominator), size)


@overload
def discrete_gaussian(sigma: Number, size: None = None) -> int: ...
@overload
def discrete_gaussian(sigma: Number, size: int) -> list[int]: ...
def discrete_gaussian(sigma: Number, size: int | None = None) -> int | list[int]:
    """Draws X with Pr[X = x] proportional to exp(-x^2 / (2 sigma^2)): the noise of `jaxacct.DiscreteGaussian`.

    Args:
        sigma: above 0; a float is the fraction that it is.
        size: how many draws, a list of them; one number without it.

    Raises:
        ValueError: a sigma that is no finite number above 0, or a size that is no whole number.
    """
    square = as_fraction(_validate.positive, sigma=sigma) ** 2
    return _draws(lambda: _gaussian(square.numerator, square.denominator), size)


def as_fraction(check: Callable[..., None], **named: Any) -> Fraction:
    """The one value, a number that passes ``check`` of `jaxacct._validate`, as the fraction that it is."""
    ((name, value),) = named.items()
    if isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be a number, got {value}")
    _validate.scalar(check, **named)
    whole = isinstance(value, int | np.integer)
    return value if isinstance(value, Fraction) else Fraction(int(value) if whole else float(value))


def _draws(draw: Callable[[], int], size: int | None) -> int | list[int]:
    if size is None:
        return draw()
    _validate.integer(0, 2**53, size=size)
    return [draw() for _ in range(size)]


def _laplace(numerator: int, denominator: int) -> int:
    """Discrete Laplace of scale ``numerator / denominator``: Algorithm 2."""
    while True:
        low = randbelow(numerator)
        if not _exp_coin(low, numerator):
            continue
        high = 0
        while _exp_coin(1, 1):
            high += 1
        size, negative = (low + numerator * high) // denominator, randbelow(2)
        if size or not negative:
            return -size if negative else size


def _gaussian(numerator: int, denominator: int) -> int:
    """Discrete Gaussian of variance parameter sigma^2 = ``numerator / denominator``: Algorithm 3."""
    scale = math.isqrt(numerator // denominator) + 1
    while True:
        drawn = _laplace(scale, 1)
        # (|drawn| - sigma^2 / scale)^2 / (2 sigma^2), over a common denominator
        distance = abs(drawn) * scale * denominator - numerator
        if _exp_coin(distance**2, 2 * numerator * denominator * scale**2):
            return drawn


def _exp_coin(numerator: int, denominator: int) -> bool:
    """True with probability exp(-``numerator / denominator``): Algorithm 1, a series of uniform whole numbers."""
    while numerator > denominator:
        if not _exp_coin(1, 1):
            return False
        numerator -= denominator
    tries = 1 + (numerator == denominator)  # the first of which is sure
    while randbelow(tries * denominator) < numerator:
        tries += 1
    return tries % 2 == 1
