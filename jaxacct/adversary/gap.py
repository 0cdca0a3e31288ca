"""What an analyst gains by choosing the second of two queries after, not before, the first one's outcome.

After outcome of loss l of the first query an analyst may go on with either of two continuations. Playing the leakier
one at the epsilon that is left gives L * sup{A, C}, while fixing one in advance gives sup{L * A, L * C}; the difference
is positive at gamma iff the leakier continuation changes between outcomes (Proposition 13 of the residue paper, and
Theorem B.1 of the paper on f-DP filters).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.compositions import Nodes
from jaxacct.games.experiment import Experiment, excess, excess_near, product
from jaxacct.games.runs import Runs

_BLOCK = 2_000_000


class Gap(NamedTuple):
    """The largest certain difference between L * sup{A, C} and sup{L * A, L * C}, at ``epsilon``.

    Attributes:
        excess: certainly at least this much; not positive if none is certain.
        epsilon: where.
    """

    excess: float
    epsilon: float


def finite_gap(query: Experiment, one: Experiment, other: Experiment) -> Gap:
    """The gap of finite experiments, searched where it can be largest: all curves are lines between those epsilons."""
    points = _candidates(query, one, other)
    adaptive, _ = adaptive_excess_of(query, [one, other], points)
    fixed = [excess(product(query, x), points)[1] for x in (one, other)]
    return _largest(points, adaptive - np.maximum(*fixed))


def adaptive_excess_of(
    query: Experiment, plans: Sequence[Experiment], points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``(lower, upper)`` of the excess of L * sup of all ``plans`` at ``points`` (n,)."""
    lower, upper = excess(query, points)
    kept = np.isfinite(query.losses)
    for loss, p in zip(query.losses[kept], query.p[kept], strict=True):
        shift = query.loss_error + 4 * EPS * (abs(loss) + np.abs(points))
        ends = [excess_near(plan, points - loss, shift) for plan in plans]
        lower = lower + p * np.maximum.reduce([e[0] for e in ends])
        upper = upper + p * np.maximum.reduce([e[1] for e in ends])
    units = query.error + (query.p.size + 8) * EPS
    return deflated(lower, units), inflated(upper, units)


def _candidates(query: Experiment, one: Experiment, other: Experiment) -> np.ndarray:
    own = np.unique(np.concatenate([one.finite, other.finite, [0.0]]))
    inner = np.unique(np.concatenate([own, _crossings(own, one, other)]))
    outer = np.unique((query.finite[:, None] + inner[None]).reshape(-1))
    # Thinned where outcomes are many: any epsilon is a sound place to look at.
    outer = outer[:: max(1, outer.size * query.p.size // _BLOCK)]
    first, second = product(query, one), product(query, other)
    return np.unique(np.concatenate([outer, _crossings(outer, first, second)]))


def _crossings(points: np.ndarray, one: Experiment, other: Experiment) -> np.ndarray:
    """Where two lines between neighbouring points cross, about."""
    difference = np.add(*excess(one, points)) - np.add(*excess(other, points))
    i = np.nonzero(difference[:-1] * difference[1:] < 0)[0]
    share = difference[i] / (difference[i] - difference[i + 1])
    return points[i] + np.log1p(share * np.expm1(points[i + 1] - points[i]))


def lattice_gap(query: int, sides: tuple[Runs, Runs], one: Nodes, other: Nodes) -> Gap:
    """The gap at lattice points, from bounds on the lattice; ``sides`` are runs from above and from below."""
    upper, lower = sides
    adaptive = lower.then(query, np.maximum(one.lower, other.lower))
    fixed = [upper.then(query, plan.upper) for plan in (one, other)]
    return _largest(upper.grid.losses, adaptive - np.maximum(*fixed))


def _largest(points: np.ndarray, certain: np.ndarray) -> Gap:
    best = int(np.argmax(certain))
    return Gap(float(certain[best]), float(points[best]))
