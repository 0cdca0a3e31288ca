"""`gdp_summary`: the Gaussian mechanism that a run is no worse than, and how much worse that one is than the run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from scipy.special import ndtr

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct.accounting import Bounds
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import RELATIONS
from jaxacct.mechanisms.pairs.gaussian_curve import log_delta_bounds
from jaxacct.mechanisms.parameters import composed_noise
from jaxacct.summaries.curve import ROUNDING, Questions, deltas_at, half_curve, questions

WELL = 0.01  # the regret up to which mu tells the whole curve (Gomez et al. 2025)
_CELLS = 96  # of the first lattice
_ROUNDS = 5  # in which cells that decide are cut into
_PIECES = 4  # pieces,
_AT_ONCE = 128  # of one setting at most
_HALVINGS = 30
_MARGIN = 2e-5  # a share of mu, above what the points ask for, at which whole cells are tried
_SHARE = 5e-3  # of the regret, or
_NARROW = 2e-6  # by how much more a cell may have
_LEAST, _MOST = np.log(1e-8), np.log(1e4)  # of log mu


class GDPSummary(NamedTuple):
    """What :func:`gdp_summary` found; arrays of one shape.

    Attributes:
        mu: bounds of the least mu. The upper one is what to report.
        regret: bounds of the regret of that upper mu, in probability.
        describes_well: whether the regret is surely below 0.01, so that mu tells the whole curve.
        delta_aside: what was left aside.
    """

    mu: Bounds
    regret: Bounds
    describes_well: Array
    delta_aside: float

    def __str__(self) -> str:
        mu, regret = (np.asarray(x.upper) for x in (self.mu, self.regret))
        head = f"mu-GDP up to delta {self.delta_aside:g} with mu at most {mu}, regret at most {regret}: "
        return head + (
            "mu describes the whole curve."
            if np.all(self.describes_well)
            else "mu alone describes the curve badly; report epsilon at a delta, or the curve, as well."
        )


def gdp_summary(
    mechanism: Mechanism, *, steps: ArrayLike = 1, relation: str = "add_or_remove", delta_aside: float = 1e-10
) -> GDPSummary:
    """The least mu such that ``mechanism`` is mu-GDP up to ``delta_aside``, and the regret of saying so.

    Up to delta_aside means: at every epsilon, delta(epsilon) is at most the larger of delta_aside and the delta of
    mu-GDP. (Without it most sampled mechanisms have no finite mu, because their last tail is heavier than any
    Gaussian's.) The regret is the least kappa such that the trade-off curve, moved by kappa along both axes, is nowhere
    above that of mu-GDP (Gomez et al. 2025, arXiv 2503.10945, from the Delta-divergence of Kaissis et al. 2024): the
    largest (delta_mu(epsilon) - delta(epsilon)) / (1 + exp(epsilon)). Proof: docs/theorems/gdp-summary.md.

    Args:
        mechanism: a mechanism or the guarantee of a filter, with concrete parameters; arrays are settings.
        steps: how often it runs, any shape.
        relation: as for `jaxacct.delta`; one direction has the mu of both, because mu-GDP is symmetric.
        delta_aside: above 0 and below 1.

    Raises:
        ValueError: another object, traced parameters, a delta outside (0, 1).
    """
    _validate.probability(delta_aside=delta_aside)
    _validate.one_of(RELATIONS, relation=relation)
    asked = questions(mechanism, relation, steps, joint=True)
    runs = mechanism._gaussian_runs() if isinstance(mechanism, Mechanism) else None
    if runs is not None:
        _validate.count(0, steps=steps)
        mu = np.where(np.equal(steps, 0), 0.0, 1.0 / composed_noise(runs, np.maximum(steps, 1)))
        return _of_gaussians(mu, delta_aside)
    at, lower, upper, nearest = half_curve(asked, _CELLS, delta_aside)
    points = _Points(at, lower[0], upper[0])
    reached = np.isfinite(points.upper[-1]) & (points.upper[-1] <= delta_aside * (1.0 + 1e-6))
    # Just before the epsilon at which delta is delta_aside, it is above.
    nearest = np.where(points.lower[0] > 0, nearest, 0.0)
    most, fails, (small, cells, tail) = _of_points(points, delta_aside)
    for _ in range(_ROUNDS):
        wide = (cells - small) / np.maximum(_SHARE * small, _NARROW)
        score = np.where(reached & (fails | (wide > 1.0)), wide + 1e9 * fails, -1.0)
        if not (score > 0).any():
            break
        points = _refined(points, score, asked)
        most, fails, (small, cells, tail) = _of_points(points, delta_aside)
    if fails.any():
        most = np.where(fails.any(0), _enough(points, delta_aside, most), most)
        small, cells, tail = _regret(most, points)
    most = np.where(reached, most, np.inf)
    finite = np.isfinite(most)
    largest = np.minimum(np.maximum(cells.max(0), tail) + 1e-15, 1.0)
    regret = Bounds(np.where(finite, np.maximum(small, 0.0), 0.0), np.where(finite, largest, 1.0))
    least = np.minimum(_refuted(points, nearest, delta_aside), most)
    return GDPSummary(Bounds(least, most), regret, regret.upper <= WELL, float(delta_aside))


def _of_gaussians(mu: Array, aside: float) -> GDPSummary:
    """Of runs that are one Gaussian, whose mu is known: but for rounding it has no regret."""
    low, high = mu * (1.0 - ROUNDING), mu * (1.0 + ROUNDING)
    # All is aside where delta(0), which is at most mu / sqrt(2 pi), is.
    seen = _log_delta(np.maximum(low, 1e-300), np.zeros_like(low))[0] > np.log(aside)
    regret = Bounds(np.zeros_like(low), np.minimum(mu * ROUNDING, 1.0))
    return GDPSummary(Bounds(np.where(seen, low, 0.0), high), regret, regret.upper <= WELL, float(aside))


class _Points(NamedTuple):
    """Bounds of the run's curve at epsilons that rise from 0 along the first axis."""

    at: Array
    lower: Array
    upper: Array


def _of_points(points: _Points, aside: float) -> tuple[Array, Array, tuple[Array, Array, Array]]:
    """A little more than the mu that the points ask for, the cells in which it is too small, and its regret."""
    _, high = _reached(points.at, _log(points.upper), 0, _counts(points.upper, aside))
    most = np.exp(high) * (1.0 + _MARGIN)
    return most, _fails(most, points, aside), _regret(most, points)


def _refined(points: _Points, score: Array, asked: Questions) -> _Points:
    """Cuts the cells of the largest scores above 0 into pieces, as many of every setting."""
    number = min(int((score > 0).sum(0).max()), _AT_ONCE)
    worst = np.argsort(-score, 0, kind="stable")[:number]
    left, right = (np.take_along_axis(x, worst, 0) for x in (points.at[:-1], points.at[1:]))
    new = np.concatenate([left + (right - left) * (i / _PIECES) for i in range(1, _PIECES)])
    every = [np.concatenate(pair) for pair in zip(points, (new, *deltas_at(asked, new)[:, 0]), strict=True)]
    order = np.argsort(every[0], 0, kind="stable")
    return _Points(*(np.take_along_axis(x, order, 0) for x in every))


def _log(x: Array) -> Array:
    return np.log(np.maximum(x, 1e-300))


def _log_delta(mu: Array, at: Array) -> tuple[Array, Array]:
    return log_delta_bounds(np.broadcast_to(mu, at.shape), at)


def _reached(at: Array, log_delta: Array, side: int, counts: Array) -> tuple[Array, Array]:
    """Neighbours between which a bound of log delta of mu-GDP is ``log_delta`` at all points that count, by log mu."""
    low, high = np.full(at.shape[1:], _LEAST), np.full(at.shape[1:], _MOST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        short = counts & (_log_delta(np.exp(middle), at)[side] < log_delta)
        some = short.any(0)
        low, high = np.where(some, middle, low), np.where(some, high, middle)
        counts = counts & (short | ~some)  # what is reached before others are does not matter any more
        left = counts.any(tuple(range(1, at.ndim)))
        at, log_delta, counts = at[left], log_delta[left], counts[left]
    return low, high


def _refuted(points: _Points, nearest: Array, aside: float) -> Array:
    """The largest mu that some point refutes, or 0."""
    at = np.concatenate([points.at, nearest[None]])
    known = np.concatenate([points.lower > aside, (nearest > 0)[None]])
    lower = np.concatenate([points.lower, np.full_like(nearest, aside)[None]])
    low, _ = _reached(at, _log(lower * (1.0 - ROUNDING)), 1, known)
    return np.where(low > _LEAST, np.exp(low), 0.0)


def _counts(upper: Array, aside: float) -> Array:
    """The points of cells of interest, which begin where delta is not surely left aside."""
    return np.concatenate([np.ones_like(upper[:1], bool), upper[:-1] > aside])


def _enough(points: _Points, aside: float, low: Array) -> Array:
    """The least mu that is surely enough, to a share of 1e-12; inf where none up to 10,000 is."""
    low, high = np.log(low), np.full_like(low, _MOST)
    for _ in range(44):
        middle = 0.5 * (low + high)
        fails = _fails(np.exp(middle), points, aside).any(0)
        low, high = np.where(fails, middle, low), np.where(fails, high, middle)
    found = np.exp(high)
    return np.where(_fails(found, points, aside).any(0), np.inf, found)


def _fails(mu: Array, points: _Points, aside: float) -> Array:
    """The cells of interest in which mu-GDP's delta is not surely above the chord of ``upper``.

    Both are curves of x = e^epsilon. Between two points the chord of ``upper`` is to lie below the tangents of the
    Gaussian's curve, which is convex: at the ends, and where the tangents meet.
    """
    at, _, upper = points
    gaussian = np.exp(_log_delta(mu, at)[0]) * (1.0 - ROUNDING)
    slope = -ndtr(-(at / mu + 0.5 * mu))  # -Q(L > epsilon)
    gap = np.exp(at[:-1]) * np.expm1(np.diff(at, axis=0))
    start, end = gaussian[:-1], gaussian[1:]
    with np.errstate(all="ignore"):
        meet = (start - end + slope[1:] * gap) / (slope[1:] - slope[:-1])
    meet = np.clip(np.nan_to_num(meet, nan=0.0), 0.0, gap)
    # Either tangent is a lower bound there, with the left slope rounded down and the right one up.
    left, right = slope[:-1] * (1.0 + ROUNDING), slope[1:] * (1.0 - ROUNDING)
    tangent = np.maximum(start + left * meet, end - right * (gap - meet))
    chord = upper[:-1] + (upper[1:] - upper[:-1]) * meet / gap
    surely = (start >= upper[:-1]) & (end >= upper[1:]) & (tangent >= chord)
    return ~surely & _counts(upper, aside)[1:]


def _regret(mu: Array, points: _Points) -> tuple[Array, Array, Array]:
    """Bounds of the largest (delta_mu - delta) / (1 + e^epsilon) over epsilon >= 0; negative epsilons have the same.

    From below, from above in every cell, and beyond the last one. Of no mu that is infinite.
    """
    at, lower, upper = points
    # One negative epsilon before, for the slope there: delta(-e) = 1 - e^-e + e^-e delta(e).
    before, less = at[1:2], -np.expm1(-at[1:2])
    epsilons = np.concatenate([-before, at])
    below, over = (np.concatenate([less + np.exp(-before) * x[1:2], x]) for x in (lower, upper))
    gap = np.exp(epsilons[:-1]) * np.expm1(np.diff(epsilons, axis=0))
    steep, flat = (below[1:] - over[:-1]) / gap, np.minimum((over[1:] - below[:-1]) / gap, 0.0)
    # In a cell the run's curve, convex, is below its chord by at most the change of slope times a quarter of the cell;
    # the slopes are at least that of the cell before, and at most that of the next.
    turn = np.concatenate([flat[2:], np.zeros_like(flat[:1])]) - steep[:-1]
    bend = np.maximum(turn, 0.0) * gap[1:] / 4.0
    x = np.exp(at)
    low, high = (np.exp(side) for side in _log_delta(np.where(np.isfinite(mu), mu, 1.0), at))
    above = (high - lower) / (1.0 + x)
    cells = np.maximum(above[:-1], above[1:]) + bend / (1.0 + x[:-1])
    # Beyond the lattice the run's delta is at least 0, and the Gaussian's falls.
    return np.max((low - upper) / (1.0 + x), 0) - 1e-15, cells, high[-1] / (1.0 + x[-1])
