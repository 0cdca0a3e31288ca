"""delta and epsilon of few runs on a rare sample of a Gaussian: the contour integral, and the losses left out of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.losses.engines.rays.contour import Contour, Saddle, contour, rough, saddle
from jaxacct.losses.engines.rays.ray import Run, ray, run_of
from jaxacct.losses.engines.rays.threshold import Dropped, Threshold, dropped, undecided
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

MOST_RUNS = 96  # NumPy forms powers below 100 by products
_RATES, _NOISES = (1e-30, 0.05), (0.2, 20.0)  # beyond which there would be too many points
_SPREAD = 200.0  # runs times noise beyond which what decides drowns in what is typical
_FEW, _MANY = 60, (120, 240, 480)  # variables of a threshold, `add` and `remove`
_TILT, _TILTS = 0.3, 5.0  # of a threshold's scale that a vertex may be, and times the number of runs
_UNDECIDED, _DEEPEST = 24.0, 90.0  # e-foldings of the probability that a threshold is below what decides alone
_SMALLER = 19.0  # e-foldings between delta and what that costs
_FARTHEST = 12.0  # sums of losses above which another engine is asked
_STEPS = 10  # of the search for epsilon
_CLOSE = 0.4  # relative error of delta, as a logarithm, at which it ends
_NEAR = 0.15  # how far, relative, a contour serves
_NUDGES = (2.0, 100.0)  # how far from the root bounds are tried, in units of their own distance from it


def suits(groups: tuple[Pair, ...], counts: Array) -> Array:
    """Which compositions are few runs of one rarely sampled Gaussian."""
    (pair,) = groups
    if not isinstance(pair, GaussianPair) or counts.shape[1] != 1:
        return np.zeros(len(counts), bool)
    noise, rate, runs = pair.noise[:, 0], pair.rate[:, 0], counts[:, 0]
    few = (runs >= 2.0) & (runs <= MOST_RUNS) & (noise <= _SPREAD / np.maximum(runs, 1.0))
    return few & (rate >= _RATES[0]) & (rate <= _RATES[1]) & (noise >= _NOISES[0]) & (noise <= _NOISES[1])


def ray_bounds(
    kind: str, groups: tuple[GaussianPair, ...], counts: Array, goal: Array, enough: Array
) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta or epsilon for a flat concrete batch that `suits`, each of shape ``(B,)``.

    ``enough`` are upper bounds of epsilon that are as good as any smaller ones.
    """
    (pair,) = groups
    found: list[tuple[float, float]] = []
    with np.errstate(all="ignore"):  # what comes of it fails closed
        for row in range(goal.size):
            leaves = (float(np.asarray(x)[row].item()) for x in (pair.noise, pair.rate, pair.rest, pair.reverse))
            noise, rate, rest, reverse = leaves
            run = run_of(noise, rate, rest, reverse > 0.5, int(counts[row, 0]))
            try:
                if kind == "delta":
                    found.append(_delta(run, float(goal[row])))
                else:
                    found.append(_epsilon(run, float(goal[row]), float(enough[row])))
            except (ArithmeticError, ValueError):  # math's functions raise where NumPy's say NaN
                found.append((0.0, 1.0 if kind == "delta" else math.inf))
    lower, upper = zip(*found, strict=True)
    return np.array(lower), np.array(upper)


class _Built(NamedTuple):
    """A contour, and what thresholds dropped; good for epsilons around the one that it was built for."""

    run: Run
    threshold: Threshold
    line: Contour
    dropped: Dropped

    def value(self, epsilon: float) -> tuple[float, float]:
        """delta and its slope, without bounds."""
        value, slope = self.line.value(_away(self.run, epsilon)[0])
        if self.run.add:
            return value, -slope
        scale = math.exp(epsilon)
        out = 0.5 * sum(self.dropped.excess(epsilon))
        return scale * value + max(out, 0.0), scale * (value + slope - self.dropped.base[1])

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """``(lower, upper)`` of delta."""
        run = self.run
        away, off = _away(run, epsilon)
        if not away > 10.0 * off:
            return 0.0, 1.0
        value, _ = self.line.value(away)
        error = self.line.error(away, off)
        start = 0.05 * math.floor(math.log(0.02 * away / run.scale) / 0.05)
        missed = undecided(run, self.threshold, ray(run, 0.0, start + 0.05 * np.arange(84), 0.05), away + off)
        if run.add:
            return value - error, value + error + missed
        scale = math.exp(epsilon) * (1.0 + 8.0 * UNIT)
        low, high = self.dropped.excess(epsilon)
        error = scale * (error + 16.0 * UNIT * abs(value))
        return scale * value - error + max(low, 0.0), scale * value + error + high + missed


def _away(run: Run, epsilon: float) -> tuple[float, float]:
    """By how much the sum of all losses above the least one must exceed 0 for a loss of epsilon, and its error."""
    lowest = run.runs * run.lowest
    away = lowest - epsilon if run.add else lowest + epsilon
    return away, UNIT * (24.0 * lowest + 4.0 * abs(epsilon))


