"""How often a Poisson sample has to be cut."""

from __future__ import annotations

import math

from jaxacct._numerics.rounding import inflated

__all__ = ["log_binomial_tail"]


def log_binomial_tail(trials: int, rate: float, least: int) -> float:
    """An upper bound of log P[Bin(``trials``, ``rate``) >= ``least``], off by little where that is small.

    From k = ``least`` on, ratios of successive probabilities are at most r = (n - k) q / ((k + 1) (1 - q)) and fall;
    so the tail is at most the first one over 1 - r, wherever r < 1. The logarithm is lifted by 1e-13 of the size of its
    terms, some hundred units of their roundings.
    """
    n, k, q = trials, least, rate
    if k <= 0:
        return 0.0
    if k > n or q == 0.0:
        return -math.inf
    if q == 1.0:
        return 0.0
    ratio = inflated((n - k) * q / ((k + 1) * (1.0 - q)), 1e-15)
    if ratio >= 1.0:
        return 0.0
    terms = (
        math.lgamma(n + 1.0),
        -math.lgamma(k + 1.0),
        -math.lgamma(n - k + 1.0),
        k * math.log(q),
        (n - k) * math.log1p(-q),
        -math.log1p(-ratio),
    )
    return min(0.0, math.fsum(terms) + 1e-13 * math.fsum(map(abs, terms)))
