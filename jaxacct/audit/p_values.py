"""P-values of guesses about canaries, rounded up, and the bounds on a mechanism's curve that they are tested against.

All are of one kind of test: of ``canaries`` canaries, each in the data by a fair coin of its own, ``guesses`` were
guessed to be in or out, and ``correct`` of the guesses were right. Statements and proofs: docs/proofs/audits.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr, ndtri

from jaxacct._numerics.binomial import binomial_probability
from jaxacct._numerics.rounding import EPS, UNIT, deflated, inflated
from jaxacct.accounting.queries import delta as deltas
from jaxacct.accounting.queries import epsilon as epsilons
from jaxacct.mechanisms.base import Mechanism

Least = Callable[[float], float]
"""Of an event's probability p on one of two neighbours: a lower bound of its probability on the other, f(1 - p)."""

_POINTS = 128  # of a certified curve: more change p-values by less than 1 %, and may take minutes
_FARTHEST = (1e-14, 1e-10, 1e-6, 1e-3)  # deltas up to whose epsilon a curve is asked for, the first that is finite
# SciPy's ndtri was measured at 4.4e-16 (1 + |z|) against 40 digits, its ndtr at 2.4e-16 (1 + z^2).
_QUANTILE = 1e-14
_SMALLEST = 1e-30  # p-value that is told apart from smaller ones
_HALVINGS = 50


def approximate_dp(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """The p-value of (epsilon, delta)-DP, rounded up: at least P[this many right guesses or more].

    beta + 2 m delta max_i P[v > W >= v - i] / i, with W ~ Bin(guesses, e^epsilon / (1 + e^epsilon)) and
    beta = P[W >= v], for v right guesses about m canaries. In the code wrong guesses are counted, whose probability
    keeps its digits.

    Source: Steinke, Nasr, Jagielski 2023, their theorem for approximate privacy and abstentions.
    """
    # Rounded down, so that it is the probability of a wrong guess at an epsilon that is no smaller.
    wrong = deflated(1.0 / (1.0 + np.exp(np.float64(epsilon))), 8.0 * EPS)
    number = np.arange(guesses + 1.0)
    with np.errstate(all="ignore"):
        masses, doubts = binomial_probability(
            np.full(number.shape, float(guesses)), np.full(number.shape, wrong), number
        )
    within = guesses - correct + 1
    sums = np.cumsum(masses[within:]) / number[1 : correct + 1]
    value = masses[:within].sum() + 2.0 * canaries * delta * sums.max(initial=0.0)
    return float(min(inflated(value, 2.0 * doubts.max() + (guesses + 16.0) * 2.0 * UNIT), 1.0))


def is_refuted(least: Least, canaries: int, guesses: int, correct: int, significance: float) -> bool:
    """Whether the curve of ``least`` contradicts that so many right guesses have probability ``significance`` or more.

    Source: Mahloujifar, Melis, Chaudhuri 2024, their recursion for guesses with abstentions; its steps are rounded so
    that less is refuted.
    """
    if not correct or not significance < 1.0:
        return False
    right = deflated(significance * correct / canaries, 16.0 * EPS)
    wrong = significance * (guesses - correct) / canaries
    for number in range(correct - 1, -1, -1):
        more = least(right)
        if more <= wrong:
            break  # nothing changes from here on
        right += deflated(number / (guesses - number) * deflated(more - wrong, 4.0 * EPS), 8.0 * EPS)
        right, wrong = min(deflated(right, 2.0 * EPS), 1.0), more
    return deflated(right + wrong, 4.0 * EPS) > inflated(guesses / canaries, 4.0 * EPS)


def smallest(refuted: Callable[[float], bool]) -> float:
    """The smallest significance found that is ``refuted``, as all above it are, at least 1e-30; 1 if there is none."""
    size = largest(lambda size: size == 0.0 or refuted(max(float(np.exp(-size)), _SMALLEST)))
    return max(float(np.exp(-size)), _SMALLEST)


def gaussian(mu: float) -> Least:
    """Phi(Phi^-1(p) - mu), that of mu-GDP, rounded down."""

    def least(probability: float) -> float:
        if not 0.0 < probability < 1.0:
            return float(probability >= 1.0)
        z = float(ndtri(probability))
        z -= mu + _QUANTILE * (1.0 + abs(z) + mu)
        return max(float(ndtr(z)) * (1.0 - 4.0 * EPS * (2.0 + z * z)), 0.0)

    return least


def certified(mechanism: Mechanism, steps: int, relation: str) -> Least:
    """That of ``steps`` runs of a mechanism, from the certified upper bounds of its delta.

    P[E] <= e^epsilon P'[E] + delta(epsilon) and the same of the complements, for every epsilon of a grid from 0 on: the
    largest of finitely many lines below the curve.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # wide bounds refute less
        ends = np.asarray(epsilons(mechanism, np.array(_FARTHEST), steps=steps, relation=relation).upper)
        finite = ends[np.isfinite(ends)]
        at = np.linspace(0.0, finite[0] if finite.size else 1.0, _POINTS)
        delta = np.asarray(deltas(mechanism, at, steps=steps, relation=relation).upper)
    ratio = inflated(np.exp(at), 8.0 * EPS)

    def least(probability: float) -> float:
        rest = ratio * (1.0 - probability)
        lines = deflated((probability - delta) / ratio, 4.0 * EPS), 1.0 - delta - rest - 4.0 * EPS * (1.0 + rest)
        return max(float(np.max(lines)), 0.0)

    return least


def largest(refuted: Callable[[float], bool], high: float = 1.0) -> float:
    """The largest number found that is ``refuted``, as all below it are; 0 if 0 is not. Only numbers asked count."""
    if not refuted(0.0):
        return 0.0
    low = 0.0
    while refuted(high) and high < 500.0:
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if refuted(middle):
            low = middle
        else:
            high = middle
    return low
