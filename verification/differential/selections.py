"""The best of a random number of runs of a table: random settings, what their curve lies between, the mechanism.

From below: all orders of the outputs, and merges of high and low losses that are cut in pieces. From above: the
integral of docs/theorems/private-selection.md with a constant on each cell, by phi' at a corner of it. Both are of code
and of formulas of their own, in extended precision.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from jaxacct import PrivateSelection
from jaxacct import mechanisms as m
from verification.differential.single_runs import Kind, log_uniform
from verification.differential.truths import Long

_OUTPUTS = 5
_PIECES = 40  # of an output
_CELLS = 600


def selections(rng):
    """Tables, and a number of runs; infinite losses are likely in some."""
    p, q = rng.dirichlet(np.full(_OUTPUTS, 0.7)), rng.dirichlet(np.full(_OUTPUTS, 0.7))
    if rng.random() < 0.3:
        q = np.append(0.0, q[1:] / q[1:].sum())
    shape = [0.0, 1.0, 2.5, math.inf][rng.integers(4)]
    return {"p": p, "q": q, "mean": log_uniform(rng, 1.5, 30), "shape": shape}, 1.0


def generating(mean, shape):
    """E[x^K] and its derivative."""
    if math.isinf(shape):
        return (lambda x: np.exp(mean * (x - 1))), (lambda x: mean * np.exp(mean * (x - 1)))
    low, high = Long(1e-12), Long(1) - Long(1e-12)
    expected = lambda c: (1 - c) / c * (shape / (1 - c**shape) if shape else -1 / np.log(c))  # noqa: E731
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) > mean else (low, middle)
    c = low
    rest = lambda x: 1 - (1 - c) * x  # noqa: E731
    if shape == 0:
        return (lambda x: np.log(rest(x)) / np.log(c)), (lambda x: (c - 1) / np.log(c) / rest(x))
    scale = c**-shape - 1
    return (lambda x: (rest(x) ** -shape - 1) / scale, lambda x: shape * (1 - c) * rest(x) ** (-shape - 1) / scale)


def ratios_fall(p, q):
    """Outputs in falling order of their likelihood ratio."""
    order = np.argsort(np.where(q > 0, -p / np.where(q > 0, q, 1), -np.inf))
    return p[order].astype(Long), q[order].astype(Long)


def ordered(phi, p, q, price):
    """The largest hockey stick over all orders of the outputs."""
    orders = np.array(list(itertools.permutations(range(p.size))))
    below = lambda x: np.concatenate([np.zeros((len(orders), 1)), np.cumsum(x[orders], 1)], 1)  # noqa: E731
    best = [np.diff(phi(np.minimum(below(x.astype(Long)), 1))) for x in (p, q)]
    return np.maximum(best[0] - price * best[1], 0).sum(1).max()


def merged(phi, p, q, price):
    """The largest hockey stick if high losses are an event and low ones stand above and among them."""
    p, q = (np.repeat(x / _PIECES, _PIECES) for x in ratios_fall(p, q))
    left = [np.cumsum(np.append(Long(1), -x[::-1])) for x in (p, q)]
    value, worst = np.zeros(p.size + 1, Long), Long(0)
    for i in range(p.size):
        value = np.maximum.accumulate(value[: p.size - i])
        at = [[np.clip(one[: value.size] - x[:j].sum(), 0, 1) for j in (i, i + 1)]
              for one, x in zip(left, (p, q), strict=True)]  # fmt: skip
        gain, cost = (phi(high) - phi(low) for high, low in at)
        value = value + gain - price * cost
        worst = max(worst, value.max())
    return worst


def linear(t, v, place):
    """What goes through (t, v) in straight lines, at a place, rounded up."""
    i = int(np.clip(np.searchsorted(t, place), 1, t.size - 1))
    part = (place - t[i - 1]) / (t[i] - t[i - 1]) if t[i] > t[i - 1] else Long(1)
    return v[i - 1] + (v[i] - v[i - 1]) * min(part * (1 + Long(1e-15)), Long(1))


def charged(derivative, p, q, price):
    """An upper bound: each cell of places in the event is worth its most over all cells of what is above."""
    p, q = ratios_fall(p, q)
    t, v = (np.minimum(np.cumsum(x), 1) for x in (q, p))
    infinite = p[q == 0].sum()
    t, v = np.append(Long(0), t[q > 0]), np.append(infinite, v[q > 0])
    places = np.unique(np.concatenate([t, np.linspace(0, 1, _CELLS).astype(Long)]))
    share = np.array([linear(t, v, one) for one in places])
    total = infinite * derivative(Long(1))
    for i in range(places.size - 1):
        above = slice(i + 1, None)  # ends of the cells of b
        gain = derivative(np.minimum(share[above] - share[i], 1))
        cost = derivative(np.maximum(places[i:-1] - places[i + 1], 0))
        worth = (share[i + 1] - share[i]) * gain - price * (places[i + 1] - places[i]) * cost
        total += max(worth.max(), Long(0))
    return min(total, Long(1))


def selections_truth(p, q, mean, shape):
    phi, derivative = generating(Long(mean), shape)
    p, q = np.asarray(p), np.asarray(q)

    def curve(x):
        price = np.exp(Long(float(x)))
        both = [(p, q), (q, p)]
        low = max(worst(phi, *pair, price) for worst in (ordered, merged) for pair in both)
        return float(low), float(max(charged(derivative, *pair, price) for pair in both))

    return curve


def best_of_tables(p, q, mean, shape):
    return PrivateSelection(m.FromTables(p, q), mean, shape)


SELECTIONS = {
    "selections of tables": Kind(
        selections, selections_truth, best_of_tables, 1e-9, relations=("add_or_remove", "remove", "add"), size=16,
        batches=12, ways=("",)),
}  # fmt: skip
