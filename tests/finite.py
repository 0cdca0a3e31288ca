"""Finite experiments in exact rational arithmetic: the truth that curves are tested against."""

from fractions import Fraction as F
from itertools import product as pairs

import numpy as np


def randomized_response(ratio):
    """RR at epsilon = log(ratio), as outcomes (P-mass, Q-mass)."""
    ratio = F(ratio)
    return [(1 / (1 + ratio), ratio / (1 + ratio)), (ratio / (1 + ratio), 1 / (1 + ratio))]


def failing(delta):
    """The (0, delta)-DP pair: with probability delta the dataset is revealed."""
    delta = F(delta)
    return [(F(0), delta), (1 - delta, 1 - delta), (delta, F(0))]


def compose(*experiments):
    found = [(F(1), F(1))]
    for one in experiments:
        found = [(p * a, q * b) for (p, q), (a, b) in pairs(found, one)]
    return [x for x in found if x != (0, 0)]


def random_experiment(rng, outcomes=4, singular=True):
    p, q = (rng.integers(0 if singular else 1, 12, outcomes) for _ in range(2))
    p[0], q[0] = p[0] + 1, q[0] + 1
    return [(F(int(a), int(p.sum())), F(int(b), int(q.sum()))) for a, b in zip(p, q, strict=True) if a or b]


def hockey_stick(experiment, gamma):
    return sum(max(p - F(gamma) * q, F(0)) for p, q in experiment)


def worst(pairs, allowed, state, gamma, rounds=None):
    """The largest H(gamma) of all adaptive analysts, by trying everything (Proposition 6 and Lemma 1).

    ``allowed(state, rounds)`` lists what she may play, as places in ``pairs``, and the states after it.
    """
    found = max(1 - gamma, F(0))
    for place, after in () if rounds == 0 else allowed(state, rounds):
        rest = None if rounds is None else rounds - 1
        value = sum(p * worst(pairs, allowed, after, gamma * q / p, rest) if q else p for p, q in pairs[place] if p)
        found = max(found, value)
    return found


def ratios(*experiments):
    return sorted({p / q for one in experiments for p, q in one if p and q})


def at_most(a, b):
    """a <= b in the Blackwell order: at every breakpoint of either, at 0+ (slope) and at infinity."""
    points = [*ratios(a, b), F(1)]
    infinite = [sum(p for p, q in one if q == 0) for one in (a, b)]
    singular = [sum(q for p, q in one if p == 0) for one in (a, b)]
    ordered = all(hockey_stick(a, g) <= hockey_stick(b, g) for g in points)
    return ordered and infinite[0] <= infinite[1] and singular[0] <= singular[1]


def trade_off(experiment, alpha):
    """f(alpha) by the Neyman-Pearson test, segment by segment."""
    alpha, beta = F(alpha), F(1)
    steep_first = sorted(experiment, key=lambda x: (x[0] == 0, x[1] / x[0] if x[0] else 0), reverse=True)
    for p, q in steep_first:
        share = F(1) if p == 0 else min(F(1), alpha / p)
        beta, alpha = beta - share * q, alpha - share * p
    return beta


def as_arrays(experiment):
    """(widths, drops) sorted from steep to flat, in float64."""
    key = lambda x: (x[0] == 0, x[1] / x[0] if x[0] else 0)  # noqa: E731
    ordered = sorted(experiment, key=key, reverse=True)
    return np.array([float(p) for p, _ in ordered]), np.array([float(q) for _, q in ordered])
