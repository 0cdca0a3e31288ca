"""Bounds of the curve of the best of a random number of runs, from the curve of one run.

With P, Q the pair of one run, T(u) the most that an event of Q-probability u can have under P, and phi the generating
function of the number of runs, the best run in any order of outputs has (docs/theorems/private-selection.md)

    delta(epsilon) <= E_Q[h(dP/dQ)],    h(x) = max over u of (phi'(T(u)) x - e^epsilon phi'(u))_+,

and what any order of the outputs attains is a lower bound: one that puts the middle losses lowest, the high ones above
them, and the very low ones on top and among the high ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct.selection.counts import ROUNDING, NegativeBinomial, Poisson, Table
from jaxacct.summaries.curve import least, most

Count = Poisson | NegativeBinomial | Table
_SPACES = 9000  # of u, for the upper bound
_CELLS = 2000  # of the lower one
_ROUGH = 1e-8  # relative: differences of u, in a derivative that may change by 1e7 of itself for each unit
OUTCOMES = 256


def upper_bounds(count: Count, losses: Array, deltas: Array) -> Callable[[Array], Array]:
    """Upper bounds of delta as a function of epsilons, from upper bounds ``deltas`` of one run at ``losses``.

    Args:
        count: the number of runs.
        losses: epsilons of one run on a lattice through 0, negative ones as well, shape ``(n,)``.
        deltas: one run's delta there, in the same direction.

    Returns:
        A function of multiples of the lattice's spacing, at least 0.
    """
    u = _places(lambda u: most(losses, deltas, u), _SPACES)
    top = np.maximum.accumulate(most(losses, deltas, u))
    rise = count.derivative(top[1:]) * (1.0 + ROUNDING)  # a cell's T at its end, phi' at its start
    floor = count.derivative(u[:-1]) * (1.0 - ROUNDING)
    whole = float(count.derivative(np.ones(()))) * (1.0 + ROUNDING)
    # h(x) = x k(e^epsilon / x): one function k on the lattice of all differences of losses, 0 from some place on.
    step, half = losses[1] - losses[0], losses.size // 2
    with np.errstate(divide="ignore"):
        farthest = min(np.max(np.log(rise) - np.log(floor)), 700.0)
    ratios = step * np.arange(-half, max(math.ceil(farthest / step), -half) + 1)
    k = np.maximum([np.max(rise - np.exp(ratio) * floor) for ratio in ratios], 0.0) * (1.0 + ROUNDING)
    k = np.append(k, k[-1] if farthest == 700.0 else 0.0)
    x = np.exp(losses)

    def bound(epsilons: Array) -> Array:
        found = []
        for epsilon in epsilons:
            places = round(epsilon / step) - np.arange(-half, half + 1) + half
            h = x * k[np.clip(places, 0, k.size - 1)]
            slopes = np.diff(h) / np.diff(x)
            slopes = np.concatenate([[h[0] / x[0]], slopes, [whole]])
            slopes = np.maximum.accumulate(np.minimum(slopes, whole))
            rounded = ROUNDING * np.sum(slopes[1:] * (slopes[1:] > 0) * deltas)
            found.append(slopes[0] + np.sum(np.diff(slopes) * deltas) * (1.0 + ROUNDING) + rounded)
        return np.minimum(np.asarray(found), 1.0)

    return bound


def _places(curve: Callable[[Array], Array], size: int) -> Array:
    """Some ``size`` numbers from 0 to 1, close to each other where they or the curve there move."""
    half = np.geomspace(1e-12, 0.5, size // 6)
    even = np.linspace(0.0, 1.0, size // 3)
    rough = np.concatenate([[0.0], half, 1.0 - half[-2::-1], [1.0]])
    return np.unique(np.concatenate([rough, even, np.interp(even, curve(rough), rough)]))


def attained(count: Count, losses: Array, lower: Array, upper: Array, epsilon: float) -> tuple[Array, Array]:
    """Probabilities with and without the record of the best run's output, for an order that is bad at ``epsilon``.

    Outputs are cells, in falling order of loss; those up to a threshold are an event. From the top of the order down,
    cell i of the event has above it the cells before it and those with the ``low[i]`` lowest losses; all others are
    below the event. Any numbers ``low`` that do not fall are an order: at first they are all the same, then an exchange
    of neighbours says where each low cell is to stand.

    Args:
        count: the number of runs.
        losses: as in :func:`upper_bounds`.
        lower, upper: both bounds of one run's delta there.
        epsilon: where delta is to be large.

    Returns:
        Two tables of OUTCOMES probabilities, the last of what is in no event. They are a post-processing of the best
        run: probabilities under P are rounded down, those under Q up.
    """
    u = _places(lambda u: least(losses, lower, upper, u), _CELLS)
    v, at = _hull(least(losses, lower, upper, u), u)
    v = np.interp(u, at, v)  # concave also where `least` is cut off at u
    u, v = np.append(0.0, u), np.append(0.0, v)  # infinite losses come first
    cells = u.size - 1
    some = np.unique(np.linspace(0, cells, 120).astype(int))
    gain, cost = (
        count.generating(_inside(x[None, cells - some] + 0.0 * x[:, None]))
        - count.generating(_inside(x[cells - some] - x[:, None]))
        for x in (v, u)
    )
    fits = np.arange(cells + 1)[:, None] + some <= cells
    worth = np.where(fits, gain - np.exp(epsilon) * cost, 0.0)
    low = np.full(cells, some[np.unravel_index(np.argmax(worth), worth.shape)[1]])
    best, largest = (np.zeros(1), np.zeros(1)), 0.0
    for _ in range(6):
        p, q = _events_of(count, u, v, low)
        delta = np.max(p - np.exp(epsilon) * q)
        if delta > largest:
            best, largest = (p, q), delta
        low = np.maximum.accumulate((low + _exchanged(count, u, v, low, epsilon)) // 2)
    p, q = _hull(*(np.append(x, 1.0) for x in best))  # the rest as well: it may have the largest ratio
    p, q = _thinned(p), _thinned(q)
    p, q = (np.append(np.diff(x), 1.0 - x[-1]) for x in (p, q))
    spare = np.zeros(OUTCOMES - p.size)
    return np.concatenate([spare, p]), np.concatenate([spare, q])


def _inside(x: Array) -> Array:
    return np.clip(x, 0.0, 1.0)


def _events_of(count: Count, u: Array, v: Array, low: Array) -> tuple[Array, Array]:
    """P- and Q-probabilities, from below and from above, of the events of 0, 1, 2, ... cells of an order."""
    cells, q, p = low.size, np.diff(u), np.diff(v)
    cells = int(np.argmax(np.append(low + np.arange(cells) >= cells, True)))  # as many as fit beside the low ones
    low, q, p = low[:cells], q[:cells], p[:cells]
    at_p, at_q = v[v.size - 1 - low] - v[:cells], u[u.size - 1 - low] - u[:cells]
    # phi' is convex: the midpoint's value is below its mean, that of the ends above it.
    gain = p * count.derivative(_inside(at_p - 0.5 * p))
    ends = count.derivative(_inside(at_q)) + count.derivative(_inside(at_q - q))
    gain, cost = np.cumsum(gain) * (1.0 - _ROUGH), np.cumsum(0.5 * q * ends) * (1.0 + _ROUGH)
    good = (gain < 1.0) & (cost < 1.0)
    return np.append(0.0, gain[good]), np.append(0.0, cost[good])


def _hull(p: Array, q: Array) -> tuple[Array, Array]:
    """The upper concave hull of the points (q, p), which begin at (0, 0)."""
    kept: list[int] = []
    for i in range(p.size):
        while len(kept) > 1:
            a, b = kept[-2:]
            if (p[b] - p[a]) * (q[i] - q[b]) > (p[i] - p[b]) * (q[b] - q[a]):
                break
            kept.pop()
        if not kept or (p[i] > p[kept[-1]] and q[i] >= q[kept[-1]]):
            kept.append(i)
    return p[kept], q[kept]


def _thinned(x: Array) -> Array:
    return x[np.unique(np.linspace(0, x.size - 1, OUTCOMES - 2).astype(int))]


def _exchanged(count: Count, u: Array, v: Array, low: Array, epsilon: float) -> Array:
    """How many low cells belong above each cell: those whose ratio times its own is small enough."""
    cells, q, p = low.size, np.diff(u), np.diff(v)
    ratio = np.where(q > 0, p / np.maximum(q, 1e-300), 1e300)
    at_p, at_q = _inside(v[cells - low] - v[:-1]), _inside(u[cells - low] - u[:-1])
    with np.errstate(over="ignore"):
        limit = np.exp(epsilon) * _second(count, at_q) / np.maximum(_second(count, at_p) * ratio, 1e-300)
    return cells - np.searchsorted(-ratio, -limit, side="right")


def _second(count: Count, x: Array) -> Array:
    """phi'', roughly."""
    step = 1e-5
    return (count.derivative(np.minimum(x + step, 1.0)) - count.derivative(np.maximum(x - step, 0.0))) + 1e-300
