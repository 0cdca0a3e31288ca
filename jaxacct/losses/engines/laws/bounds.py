"""delta and epsilon of a composition, law by law without a transform.

A rare sample has losses of very different sizes, which no uniform line of frequencies serves. But the laws
of `cells` have few points, wherever they are needed, so two of them are composed point by point, and what
comes out is put on few points again, on the same side of the truth (`sums`). The last composition is not written
down: delta is the mean hockey stick of one half of the runs at epsilon minus the loss of the other half (`of_two`).
All sums are of non-negative numbers, so deep tails keep their digits. T runs take about log2 T compositions. Every law
is a bound exactly as it stands, so how many are composed matters to no proof. NumPy only, one setting at a time.
"""

from __future__ import annotations

import math

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.rounding import inflated
from jaxacct.losses.engines.laws.aim import Aim
from jaxacct.losses.engines.laws.cells import Law
from jaxacct.losses.engines.laws.composer import LEAST_POINTS, Composer
from jaxacct.losses.engines.laws.of_two import Half, delta_of_sum, epsilon_of_sum
from jaxacct.losses.engines.one_run import single_delta
from jaxacct.mechanisms.pairs.base import Pair, Survey

Runs = list[tuple[Pair, int]]  # pairs of one setting, and how often each runs

MOST_RUNS = 2.0**53  # beyond which counts are no whole numbers
_SECOND, _MOST = 256, 2048  # points of a law that tell how wide bounds are; the most
_PASSES = 5
_VAGUE = 0.1  # relative width of bounds that may have been aimed at the wrong place
_TIGHT = {"epsilon": 1e-4, "delta": 4e-4}  # relative width that ends it, and that the number of points aims at
_DEEP, _DEEP_TIGHT = 1e-12, 4e-3  # a delta below which that width will do


def law_bounds(
    kind: str, groups: tuple[Pair, ...], counts: np.ndarray, goal: np.ndarray, enough: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``(lower, upper)`` of delta or epsilon for a flat concrete batch, each of shape ``(B,)``.

    Groups have leaves of shape ``(B, parts of the group)``, ``counts`` the shape ``(B, K)``, at most ``MOST_RUNS`` in
    all. ``enough`` are upper bounds that are as good as any smaller ones.
    """
    found = []
    for row in range(goal.size):
        runs = runs_of(groups, counts, row)
        if not np.isfinite(counts[row]).all() or any(
            np.isnan(x).any() for x in jax.tree.leaves([pair for pair, _ in runs])
        ):
            found.append((0.0, np.inf if kind == "epsilon" else 1.0))
            continue
        with np.errstate(all="ignore"):  # what comes of it fails closed
            found.append(_answer(kind, runs, float(goal[row]), float(enough[row])))
    lower, upper = zip(*found, strict=True)
    return np.array(lower), np.array(upper)


def runs_of(groups: tuple[Pair, ...], counts: Array, row: int) -> Runs:
    """The runs of one setting of a batch."""
    parts = []
    for group in groups:
        for part in range(jax.tree.leaves(group)[0].shape[1]):
            parts.append(jax.tree.map(lambda x: x[row, part], group))  # noqa: B023
    return [(pair, int(count)) for pair, count in zip(parts, counts[row], strict=True) if 0 < count < np.inf]


def _answer(kind: str, runs: Runs, goal: float, enough: float) -> tuple[float, float]:
    total = sum(count for _, count in runs)
    if kind == "delta":
        alone = max(float(single_delta(pair, np.array(goal))[1]) for pair, _ in runs)
        epsilon, delta = goal, alone
    else:
        epsilon, delta = sum(count * _rough_epsilon(pair, goal / total) for pair, count in runs), goal
    bounds = (0.0, np.inf if kind == "epsilon" else 1.0)
    spread, largest = spread_of(runs), _largest(runs)
    size = LEAST_POINTS
    for _ in range(_PASSES):
        aim = Aim.at(epsilon, delta, float(total), spread)
        halves = Composer(aim, size).halves(runs)
        if halves is None:
            return bounds
        found = (delta_of_sum if kind == "delta" else epsilon_of_sum)(*halves, goal, largest)
        bounds = max(bounds[0], found[0]), min(bounds[1], found[1])
        width = bounds[1] / bounds[0] - 1.0 if bounds[0] > 0 else (np.inf if bounds[1] > 0 else 0.0)
        wanted = _DEEP_TIGHT if kind == "delta" and bounds[1] < _DEEP else _TIGHT[kind]
        if width <= wanted or bounds[1] <= enough or size == _MOST:
            break
        size = _larger(size, width, wanted)
        # What was wide was aimed at the wrong place: next time between the bounds.
        between = math.sqrt(bounds[0]) * math.sqrt(bounds[1]) if bounds[0] > 0 else bounds[1]
        if kind == "delta":
            delta = between
        elif np.isfinite(bounds[1]):
            epsilon = between
    return bounds


def _larger(size: int, width: float, wanted: float) -> int:
    """The number of points of the next pass: widths fall with its square, and vague bounds do not say by how much."""
    if size < _SECOND:
        return _SECOND
    more = min(1.1 * (width / wanted) ** 0.5, 2.0 if width > _VAGUE else np.inf)
    return min(64 * math.ceil(min(size * more, _MOST) / 64), _MOST)


def _largest(runs: Runs) -> float:
    """No sum of finite losses is above."""
    largest = float(inflated(sum(count * float(pair.max_loss()) for pair, count in runs), 1e-12))
    return np.inf if np.isnan(largest) else largest


def _rough_epsilon(pair: Pair, delta: float) -> float:
    """About where the hockey stick of one run falls to ``delta``."""
    survey = pair.survey()
    half = Half(Law(survey.losses, np.exp(survey.log_masses), np.zeros(())))
    beyond = half.stick(half.losses)[0] <= delta
    return max(_finite(half.losses[np.argmax(beyond)]), 0.0)


def _finite(value: Real) -> float:
    return float(value) if np.isfinite(value) else 1.0


def spread_of(runs: Runs) -> float:
    """About the size of the sum of all losses."""
    return _finite(sum(count * _square(pair.survey()) for pair, count in runs) ** 0.5)


def _square(survey: Survey) -> float:
    """The mean square of a loss, large ones apart."""
    return float((np.exp(survey.log_masses) * np.clip(survey.losses, -50.0, 50.0) ** 2).sum())
