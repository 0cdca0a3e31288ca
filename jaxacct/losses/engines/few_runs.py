"""delta and epsilon of a composition, law by law without a transform.

A rare sample has losses of very different sizes, which no uniform line of frequencies serves. But the laws
of `discrete_laws.cells` have few points, wherever they are needed, so two of them are composed point by point, and what
comes out is put on few points again, on the same side of the truth (`law_sums`). The last composition is not written
down: delta is the mean hockey stick of one half of the runs at epsilon minus the loss of the other half (`two_laws`).
All sums are of non-negative numbers, so deep tails keep their digits. T runs take about log2 T compositions. Every law
is a bound exactly as it stands, so how many are composed matters to no proof. NumPy only, one setting at a time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.rounding import EPS
from jaxacct.losses.engines.discrete_laws.cells import Law, Laws, laws, laws_of_outcomes
from jaxacct.losses.engines.law_sums import merged, split
from jaxacct.losses.engines.one_run import single_delta
from jaxacct.losses.engines.two_laws import Half, delta_of_sum, epsilon_of_sum
from jaxacct.mechanisms.pairs.base import Pair, Survey
from jaxacct.mechanisms.pairs.cells import placed, with_edge
from jaxacct.mechanisms.pairs.table import lists_outcomes

MOST_RUNS = 2.0**53  # beyond which counts are no whole numbers
_FIRST, _SECOND, _MOST = 96, 256, 1536  # points of a law: to learn what matters, then how wide bounds are; at most
_PASSES = 5
_TIGHT = {"epsilon": 1e-4, "delta": 4e-4}  # relative width that ends it, and that the number of points aims at
_DEEP, _DEEP_TIGHT = 1e-12, 2e-3  # a delta below which that width will do
_SKETCH = 48  # points of a law that tell where the points of a composition should go
_WHOLE = 34.0  # e-foldings between delta and what lies below the first edge
_LEFT_OUT = 21.0  # e-foldings between delta and what lies above the last


class _Aim(NamedTuple):
    """What the laws are to be good at: hockey sticks of about ``delta`` at about ``epsilon``.

    ``spread`` is the size of the sum of all losses: next to it a small epsilon is 0.
    """

    epsilon: float
    delta: float
    runs: float
    spread: float

    def theta(self) -> float:
        """By how much e-folds the probability of a loss above epsilon falls with epsilon, about.

        A tiny loss contributes no more than itself to delta, however likely it is.
        """
        size = max(self.epsilon, self.spread)
        return -np.log(min(self.delta / min(size, 1.0), 0.5)) / size

    def weights(self, losses: np.ndarray, log_masses: np.ndarray) -> np.ndarray:
        """How much a point matters: its mass, and how likely the rest brings its loss to about epsilon.

        Where everything is above epsilon, only the total P- and Q-mass count, which all points keep.
        """
        theta = self.theta()
        away = np.minimum(losses - self.epsilon, 0.0)
        beyond = np.maximum(losses - self.epsilon, 0.0) / max(self.epsilon, self.spread)
        found = log_masses + theta * away - 3.0 * beyond
        return np.exp(found - found.max())

    def ends(self, losses: np.ndarray, log_masses: np.ndarray) -> tuple[float, float]:
        """The first edge and the last, for points sorted by loss."""
        theta = self.theta()
        masses = np.exp(log_masses)
        under = np.log(np.cumsum(masses)) + theta * losses
        over = np.cumsum(masses[::-1])[::-1]
        low = losses[max(np.argmax(under > -_WHOLE - np.log(self.runs)) - 1, 0)]
        kept = np.flatnonzero(over > self.delta * np.exp(-_LEFT_OUT) / self.runs)
        last = kept[-1] if kept.size else losses.size - 1
        return float(low), float(losses[min(last + 1, losses.size - 1)])


def few_run_bounds(
    kind: str, groups: tuple[Pair, ...], counts: np.ndarray, goal: np.ndarray, enough: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``(lower, upper)`` of delta or epsilon for a flat concrete batch, each of shape ``(B,)``.

    Groups have leaves of shape ``(B, parts of the group)``, ``counts`` the shape ``(B, K)``, at most ``MOST_RUNS`` in
    all. ``enough`` are upper bounds that are as good as any smaller ones.
    """
    found = []
    for row in range(goal.size):
        parts = []
        for group in groups:
            for part in range(jax.tree.leaves(group)[0].shape[1]):
                parts.append(jax.tree.map(lambda x: x[row, part], group))  # noqa: B023
        runs = [(pair, int(count)) for pair, count in zip(parts, counts[row], strict=True) if count > 0]
        if not np.isfinite(counts[row]).all() or any(np.isnan(x).any() for x in jax.tree.leaves(parts)):
            found.append((0.0, np.inf if kind == "epsilon" else 1.0))
            continue
        with np.errstate(all="ignore"):  # what comes of it fails closed
            found.append(_answer(kind, runs, float(goal[row]), float(enough[row])))
    lower, upper = zip(*found, strict=True)
    return np.array(lower), np.array(upper)


