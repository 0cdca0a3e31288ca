"""The Blackwell order of two curves: `dominates` and `crossings`.

What a "yes" or "no" is about: a *mechanism* stands for its true curve, enclosed from both sides. A *curve* (PLD,
PrivacyProfile, TradeOff) is taken at its word, as the law that its arrays state. So ``dominates(a, b)`` with an upper
``b`` says that ``a`` is a guarantee for whatever ``b`` bounds, and with a lower ``a`` the truth behind ``a`` does.

Why the points of a grid are enough: where both curves are piecewise linear with the same nodes, so is their difference.
A mechanism enters a "yes" by pieces of its supporting lines, or by chords, which have the grid's nodes as well; it
enters a "no" by bounds at the points themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, running_greatest, xp
from jaxacct._numerics.curve_arrays import as_arrays, compiled, quiet_float64
from jaxacct._numerics.log1p import log1p
from jaxacct._types import PyTree
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.compare.enclose import Curve, Enclosed, Member
from jaxacct.losses.curves.trade_off import TradeOff, padded
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import directions
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

__all__ = [
    "NO",
    "UNDECIDED",
    "WORDS",
    "YES",
    "Crossings",
    "Order",
    "all_at_slopes",
    "crossings",
    "dominates",
    "known_order",
    "refuse_nan",
    "tolerance_of",
]

YES, UNDECIDED, NO = 1, 0, -1
WORDS = {YES: "yes", NO: "no", UNDECIDED: "undecided"}
TOLERANCE = 1e-12
"""What mechanisms may differ by at any order in a "yes": where both curves have all but vanished, a grid ends."""


class Order(NamedTuple):
    """Whether a dominates b (H_a >= H_b at every epsilon), shape of the curves' batch.

    Attributes:
        verdict: 1 yes, 0 undecided, -1 no; certified.
        gap: H_b - H_a is certainly this large where it is largest; positive for a "no", else possibly negative.
        epsilon: where that is.
        slack: H_b <= H_a + slack at every epsilon, certainly.
    """

    verdict: Array
    gap: Array
    epsilon: Array
    slack: Array

    @property
    def word(self) -> str:
        """ "yes", "no" or "undecided", for a single verdict."""
        return WORDS[int(self.verdict)]


class Crossings(NamedTuple):
    """Orders at which the leakier of two curves changes (calibration points), from the smallest on, NaN after the last.

    Attributes:
        lower: the sign of H_a - H_b is certain here ...
        upper: ... and certainly the other one here, with nothing certain in between; shape ``(most,)``.
        estimate: between them: where two lines cross if they are neighbouring points, else the middle.
        count: how many sign changes are certain (may exceed ``most``).
    """

    lower: Array
    upper: Array
    estimate: Array
    count: Any


def dominates(
    a: Member,
    b: Member,
    *,
    relation: str = "add_or_remove",
    grid: LossGrid | None = None,
    tolerance: float | None = None,
) -> Order:
    """Whether ``a`` is at least as leaky as ``b`` at every epsilon: H_a >= H_b, equivalently f_a <= f_b (Theorem A.7).

    Args:
        a: a mechanism, PLD, PrivacyProfile or TradeOff; batches of curves broadcast.
        b: likewise.
        relation: for mechanisms, see :meth:`PrivacyProfile.from_mechanism`.
        grid: where to compare; without it the curves' own, or one chosen for the mechanisms. Two trade-off curves
            are compared at all of their slopes instead, which is exact.
        tolerance: a "yes" means H_b <= H_a + tolerance. Without it 0 between curves, and 1e-12 where a mechanism is
            involved, because from below a curve ends with its grid. Sampled Gaussians of which one has no less
            noise and no larger rate are ordered outright, at every epsilon and with no tolerance.

    Raises:
        ValueError: grids that do not match, NaN in a curve, no analysis for the relation.
    """
    refuse_nan([a, b])
    with quiet_float64():
        points, first, second = _enclosed(a, b, relation, grid)
        order = _compare(first, second, points, tolerance_of(tolerance, [a, b]))
        if known_order(a, b, relation):
            order = order._replace(verdict=xp.full_like(order.verdict, YES), slack=xp.zeros_like(order.slack))
        return as_arrays(order)


def crossings(
    a: Member, b: Member, *, relation: str = "add_or_remove", grid: LossGrid | None = None, most: int = 8
) -> Crossings:
    """The calibration points of two curves: every certain change of sign of H_a - H_b.

    Args:
        a: a mechanism, PLD or curve without batch axes.
        b: likewise.
        relation: for mechanisms.
        grid: where to look; see :func:`dominates`.
        most: how many to return, static.

    Raises:
        ValueError: see :func:`dominates`.
    """
    refuse_nan([a, b])
    with quiet_float64():
        points, first, second = _enclosed(a, b, relation, grid)
        return as_arrays(_crossings(first, second, points, most))


def refuse_nan(members: Sequence[Member]) -> None:
    """Raises ValueError if a as_arrays curve among ``members`` holds NaN."""
    for member in members:
        if isinstance(member, Curve) and not _validate.is_traced(member):
            for leaf in jax.tree.leaves(member):
                if np.isnan(np.asarray(leaf)).any():
                    raise ValueError(f"{type(member).__name__} must hold numbers, got nan")


def tolerance_of(tolerance: float | None, members: Sequence[Member]) -> float:
    """``tolerance``, or what stands for None; see :func:`dominates`."""
    if tolerance is None:
        return 0.0 if all(isinstance(m, Curve) for m in members) else TOLERANCE
    _validate.scalar(_validate.nonnegative, tolerance=tolerance)
    return float(tolerance)


def known_order(a: Member, b: Member, relation: str) -> bool:
    """Whether ``a`` dominates ``b`` in closed form: sampled Gaussians with no more noise and no smaller rate.

    Noise: N(0, s^2) added to both of a pair is a kernel. Rate: H of a mixture with Q is convex in the mixture, and
    H of (Q, Q) is the least curve.
    """
    if isinstance(a, Curve) or isinstance(b, Curve) or _validate.is_traced((a, b)):
        return False
    first, second = directions(a, relation), directions(b, relation)
    if len(first) == 1 or len(second) == 1:  # a pair that is its own reverse stands for both directions
        size = max(len(first), len(second))
        first, second = (x * size if len(x) == 1 else x for x in (first, second))
    for one, other in zip(first, second, strict=True):
        if len(one) != 1 or len(other) != 1:
            return False
        (p, m), (q, n) = one[0], other[0]
        if not (isinstance(p, GaussianPair) and isinstance(q, GaussianPair)):
            return False
        at_least = (np.asarray(p.noise) <= q.noise) & (np.asarray(p.rate) >= q.rate) & (np.asarray(m) >= n)
        if not (np.ndim(at_least) == 0 and bool(at_least)):
            return False
    return True


@compiled("tolerance")
def _compare(a: Enclosed, b: Enclosed, points: Array, tolerance: float) -> Order:
    slack = xp.max(b.upper - a.line, -1)
    certain = b.point - a.upper
    gap = xp.max(certain, -1)
    # By a mask and not by an index: batching a gather inside a float32 program would ask for 64-bit integers.
    epsilon = xp.max(xp.where(certain == gap[..., None], points, -np.inf), -1)
    verdict = xp.where(gap > 0, NO, xp.where(slack <= tolerance, YES, UNDECIDED)).astype(np.int8)
    # A comparison with NaN is false: it says neither.
    return Order(xp.where(xp.isnan(slack), UNDECIDED, verdict), gap, epsilon, slack)


@compiled("most")
def _crossings(a: Enclosed, b: Enclosed, points: Array, most: int) -> Crossings:
    sign = xp.where(a.point > b.upper, 1, xp.where(b.point > a.upper, -1, 0))
    index = np.arange(points.shape[0])
    last = running_greatest(xp.where(sign != 0, index, -1))
    previous = xp.concatenate([xp.full(1, -1), last[:-1]])
    change = (sign != 0) & (previous >= 0) & (sign[previous] == -sign)
    # The first places of change; -1 after the last.
    first = xp.sort(xp.pad(xp.where(change, index, index.size), (0, most), constant_values=index.size))[:most]
    none = first == index.size
    found = xp.where(none, -1, first)
    start = previous[found]
    left, right = points[start], points[found]
    middle = 0.5 * (a.point + a.upper) - 0.5 * (b.point + b.upper)
    d0, d1 = middle[start], middle[found]
    along = xp.where(d0 != d1, d0 / xp.where(d0 != d1, d0 - d1, 1.0), 0.5)
    between = xp.logaddexp(left + log1p(-along), right + xp.log(along))
    estimate = xp.where(found == start + 1, xp.clip(between, left, right), 0.5 * (left + right))
    blank = lambda x: xp.where(none, np.nan, x)  # noqa: E731
    return Crossings(blank(left), blank(right), blank(estimate), change.sum())


def _enclosed(a: Member, b: Member, relation: str, grid: LossGrid | None) -> tuple[Array, Enclosed, Enclosed]:
    """Points at which to compare, and both curves there."""
    if isinstance(a, TradeOff) and isinstance(b, TradeOff) and grid is None:
        points, both = all_at_slopes([a, b])
        first, second = (jax.tree.map(lambda x, i=i: x[i], both) for i in range(2))
        return points, first, second
    common = families.common_grid([a, b], relation, grid)
    return common.losses, families.enclose(a, common, relation), families.enclose(b, common, relation)


def all_at_slopes(members: list[TradeOff]) -> tuple[PyTree, Enclosed]:
    """All trade-off curves at all of their slopes, in order, and at both infinities, where their atoms are."""
    rows = [padded(m) for m in members]
    logs = []
    for widths, drops in rows:
        if widths.ndim > 1 and len(members) > 1:
            raise ValueError(f"trade-off curves in a sequence must have no batch axes, got shape {widths.shape}")
        both = (widths > 0) & (drops > 0)
        loss = xp.log(xp.where(both, widths, 1.0)) - xp.log(xp.where(both, drops, 1.0))
        logs.append(xp.where(both, loss, 0.0).reshape(-1))
    points = xp.sort(xp.concatenate([*logs, np.asarray([0.0, np.inf, -np.inf])]))
    found = [families.excess_of_segments(*row, points) for row in rows]
    batch = len(members) == 1 and rows[0][0].ndim > 1
    lower, upper = found[0] if batch else tuple(xp.stack(x) for x in zip(*found, strict=True))
    # Losses carry a rounding of their own, and so does the curve read there: the line is the lower value.
    return points, Enclosed(lower, lower, upper)
