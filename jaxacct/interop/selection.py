"""Rényi curves of the best of a random number of runs (Papernot, Steinke, hyperparameter tuning with Rényi DP)."""

from __future__ import annotations

import math

import numpy as np

from jaxacct._numerics.rounding import deflated
from jaxacct.filters.additive.plan_order import ORDERS
from jaxacct.interop.composition import Reading
from jaxacct.losses.renyi import delta_from_renyi, renyi

_UP = 1.0 + 2.0**-40
_SAFE = 1e-9  # relative, of gamma: far above the rounding of its equation


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what overflows says nothing
def repeated(inner: Reading, mean: float, shape: float, relation: str) -> Reading:
    """The best output of a random number of runs of ``inner``, as a curve of Rényi divergences.

    Theorem 2 of that paper (arXiv 2110.03620, 2022) for a truncated negative binomial number of runs with ``shape`` eta
    >= 0: with divergences D(order) of one run, gamma the distribution's parameter and any second order b,

        D(a) + (1 + eta) ((1 - 1 / b) D(b) + log(1 / gamma) / b) + log(mean) / (a - 1).

    Theorem 6 for a Poisson number, ``shape`` inf: with any (e, d) that one run keeps and exp(e) <= 1 + 1 / (a - 1),

        D(a) + mean d + log(mean) / (a - 1).
    """
    if not (math.isfinite(mean) and mean >= 1.0):
        raise ValueError(f"mean must be a finite number of at least 1, got {mean:g}")
    if not shape >= 0.0:
        raise ValueError(f"shape must be at least 0, got {shape:g}")
    if not inner.private or inner.is_nothing:
        return inner
    orders = np.asarray(ORDERS)
    once = inner.at_orders()
    for part in inner.parts.values():
        once = (once + part.count * np.asarray(renyi(part.mechanism, orders, relation=relation))) * _UP
    count = math.log(mean) / (orders - 1.0)
    if shape == math.inf:
        reach = np.log1p(1.0 / (orders - 1.0)) / _UP
        missed = np.asarray(delta_from_renyi(once, orders, reach[:, None])).min(1)
        found = once + mean * missed + count
    else:
        inverse = -math.log(_gamma(shape, mean))
        found = once + (1.0 + shape) * np.min((1.0 - 1.0 / orders) * once + inverse / orders) + count
    return Reading(divergences=found * _UP)


def _gamma(shape: float, mean: float) -> float:
    """The parameter of the truncated negative binomial distribution with that mean, rounded down."""
    low, high = 1e-300, 1.0
    for _ in range(1200):  # in logarithms, to the last bit
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (middle, high) if _mean(shape, middle) >= mean else (low, middle)
    return deflated(low, _SAFE)


def _mean(shape: float, gamma: float) -> float:
    """Definition 1 of the paper: it falls in gamma, from infinity to 1."""
    log = math.log(gamma)
    if shape == 0.0:
        return (1.0 - gamma) / gamma / -log
    return shape * (1.0 - gamma) / gamma / -math.expm1(shape * log)