def _answer(kind: str, runs: list[tuple[Pair, int]], goal: float, enough: float) -> tuple[float, float]:
    total = sum(count for _, count in runs)
    if kind == "delta":
        alone = max(float(single_delta(pair, np.array(goal))[1]) for pair, _ in runs)
        epsilon, delta = goal, alone
    else:
        epsilon, delta = sum(count * _rough_epsilon(pair, goal / total) for pair, count in runs), goal
    bounds = (0.0, np.inf if kind == "epsilon" else 1.0)
    spread = _finite(sum(count * _square(pair.survey()) for pair, count in runs) ** 0.5)
    size = _FIRST
    for _ in range(_PASSES):
        aim = _Aim(max(epsilon, 1e-12), min(max(delta, 1e-300), 0.5), float(total), spread)
        halves = _halves(runs, aim, size)
        if halves is None:
            return bounds
        found = (delta_of_sum if kind == "delta" else epsilon_of_sum)(*halves, goal)
        bounds = max(bounds[0], found[0]), min(bounds[1], found[1])
        width = bounds[1] / bounds[0] - 1.0 if bounds[0] > 0 else np.inf
        wanted = _DEEP_TIGHT if kind == "delta" and bounds[1] < _DEEP else _TIGHT[kind]
        if width <= wanted or bounds[1] <= enough or size == _MOST:
            break
        size = _larger(size, width / wanted)
        # What was wide was aimed at the wrong place: next time between the bounds.
        between = math.sqrt(bounds[0]) * math.sqrt(bounds[1]) if bounds[0] > 0 else bounds[1]
        if kind == "delta":
            delta = between
        elif np.isfinite(bounds[1]):
            epsilon = between
    return bounds


def _larger(size: int, times: float) -> int:
    """The number of points of the next pass: widths fall with its square, and are so many times too large."""
    if size < _SECOND:
        return _SECOND
    return min(64 * math.ceil(1.1 * size * min(times, 16.0) ** 0.5 / 64), _MOST)


def _rough_epsilon(pair: Pair, delta: float) -> float:
    """About where the hockey stick of one run falls to ``delta``."""
    survey = pair.survey()
    half = Half(Law(survey.losses, np.exp(survey.log_masses), np.zeros(())))
    beyond = half.stick(half.losses)[0] <= delta
    return max(_finite(half.losses[np.argmax(beyond)]), 0.0)


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else 1.0


def _square(survey: Survey) -> float:
    """The mean square of a loss, large ones apart."""
    return float((np.exp(survey.log_masses) * np.clip(survey.losses, -50.0, 50.0) ** 2).sum())


