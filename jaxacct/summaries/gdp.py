"""`gdp_summary`: the Gaussian mechanism that a run is no worse than, and how much worse that one is than the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from scipy.special import ndtr

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct.accounting import Bounds, epsilon
from jaxacct.mechanisms.pairs.gaussian_curve import log_delta_bounds
from jaxacct.summaries.curve import ROUNDING, curve_of

if TYPE_CHECKING:
    from jaxacct.mechanisms.base import Mechanism

WELL = 0.01  # the regret up to which mu tells the whole curve (Gomez et al. 2025)
_POINTS = 400
_HALVINGS = 55


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
        relation: as for `jaxacct.delta`.
        delta_aside: above 0 and below 1.

    Raises:
        ValueError: another object, traced parameters, a delta outside (0, 1).
    """
    _validate.probability(delta_aside=delta_aside)
    curve = curve_of(mechanism, relation, _POINTS, delta_aside, steps, joint=True)
    at = curve.losses[_POINTS:]
    lower, upper = (x.max(0)[_POINTS:] for x in (curve.lower, curve.upper))
    reached = np.isfinite(upper[-1]) & (upper[-1] <= delta_aside * (1.0 + 1e-6))
    enough = lambda mu: _is_above(mu, at, upper, delta_aside) & reached  # noqa: E731
    # Just before the epsilon at which delta is delta_aside, it is above.
    last = epsilon(mechanism, delta_aside, steps=steps, relation=relation).lower if lower[0].any() else 0.0 * at[0]
    at_low, low = np.concatenate([at, [last]]), np.concatenate([lower, [np.full_like(at[0], delta_aside)]])
    known = np.concatenate([lower > delta_aside, [last > 0]])
    low = _log(low * (1.0 - ROUNDING))
    refuted = lambda mu: np.any((_log_delta(mu, at_low, 1) < low) & known, 0)  # noqa: E731
    least, most = _least(lambda mu: ~refuted(mu), at)[0], _least(enough, at)[1]
    # The ends of the search are claims as well.
    least, most = np.where(refuted(least), least, 0.0), np.where(enough(most), most, np.inf)
    regret = Bounds(*_regret(most, *(x[_POINTS - 1 :] for x in (curve.losses, curve.lower.max(0), curve.upper.max(0)))))
    return GDPSummary(Bounds(np.minimum(least, most), most), regret, regret.upper <= WELL, float(delta_aside))


def _log(x: Array) -> Array:
    return np.log(np.maximum(x, 1e-300))


def _log_delta(mu: Array, at: Array, side: int) -> Array:
    return np.asarray(log_delta_bounds(np.broadcast_to(mu, at.shape), at)[side])


def _least(true_above: Callable[[Array], Array], at: Array) -> tuple[Array, Array]:
    """Neighbours between which a test that is false for small mu and true for large ones becomes true."""
    low, high = np.full(at.shape[1:], 1e-8), np.full(at.shape[1:], 1e4)
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        yes = true_above(middle)
        low, high = np.where(yes, low, middle), np.where(yes, middle, high)
    return low, high


def _is_above(mu: Array, at: Array, upper: Array, aside: float) -> Array:
    """Whether mu-GDP's delta is surely above ``upper`` and its chords, wherever those are above ``aside``.

    Both are curves of x = e^epsilon. Between two points the chord of ``upper`` is to lie below the tangents of the
    Gaussian's curve, which is convex: at the ends, and where the tangents meet.
    """
    gaussian = np.exp(_log_delta(mu, at, 0)) * (1.0 - ROUNDING)
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
    # A cell is done with where its left end is: the right end of the last cell of interest counts.
    done = upper[:-1] <= aside
    ends = (gaussian[:1] >= upper[:1]).all(0) & ((end >= upper[1:]) | done).all(0)
    return ends & ((tangent >= chord) | done).all(0)


def _regret(mu: Array, at: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Bounds of the largest (delta_mu - delta) / (1 + e^epsilon) over epsilon >= 0; negative epsilons have the same.

    ``at`` begins with one negative epsilon, for the slope there.
    """
    gap = np.exp(at[:-1]) * np.expm1(np.diff(at, axis=0))
    steep, flat = (lower[1:] - upper[:-1]) / gap, np.minimum((upper[1:] - lower[:-1]) / gap, 0.0)
    # In a cell the run's curve, convex, is below its chord by at most the change of slope times a quarter of the cell;
    # the slopes are at least that of the cell before, and at most that of the next.
    turn = np.concatenate([flat[2:], np.zeros_like(flat[:1])]) - steep[:-1]
    bend = np.maximum(turn, 0.0) * gap[1:] / 4.0
    at, lower, upper = at[1:], lower[1:], upper[1:]
    x = np.exp(at)
    finite = np.isfinite(mu)
    known = np.where(finite, mu, 1.0)
    low, high = (np.exp(_log_delta(known, at, side)) for side in (0, 1))
    found = (low - upper) / (1.0 + x)
    above = (high - lower) / (1.0 + x)
    most = np.maximum(above[:-1], above[1:]) + bend / (1.0 + x[:-1])
    # Beyond the lattice the run's delta is at least 0, and the Gaussian's falls.
    tail = high[-1] / (1.0 + x[-1])
    largest = np.maximum(np.max(most, 0), tail) + 1e-15
    smallest = np.maximum(np.max(found, 0) - 1e-15, 0.0)
    return np.where(finite, smallest, 0.0), np.where(finite, np.minimum(largest, 1.0), 1.0)
