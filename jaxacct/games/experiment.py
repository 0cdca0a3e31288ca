"""Finite experiments: pairs (P, Q) with few outcomes, multiplied and compared exactly, without a grid.

Host-side NumPy: these are the small exact objects on which legality, freeness and counterexamples are decided, and an
independent check of the lattice tables. Sums are of non-negative terms, so n of them cost n units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS
from jaxacct.accounting.batch import Bounds
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.curves import trade_off as tradeoff
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions
from jaxacct.mechanisms.pairs.table import Atoms, Tabulated

_T = TypeVar("_T")
Query = Mechanism | families.Curve
"""What an analyst may ask, and what a budget may be stated as."""
MOST_OUTCOMES = 64
"""Outcomes of a query up to which it counts as a finite experiment."""
_SAME = 64 * EPS  # losses this close (relative to 1 + |loss|) are one outcome; what that costs is in `loss_error`


class Experiment(Atoms):
    """Atoms of one setting, shape ``(outcomes,)``, with one error of all masses and one of all finite losses."""

    __slots__ = ()

    @property
    def infinite(self) -> float:
        """The probability under P that the loss is infinite."""
        return float(self.p[self.losses == np.inf].sum())

    @property
    def singular(self) -> float:
        """The probability under Q of outcomes that P never shows."""
        return float(self.q[self.losses == -np.inf].sum())

    @property
    def finite(self) -> np.ndarray:
        """The losses that are finite, in increasing order."""
        return np.asarray(self.losses[np.isfinite(self.losses)])


def by_direction(members: Sequence[Sequence[_T]]) -> list[list[_T]]:
    """For each direction what every member has there; a member with one for both directions has it in both."""
    sides = range(max(len(member) for member in members))
    return [[member[min(side, len(member) - 1)] for member in members] for side in sides]


def identity() -> Experiment:
    """The experiment of perfect privacy, with one outcome of loss 0."""
    one = np.ones(1)
    return Experiment(np.zeros(1), one, one, 0.0, 0.0)


def experiments_of(member: Query, relation: str) -> list[Experiment] | None:
    """One experiment a direction of ``member`` (two where add and remove differ), or None if it is not finite.

    Curves are taken at their word and have one direction.
    """
    with jax.enable_x64(True):
        if isinstance(member, families.Curve):
            p, q = masses_of(member)
            if p.ndim != 1:
                raise ValueError(f"curves of a family must have no batch axes here, got masses of shape {p.shape}")
            few = ((p > 0) | (q > 0)).sum() <= MOST_OUTCOMES
            return [experiment(p, q, 4 * EPS)] if few else None
        found = []
        for parts in directions(member, relation):
            one = identity()
            for pair, count in parts:
                if not isinstance(pair, Tabulated) or np.size(count) != 1 or float(count) > 64:
                    return None
                scalars = jax.tree.map(lambda x: np.asarray(x, np.float64), pair)
                atoms = jax.tree.map(np.asarray, scalars.atoms())
                if atoms.p.ndim != 1:
                    raise ValueError(f"queries must have scalar parameters, got a batch of shape {atoms.p.shape[:-1]}")
                errors = float(np.max(atoms.error)), float(np.max(atoms.loss_error))
                single = Experiment(atoms.losses, atoms.p, atoms.q, *errors)
                for _ in range(int(count)):
                    one = product(one, _merged(single))
                    if one.p.shape[0] > MOST_OUTCOMES:
                        return None
            found.append(one)
        return found


def masses_of(curve: families.Curve) -> tuple[np.ndarray, np.ndarray]:
    """Masses under P and Q of an experiment with this curve (inside ``enable_x64``)."""
    if isinstance(curve, TradeOff):
        widths, drops = (np.asarray(x) for x in tradeoff.arrays(curve))
        return widths, drops
    law = curve.to_pld() if isinstance(curve, PrivacyProfile) else curve
    p = np.asarray(law.masses, np.float64)
    q = p * np.exp(-law.grid.losses)
    none, singular = np.zeros((*p.shape[:-1], 1)), np.maximum(1.0 - q.sum(-1, keepdims=True), 0.0)
    infinite = np.asarray(law.infinity_mass)[..., None]
    return np.concatenate([none, p, infinite], -1), np.concatenate([singular, q, none], -1)


def experiment(p: np.ndarray, q: np.ndarray, error: Real) -> Experiment:
    """The experiment with these outcomes, whose probabilities are off by a relative ``error`` at most."""
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
    used = (p > 0) | (q > 0)
    log_p, log_q, p, q = log_p[used], log_q[used], p[used], q[used]
    largest = max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in (log_p, log_q))
    return _merged(Experiment(log_p - log_q, p, q, error, 2 * error + 4 * EPS * (1.0 + largest)))


def _merged(one: Experiment) -> Experiment:
    """Sorted, with outcomes of one loss merged: an observer learns as much from either, up to ``loss_error``."""
    keep = (one.p > 0) | (one.q > 0)
    order = np.argsort(one.losses[keep], kind="stable")
    losses, p, q = (x[keep][order] for x in (one.losses, one.p, one.q))
    wide = _SAME + 2.0 * one.loss_error
    with np.errstate(invalid="ignore"):
        close = np.diff(losses) <= wide * (1.0 + np.abs(losses[1:]))
    near = (close & np.isfinite(losses[1:]) & np.isfinite(losses[:-1])) | (losses[1:] == losses[:-1])
    start = np.concatenate([[True], ~near])
    group = np.cumsum(start) - 1
    total = int(group[-1]) + 1
    summed = lambda x: np.bincount(group, x, total)  # noqa: E731
    # A chain of near losses may be longer than one step: the loss error is the widest group's.
    finite = np.isfinite(losses)
    spans = np.zeros(total)
    np.maximum.at(spans, group[finite], losses[finite] - losses[start][group[finite]])
    most = int(np.bincount(group).max())
    loss_error = float(one.loss_error + spans.max(initial=0.0))
    return Experiment(losses[start], summed(p), summed(q), one.error + (most - 1) * EPS, loss_error)


def product(one: Experiment, other: Experiment) -> Experiment:
    """Both experiments run: masses multiply, losses add up (Proposition 12)."""
    p, q = ((x[:, None] * y[None]).reshape(-1) for x, y in ((one.p, other.p), (one.q, other.q)))
    with np.errstate(invalid="ignore"):
        losses = (one.losses[:, None] + other.losses[None]).reshape(-1)
    largest = np.abs(one.finite).max(initial=0.0) + np.abs(other.finite).max(initial=0.0)
    loss_error = one.loss_error + other.loss_error + 2 * EPS * float(largest)
    # inf - inf: an outcome that neither side has.
    losses = np.where(np.isnan(losses), 0.0, losses)
    return _merged(Experiment(losses, p, q, one.error + other.error + EPS, loss_error))


def excess(one: Experiment, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(lower, upper)`` of H(e^x) - (1 - e^x)_+ at finite epsilons ``points`` of any shape.

    For x >= 0 it is P(L > x) - e^x Q(L > x), below 0 it is e^x Q(L <= x) - P(L <= x). An event that misses outcomes
    within ``loss_error`` of x misses at most that share of their mass.
    """
    x = np.asarray(points, np.float64)
    slack = 2.0 * one.loss_error + 4 * EPS * (1.0 + np.abs(x))
    above = lambda m, at: np.append(np.cumsum(m[::-1])[::-1], 0.0)[np.searchsorted(one.losses, at, "right")]  # noqa: E731
    below = lambda m, at: np.append(0.0, np.cumsum(m))[np.searchsorted(one.losses, at, "right")]  # noqa: E731
    gamma = np.exp(x)
    relative = one.error + EPS * (one.p.shape[0] + 8.0 + np.abs(x))
    high, low = above(one.p, x) - gamma * above(one.q, x), gamma * below(one.q, x) - below(one.p, x)
    high_size = above(one.p, x - slack) + gamma * above(one.q, x - slack)
    low_size = below(one.p, x + slack) + gamma * below(one.q, x + slack)
    near_high = above(one.p, x - slack) - above(one.p, x + slack)
    near_low = gamma * (below(one.q, x + slack) - below(one.q, x - slack))
    right = x >= 0
    value = np.where(right, high, low)
    error = np.where(right, relative * high_size + 2 * slack * near_high, relative * low_size + 2 * slack * near_low)
    return np.maximum(value - error, 0.0), np.minimum(np.maximum(value, 0.0) + error, np.minimum(gamma, 1.0))


