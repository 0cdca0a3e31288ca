"""The noise of a release, with the mechanism that accounts for it: one number, the same for both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from jaxacct import _validate
from jaxacct._numerics.rounding import next_to
from jaxacct.mechanisms import Composed, DiscreteGaussian, DiscreteLaplace, ZeroConcentratedDP
from jaxacct.mechanisms.base import Mechanism
from jaxacct.release.samplers import as_fraction, discrete_gaussian, discrete_laplace

RELATIONS = ("add_or_remove", "replace")


@dataclass(frozen=True)
class Noise:
    """Discrete Laplace noise of scale ``width``, or discrete Gaussian noise of sigma ``width``, on whole numbers.

    Attributes:
        gaussian: which of the two.
        width: a float64; the mechanism is charged with it, and the fraction that it is is drawn with.
    """

    gaussian: bool
    width: float

    def draw(self, size: int) -> list[int]:
        """``size`` independent draws."""
        return (discrete_gaussian if self.gaussian else discrete_laplace)(self.width, size)

    def of_number(self, sensitivity: int) -> Mechanism:
        """The mechanism of one whole number that moves by at most ``sensitivity``."""
        return (DiscreteGaussian if self.gaussian else DiscreteLaplace)(self.width, sensitivity)

    def of_bins(self, rows: int, relation: str) -> Mechanism:
        """The mechanism of whole numbers of which a person moves as many as they have ``rows``, each by one, one way.

        Replaced rows leave some and enter others. Proof: docs/proofs/counts-and-sums.md.
        """
        sides = 2 if relation == "replace" else 1
        if self.gaussian and rows > 1:  # which bins are the worst is not known; of zCDP it is
            return ZeroConcentratedDP(rounded_up(sides * rows**2 / (2 * Fraction(self.width) ** 2)))
        one = self.of_number(rows)
        return one if sides == 1 else Composed([one], [sides])


def noise(scale: object, sigma: object, step: Fraction = Fraction(1)) -> Noise:
    """The noise of one number in steps of ``step``; the least float64 that is no less than what was asked for."""
    given = {name: value for name, value in (("scale", scale), ("sigma", sigma)) if value is not None}
    if len(given) != 1:
        raise ValueError(
            "scale (of discrete Laplace noise) or sigma (of discrete Gaussian noise) must be given, and only one of "
            f"them, got {'both' if given else 'none'}"
        )
    ((name, value),) = given.items()
    return Noise(name == "sigma", rounded_up(as_fraction(_validate.positive, **{name: value}) / step))


def noises(scale: Any, sigma: Any, step: Fraction) -> tuple[Noise, Noise]:
    """The noise of a sum in steps of ``step``, and that of a count."""
    for name, pair in (("scale", scale), ("sigma", sigma)):
        if pair is not None and not (isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2):
            raise ValueError(f"{name} must be two numbers, of the sum and of the count, got {_validate.shown(pair)}")
    first, second = ((scale and scale[i], sigma and sigma[i]) for i in range(2))
    return noise(*first, step), noise(*second)


def rounded_up(value: Fraction) -> float:
    """The least float64 that is no less than ``value``."""
    try:
        return next_to(value, math.inf)
    except OverflowError:
        raise ValueError("scale or sigma must be less than 2^1024 steps of the grid, and more than 2^-511") from None


def check_people(relation: object, max_rows: object) -> None:
    """Raises ValueError unless ``relation`` and ``max_rows`` say what one person's data are."""
    _validate.one_of(RELATIONS, relation=relation)
    _validate.integer(1, 2**53, max_rows=max_rows)
