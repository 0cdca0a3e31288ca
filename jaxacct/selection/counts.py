"""Distributions of a number of runs, by the derivatives of their generating function E[x^K]."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from jaxacct._numerics.arrays import Array

# Relative, of a derivative: what rounding leaves of a formula, and of a parameter found from the mean.
ROUNDING = 1e-10


@dataclasses.dataclass(frozen=True)
class Poisson:
    """A Poisson number of runs, which may be none."""

    mean: float

    def generating(self, x: Array) -> Array:
        """E[x^K]."""
        return np.exp(self.mean * (x - 1.0))

    def derivative(self, x: Array, order: int = 1) -> Array:
        """The derivative of E[x^K] of an order from 1 on."""
        return self.mean**order * self.generating(x)

    def draw(self, random: np.random.Generator) -> int:
        """A number of runs."""
        return int(random.poisson(self.mean))


@dataclasses.dataclass(frozen=True)
class NegativeBinomial:
    """A negative binomial number of runs that is at least 1 (Papernot, Steinke 2022, Definition 1).

    ``shape`` 0 is the logarithmic distribution, 1 the geometric one. ``gamma`` is its other parameter, between 0 and 1;
    the mean grows as it falls.
    """

    shape: float
    gamma: float

    def generating(self, x: Array) -> Array:
        """E[x^K]."""
        rest = np.log((1.0 - x) + self.gamma * x)
        if self.shape == 0.0:
            return rest / math.log(self.gamma)
        none = self.shape * math.log(self.gamma)  # of not yet excluded 0 runs, its log
        return (np.exp(none - self.shape * rest) - math.exp(none)) / -math.expm1(none)

    def derivative(self, x: Array, order: int = 1) -> Array:
        """The derivative of E[x^K] of an order from 1 on."""
        rest = np.log((1.0 - x) + self.gamma * x)  # a small gamma is not lost next to 1
        log = math.log(self.gamma)
        scale = -1.0 / log if self.shape == 0.0 else self.shape / -math.expm1(self.shape * log)
        scale *= (1.0 - self.gamma) ** order * math.prod(self.shape + i for i in range(1, order))
        return scale * np.exp(self.shape * log - (self.shape + order) * rest)

    def draw(self, random: np.random.Generator) -> int:
        """A number of runs."""
        if self.shape == 0.0:
            return int(random.logseries(1.0 - self.gamma))
        while True:  # the negative binomial, until it is not 0
            count = int(random.negative_binomial(self.shape, self.gamma))
            if count:
                return count


@dataclasses.dataclass(frozen=True)
class Table:
    """A number of runs with probability ``probabilities[k]`` for k = 0, 1, ..."""

    probabilities: tuple[float, ...]

    def generating(self, x: Array) -> Array:
        """E[x^K]."""
        return np.polynomial.polynomial.polyval(x, np.asarray(self.probabilities))

    def derivative(self, x: Array, order: int = 1) -> Array:
        """The derivative of E[x^K] of an order from 1 on."""
        return np.polynomial.polynomial.polyval(x, np.polynomial.polynomial.polyder(self.probabilities, order))

    def draw(self, random: np.random.Generator) -> int:
        """A number of runs."""
        return int(random.choice(len(self.probabilities), p=np.asarray(self.probabilities)))


def of_mean(mean: float, shape: float) -> Poisson | NegativeBinomial | Table:
    """The truncated negative binomial distribution of that mean and shape; ``shape`` inf is Poisson's."""
    if shape == math.inf:
        return Poisson(mean)
    if mean == 1.0:
        return Table((0.0, 1.0))  # its limit
    low, high = math.log(1e-300), 0.0  # of log gamma; the mean falls in gamma
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _mean(shape, middle) >= mean else (low, middle)
    return NegativeBinomial(shape, math.exp(low))


def _mean(shape: float, log: float) -> float:
    """The mean where gamma is exp(log)."""
    odds = math.expm1(-log)
    return odds / -log if shape == 0.0 else shape * odds / -math.expm1(shape * log)