def excess_near(one: Experiment, points: np.ndarray, shift: Array) -> tuple[np.ndarray, np.ndarray]:
    """``excess`` at epsilons that are known within ``shift``: it rises up to gamma = 1 and falls after it."""
    ends = [excess(one, points + side * shift) for side in (-1.0, 1.0)]
    high = np.maximum(ends[0][1], ends[1][1])
    top = np.where(np.abs(points) <= shift, excess(one, np.zeros(1))[1], 0.0)
    return np.minimum(ends[0][0], ends[1][0]), np.maximum(high, top)


def whole_curve(epsilon: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> Bounds:
    """Bounds of H(e^epsilon) within [0, 1] from those of its excess over (1 - e^epsilon)_+."""
    identity, slack = -np.expm1(np.minimum(epsilon, 0.0)), np.where(epsilon < 0, 2.0**-50, 0.0)
    ends = (np.clip(x + identity + s, 0.0, 1.0) for x, s in ((lower, -slack), (upper, slack)))
    return Bounds(*(end[()] for end in ends))


@in_float64
def to_trade_off(one: Experiment) -> TradeOff:
    """The trade-off curve, bounded from below: masses are rounded up."""
    factor = 1.0 + (2.0 * one.error + 4.0 * one.loss_error + 4 * EPS)
    return unchecked(TradeOff, widths=one.p * factor, drops=one.q * factor, bound="lower")