def _halves(runs: list[tuple[Pair, int]], aim: _Aim, size: int) -> tuple[Laws, Laws] | None:
    """Two laws whose composition is that of all runs, None where a number is none."""
    singles = [_single(pair, aim, size) for pair, _ in runs]
    if any(not (np.isfinite(law.masses).all() and np.isfinite(law.losses).all()) for one in singles for law in one):
        return None
    first = second = None
    for single, (_, count) in zip(singles, runs, strict=True):
        half = _power(single, count // 2, aim, size)
        odd = single if count % 2 else None
        first, second = _joined(first, half, aim, size), _joined(second, half, aim, size)
        if odd is not None:
            first, second = second, _joined(first, odd, aim, size)
    nothing = Law(np.zeros(1), np.ones(1), np.zeros(()))
    return first or Laws(nothing, nothing), second or Laws(nothing, nothing)


def _power(single: Laws, count: int, aim: _Aim, size: int) -> Laws | None:
    """``count`` runs. A square is used many times; a product of few runs only once, where fewer points will do."""
    result, square = None, single
    while count:
        if count % 2:
            result = _joined(result, square, aim, max(_FIRST, int(size * 2.0 ** (-0.25 * count.bit_length() + 0.25))))
        count //= 2
        if count:
            square = _joined(square, square, aim, size)
    return result


def _joined(first: Laws | None, second: Laws | None, aim: _Aim, size: int) -> Laws | None:
    if first is None or second is None:
        return first if second is None else second
    return _composed(first, second, aim, size)


def _single(pair: Pair, aim: _Aim, size: int) -> Laws:
    if lists_outcomes(pair):
        return laws_of_outcomes(pair)
    survey = pair.survey()
    massive = survey.log_masses > -np.inf
    if not massive.any():  # all of it infinite, as far as is known
        return laws(pair, np.array([-1.0, 1.0]))
    order = np.argsort(survey.losses[massive])
    losses, log_masses = survey.losses[massive][order], survey.log_masses[massive][order]
    most = float(pair.max_loss() + 2.0 * pair.loss_error())
    low, high = aim.ends(losses, log_masses)
    # Tails are those of losses that are off by so much: an atom at the end must lie before it for all of them.
    high = most if high >= losses[-1] and most < np.inf else min(high + 2.0 * float(pair.loss_error()), most)
    low = low - 1e-9 * abs(low)
    high = high if high > low else low + 1e-9 + 1e-9 * abs(low)
    edges = placed(losses, aim.weights(losses, log_masses), (np.asarray(low), np.asarray(high)), size)
    return laws(pair, with_edge(edges, pair.anchor() + 2.0 * pair.loss_error()))


def _composed(first: Laws, second: Laws, aim: _Aim, size: int) -> Laws:
    """Both sides of the sum of two losses, on ``size`` points or less."""
    sketch = [_sketched(one.upper, _SKETCH) for one in (first, second)]
    (losses, other_losses), (masses, other_masses) = zip(*sketch, strict=True)
    products = Law(np.add.outer(losses, other_losses).ravel(), np.multiply.outer(masses, other_masses).ravel(), 0.0)
    losses, masses = _sketched(products, _SKETCH**2 // 8)
    ends = [sum(end(one.upper.losses) for one in (first, second)) for end in (np.min, np.max)]
    losses = np.concatenate([ends[:1], losses, ends[1:]])
    log_masses = np.log(np.concatenate([[0.0], masses, [0.0]]))
    low, high = aim.ends(losses, log_masses)
    largest = ends[-1]
    high = largest if high >= losses[-1] else min(high, largest)
    high = high + 8 * EPS * (abs(high) + abs(low)) if high > low else low + 1e-9 + 1e-9 * abs(low)
    edges = placed(losses, aim.weights(losses, log_masses), (np.asarray(low), np.asarray(high)), size)
    return Laws(merged(first.lower, second.lower, edges), split(first.upper, second.upper, edges))


def _sketched(law: Law, points: int) -> tuple[np.ndarray, np.ndarray]:
    """A law on few points, sorted: for planning."""
    order = np.argsort(law.losses)
    begins = np.unique(np.arange(points) * order.size // points)
    masses, losses = law.masses[order], law.losses[order]
    total = np.add.reduceat(masses, begins)
    mean = np.add.reduceat(masses * losses, begins) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, mean, losses[begins]), total
