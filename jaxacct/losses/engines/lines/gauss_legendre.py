"""Gauss-Legendre rules that are right to the last digit, and the error of such a rule."""

from __future__ import annotations

import decimal
import functools

import numpy as np

_DIGITS = 34
_RADII = np.array([1.15, 1.35, 1.7, 2.2, 3.0, 4.0, 6.0])  # of Bernstein ellipses

HEIGHTS = 0.5 * (_RADII - 1.0 / _RADII), 0.5 * (_RADII + 1.0 / _RADII)
"""Half axes of these ellipses, across the interval [-1, 1] and along it."""


@functools.cache
def rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [-1, 1] and weights, of an even number of nodes. NumPy's weights are off by thousands of units."""
    nodes, weights = [], []
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        one = decimal.Decimal(1)
        for start in np.polynomial.legendre.leggauss(count)[0][count // 2 :]:
            x, slope = decimal.Decimal(float(start)), one
            for _ in range(2):  # from 16 digits to all, and the derivative there
                before, value = one, x
                for k in range(2, count + 1):
                    before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
                slope = count * (before - x * value) / (one - x * x)
                x -= value / slope
            nodes.append(float(x))
            weights.append(float(2 / ((one - x * x) * slope * slope)))
    nodes, weights = np.array(nodes), np.array(weights)
    return np.concatenate([-nodes[::-1], nodes]), np.concatenate([weights[::-1], weights])


def log_rule_error(count: int) -> np.ndarray:
    """Log of what the rule errs by at most for a function that is 1 or less in modulus on each of the ellipses.

    64/15 r^(2 - 2 n) / (1 - r^-2) for radius r (Trefethen 2019, Approximation Theory and Approximation Practice,
    Theorem 19.3).
    """
    return np.log(64.0 / 15.0) - (2 * count - 2) * np.log(_RADII) - np.log1p(-(_RADII**-2.0)) + 1e-9
