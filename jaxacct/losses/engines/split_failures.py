"""Splits runs that fail with some probability (an infinite loss) off a composition.

Let a run be, under P, with probability d an output that Q does not have, and under Q with the same probability one that
P does not have; otherwise it is a pair (P', Q'). If any run of a composition fails the loss is infinite; given that
none does, which has the same probability s = prod_k (1 - d_k)^T_k under P and Q, the loss is that of the pairs
(P'_k, Q'_k). So

    delta(epsilon) = 1 - s + s delta'(epsilon),

exactly, and epsilon(delta) = epsilon'((delta - (1 - s)) / s). What is left may well be Gaussians alone, which have a
better engine than their composition with an atom at infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.losses.engines.choose import bounds
from jaxacct.losses.engines.narrowing import Answer, Options

_LEAST = 1e-300  # a smaller delta than this counts as none


def bounds_with_failures(
    kind: str, pairs: list[Any], counts: Sequence[Array], goal: Array, most: float | None, options: Options, sides: int
) -> Answer:
    """:func:`jaxacct.losses.engines.choose.bounds` of a concrete batch, with failures split off where there are any."""
    rest, log_survival = [], np.zeros(goal.shape)
    for pair, count in zip(pairs, counts, strict=True):
        left, failing = pair.split() if hasattr(pair, "split") else (pair, 0.0)
        with np.errstate(divide="ignore"):
            log_survival = log_survival + count * np.log1p(-np.asarray(failing))
        if left is not None:
            rest.append((left, count))
    if not rest:  # and their answer is exact as it is
        return bounds(kind, pairs, counts, goal, most, options, sides)
    pairs, counts = [pair for pair, _ in rest], [count for _, count in rest]

    def without(goal: Array, options: Options = options) -> Answer:
        """What is left, asked by itself."""
        return bounds(kind, pairs, counts, goal, most, options, sides)

    if not log_survival.any():
        return without(goal)
    # Terms of one sign: their sum is off by 3 units and one a part. expm1 passes that on, exp multiplies it.
    units = UNIT * (12.0 + 4.0 * len(rest))
    failed, none = -np.expm1(log_survival), np.exp(log_survival)
    spread = np.expm1(units * (1.0 - np.maximum(log_survival, -700.0)))
    failed_low, failed_high = deflated(failed, units), np.minimum(inflated(failed, units), 1.0)
    none_low, none_high = deflated(none, spread), inflated(none, spread)
    if kind == "delta":
        low, high = without(goal, options._replace(limit=None))
        lower, upper = deflated(failed_low + none_low * low, units), inflated(failed_high + none_high * high, units)
        return np.fmax(lower, 0.0), np.fmin(upper, 1.0)  # of NaN nothing is known
    with np.errstate(divide="ignore", invalid="ignore"):
        most_left = inflated((goal - failed_low) / none_low, units)
        least_left = deflated((goal - failed_high) / none_high, units)
    hopeless, spent = goal <= failed_low, ~(least_left >= _LEAST)  # NaN is spent
    unknown = np.isnan(most_left)
    ask = lambda left, known: np.where(known, 0.5, np.clip(left, _LEAST, 1.0 - UNIT))  # noqa: E731
    lower = np.where(hopeless, np.inf, without(ask(most_left, hopeless | unknown))[0])
    lower = np.where(unknown, 0.0, lower)
    upper = np.where(spent, np.inf, without(ask(least_left, spent), options._replace(progress=None))[1])
    return lower, upper