def _placed(run: Run, away: float) -> tuple[Threshold, Saddle]:
    """A threshold that is hardly ever below what decides alone, the sharper the larger the tilt."""

    def tried(n: int, depth: float) -> tuple[Threshold, Saddle]:
        threshold = Threshold(n, n / (_ratio(n, depth) * away))
        return threshold, saddle(run, threshold, away)

    if run.add:
        threshold, at = tried(_FEW, _UNDECIDED)
        needed = _SMALLER + math.log(away) - at.log_value
        return tried(_FEW, needed) if _UNDECIDED < needed < _DEEPEST else (threshold, at)
    for n in _MANY[:-1]:
        threshold, at = tried(n, _UNDECIDED)
        if at.vertex <= min(_TILT, _TILTS / run.runs) * threshold.scale:
            return threshold, at
    return tried(_MANY[-1], _UNDECIDED)


def _ratio(n: int, depth: float) -> float:
    """r with P(threshold < 1 / r of its mean) about e^-depth."""
    log = math.log1p((2.0 * depth / n) ** 0.5)
    for _ in range(20):  # Newton's method for n (log r - 1 + 1 / r) = depth
        log -= (log - 1.0 + math.exp(-log) - depth / n) / -math.expm1(-log)
    return math.exp(log)


def _built(run: Run, epsilon: float) -> _Built | None:
    away, _ = _away(run, epsilon)
    if not 0.0 < away < _FARTHEST:
        return None
    threshold, at = _placed(run, away)
    line = contour(run, threshold, away, at)
    out = Dropped((0.0, 0.0), (0.0, 0.0)) if run.add else dropped(run, threshold)
    return None if line is None or out is None else _Built(run, threshold, line, out)


def _delta(run: Run, epsilon: float) -> tuple[float, float]:
    nothing = 0.0, 1.0
    away, off = _away(run, epsilon)
    if run.add and away <= -off:
        return 0.0, 0.0
    built = _built(run, epsilon)
    if built is None:
        return nothing
    lower, upper = built.bounds(epsilon)
    lower, upper = possible(lower, max(upper, 1e-300), epsilon)
    return float(lower), float(upper)


def _epsilon(run: Run, delta: float, enough: float) -> tuple[float, float]:
    nothing = 0.0, math.inf
    if not 0.0 < delta < 1.0:
        return nothing
    if 0.0 <= enough < math.inf and _delta(run, enough)[1] <= delta:
        return 0.0, enough
    epsilon = _guess(run, delta)
    if epsilon is None:
        return nothing
    built = _built(run, epsilon)
    if built is None:
        return nothing
    if epsilon == 0.0 and built.bounds(0.0)[1] <= delta:
        return 0.0, 0.0
    for again in (True, False):
        near = epsilon
        for _ in range(_STEPS):  # Newton's method for log delta
            value, slope = built.value(epsilon)
            step = value / min(slope, -1e-300) * math.log(delta / value)
            epsilon = max(epsilon + step, 0.0)
            if abs(step) <= 1e-13 * epsilon:
                break
        if not again or abs(epsilon - near) <= _NEAR * _away(run, near)[0]:
            break
        built = _built(run, epsilon)
        if built is None:
            return nothing
    (low, high), (_, slope) = built.bounds(epsilon), built.value(epsilon)
    lower, upper = nothing
    for nudge in _NUDGES:
        step = nudge * 0.5 * (high - low) / max(-slope, 1e-300) + 1e-13 * epsilon
        if upper == math.inf and built.bounds(epsilon + step)[1] <= delta:
            upper = epsilon + step
        if lower == 0.0 and epsilon > step and built.bounds(epsilon - step)[0] >= delta:
            lower = epsilon - step
    return lower, upper


def _guess(run: Run, delta: float) -> float | None:
    """About where delta(epsilon) is ``delta``."""
    whole, _ = _away(run, 0.0)
    target = math.log(delta)

    def excess(epsilon: float, correction: float | None) -> tuple[float, float]:
        """log delta(epsilon) - log delta by the vertex alone, and what corrects that: sought if not known."""
        away, _ = _away(run, epsilon)
        threshold, at = _placed(run, away)
        if correction is None:
            correction = math.log(rough(run, threshold, away, at)) - at.log_value
        value = math.exp(at.log_value + correction)
        if not run.add:
            out = dropped(run, threshold)
            value = value * math.exp(epsilon) + (max(out.excess(epsilon)[0], 0.0) if out else 0.0)
        return math.log(max(value, 1e-300)) - target, correction

    f, correction = excess(0.0, None)
    if f <= 0.0:
        return 0.0
    # delta is about a power of the distance from the epsilon at which it is 0 (`add`) or at which no loss is below.
    x, slope, low, high = math.log(whole), -4.0, 0.0, whole if run.add else _FARTHEST - whole
    guess = 0.5 * whole if run.add else 3.0 * whole
    for again in (True, False):
        for _ in range(_STEPS):
            before = x, f
            x, (f, _) = math.log(_away(run, guess)[0]), excess(guess, correction)
            low, high = (guess, high) if f > 0.0 else (low, guess)
            if abs(f) < _CLOSE:
                break
            slope = (f - before[1]) / (x - before[0]) if x != before[0] else slope
            moved = math.exp(x + min(max(-f / slope, -3.0), 3.0))
            guess = whole - moved if run.add else moved - whole
            if not low < guess < high:
                guess = 0.5 * (low + high) if run.add or low == 0.0 else math.sqrt(low * high)
        if again:
            f, correction = excess(guess, None)
            if abs(f) < _CLOSE:
                break
            moved = math.exp(x + min(max(-f / slope, -1.0), 1.0))
            guess = min(max(whole - moved if run.add else moved - whole, 0.0), whole if run.add else _FARTHEST - whole)
            low, high = 0.0, whole if run.add else _FARTHEST - whole
    return guess
