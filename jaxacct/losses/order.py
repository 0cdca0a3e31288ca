"""The Blackwell order: which of two curves is leakier everywhere, suprema and infima, crossings, chains.

What a "yes" or "no" is about: a *mechanism* stands for its true curve, enclosed from both sides. A *curve* (PLD,
PrivacyProfile, TradeOff) is taken at its word, as the law that its arrays state. So ``dominates(a, b)`` with an upper
``b`` says that ``a`` is a guarantee for whatever ``b`` bounds, and with a lower ``a`` the truth behind ``a`` does.

Why the points of a grid are enough: where both curves are piecewise linear with the same nodes, so is their difference.
A mechanism enters a "yes" by pieces of its supporting lines, or by chords, which have the grid's nodes as well; it
enters a "no" by bounds at the points themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct import _validate
from jaxacct._least import first_greatest
from jaxacct._log1p import log1p
from jaxacct.losses import conversions, families
from jaxacct.losses.families import Enclosed
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.tradeoff import TradeOff, padded
from jaxacct.mechanisms._dominating import directions
from jaxacct.mechanisms._gaussian_pair import GaussianPair

__all__ = ["NO", "UNDECIDED", "WORDS", "YES", "Chain", "Crossings", "Order", "crossings", "dominates", "is_chain"]

YES, UNDECIDED, NO = 1, 0, -1
WORDS = {YES: "yes", NO: "no", UNDECIDED: "undecided"}
TOLERANCE = 1e-12
"""What mechanisms may differ by at any order in a "yes": where both curves have all but vanished, a grid ends."""


class Order(NamedTuple):
    """Whether a dominates b (H_a >= H_b at every order), shape of the curves' batch.

    Attributes:
        verdict: 1 yes, 0 undecided, -1 no; certified.
        gap: H_b - H_a is certainly this large where it is largest; positive for a "no", else possibly negative.
        epsilon: where that is.
        slack: H_b <= H_a + slack at every order, certainly.
    """

    verdict: Any
    gap: Any
    epsilon: Any
    slack: Any

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

    lower: Any
    upper: Any
    estimate: Any
    count: Any


class Chain(NamedTuple):
    """Whether every two members of a family are ordered.

    Attributes:
        verdict: 1 yes, 0 undecided, -1 no; certified.
        pair: indices of two members that are certainly not ordered, or that the verdict hangs on; (-1, -1) for a yes.
        epsilon: orders at which the first of them certainly exceeds the second, and the other way round (NaN if none).
    """

    verdict: Any
    pair: Any
    epsilon: Any

    @property
    def word(self) -> str:
        """ "yes", "no" or "undecided"."""
        return WORDS[int(self.verdict)]


def dominates(
    a: Any, b: Any, *, relation: str = "add_or_remove", grid: LossGrid | None = None, tolerance: float | None = None
) -> Order:
    """Whether ``a`` is at least as leaky as ``b`` at every order: H_a >= H_b, equivalently f_a <= f_b (Theorem A.7).

    Args:
        a: a mechanism, PLD, PrivacyProfile or TradeOff; batches of curves broadcast.
        b: likewise.
        relation: for mechanisms, see :meth:`PrivacyProfile.from_mechanism`.
        grid: where to compare; without it the curves' own, or one chosen for the mechanisms. Two trade-off curves
            are compared at all of their slopes instead, which is exact.
        tolerance: a "yes" means H_b <= H_a + tolerance. Without it 0 between curves, and 1e-12 where a mechanism is
            involved, because from below a curve ends with its grid. Sampled Gaussians of which one has no less
            noise and no larger rate are ordered outright, at every order and with no tolerance.

    Raises:
        ValueError: grids that do not match, NaN in a curve, no analysis for the relation.
    """
    _refuse_nan([a, b])
    with jax.enable_x64(True):
        if isinstance(a, TradeOff) and isinstance(b, TradeOff) and grid is None:
            points, first, second = _at_slopes(a, b)
        else:
            common = families.common_grid([a, b], relation, grid)
            points = jnp.asarray(common.losses)
            first, second = (families.enclose(m, common, relation) for m in (a, b))
        order = _compare(first, second, points, _tolerance(tolerance, [a, b]))
        if _known(a, b, relation):
            zero = jnp.zeros_like(order.slack)
            order = order._replace(verdict=jnp.full_like(order.verdict, YES), slack=zero)
        return conversions.concrete(order)


def crossings(
    a: Any, b: Any, *, relation: str = "add_or_remove", grid: LossGrid | None = None, most: int = 8
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
    _refuse_nan([a, b])
    with jax.enable_x64(True):
        if isinstance(a, TradeOff) and isinstance(b, TradeOff) and grid is None:
            points, first, second = _at_slopes(a, b)
            order = jnp.argsort(points)
            points, first, second = points[order], *(jax.tree.map(lambda x: x[order], m) for m in (first, second))
        else:
            common = families.common_grid([a, b], relation, grid)
            points = jnp.asarray(common.losses)
            first, second = (families.enclose(m, common, relation) for m in (a, b))
        return conversions.concrete(_crossings(first, second, points, most))


def is_chain(
    family: Any, *, relation: str = "add_or_remove", grid: LossGrid | None = None, tolerance: float | None = None
) -> Chain:
    """Whether the members of ``family`` are totally ordered (a Blackwell chain, Definition 3.4).

    Sorted by a number that domination cannot lower (the sum of the curve's values), each is compared with the next:
    that decides a "yes", and for curves at their word a "no" as well. Up to 64 members, all pairs are tried for a "no".

    Args:
        family: a sequence of mechanisms, PLDs or curves, or one batched curve or mechanism (first axis).
        relation: for mechanisms.
        grid: see :func:`dominates`.
        tolerance: see :func:`dominates`; the members of a chain of n are ordered to n tolerances.

    Raises:
        ValueError: an empty family, or see :func:`dominates`.
    """
    members = families.members_of(family)
    _refuse_nan(members)
    with jax.enable_x64(True):
        if all(isinstance(m, TradeOff) for m in members) and grid is None:
            points, stacked = _all_at_slopes(members)
        else:
            common = families.common_grid(members, relation, grid)
            points = jnp.asarray(common.losses)
            stacked = _stack([families.enclose(m, common, relation) for m in members])
        count = stacked.upper.shape[0]
        order = jnp.argsort(stacked.upper.sum(-1))
        known = [False] * (count - 1)
        if len(members) == count and not _validate.is_traced((members, order)):
            ranks = np.asarray(order)
            # Equal keys do not say which is first.
            known = [
                _known(members[j], members[i], relation) or _known(members[i], members[j], relation)
                for i, j in itertools.pairwise(ranks)
            ]
        limit = _tolerance(tolerance, members)
        return conversions.concrete(_chain(stacked, points, order, jnp.asarray(known, bool), limit))


def _refuse_nan(members: Sequence[Any]) -> None:
    for member in members:
        if families.is_curve(member) and not _validate.is_traced(member):
            for leaf in jax.tree.leaves(member):
                if np.isnan(np.asarray(leaf)).any():
                    raise ValueError(f"{type(member).__name__} must hold numbers, got nan")


def _tolerance(tolerance: float | None, members: Sequence[Any]) -> float:
    if tolerance is None:
        return 0.0 if all(families.is_curve(m) for m in members) else TOLERANCE
    _validate.scalar(tolerance=tolerance)
    _validate.nonnegative(tolerance=tolerance)
    return float(tolerance)


def _known(a: Any, b: Any, relation: str) -> bool:
    """Whether ``a`` dominates ``b`` in closed form: sampled Gaussians with no more noise and no smaller rate.

    Noise: N(0, s^2) added to both of a pair is a kernel. Rate: H of a mixture with Q is convex in the mixture, and
    H of (Q, Q) is the least curve.
    """
    if families.is_curve(a) or families.is_curve(b) or _validate.is_traced((a, b)):
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


def _compare(a: Enclosed, b: Enclosed, points: Array, tolerance: float) -> Order:
    slack = jnp.max(b.upper - a.line, -1)
    certain = b.point - a.upper
    gap = jnp.max(certain, -1)
    # By a mask and not by an index: batching a gather inside a float32 program would ask for 64-bit integers.
    epsilon = jnp.max(jnp.where(certain == gap[..., None], points, -jnp.inf), -1)
    verdict = jnp.where(gap > 0, NO, jnp.where(slack <= tolerance, YES, UNDECIDED)).astype(jnp.int8)
    # A comparison with NaN is false: it says neither.
    return Order(jnp.where(jnp.isnan(slack), UNDECIDED, verdict), gap, epsilon, slack)


_compare = jax.jit(_compare, static_argnames="tolerance")


def _crossings(a: Enclosed, b: Enclosed, points: Array, most: int) -> Crossings:
    sign = jnp.where(a.point > b.upper, 1, jnp.where(b.point > a.upper, -1, 0))
    index = jnp.arange(points.shape[0])
    last = jax.lax.cummax(jnp.where(sign != 0, index, -1))
    previous = jnp.concatenate([jnp.full(1, -1), last[:-1]])
    change = (sign != 0) & (previous >= 0) & (sign[previous] == -sign)
    found = jnp.nonzero(change, size=most, fill_value=-1)[0]
    start = previous[found]
    none = found < 0
    left, right = points[start], points[found]
    middle = 0.5 * (a.point + a.upper) - 0.5 * (b.point + b.upper)
    d0, d1 = middle[start], middle[found]
    along = jnp.where(d0 != d1, d0 / jnp.where(d0 != d1, d0 - d1, 1.0), 0.5)
    between = jnp.logaddexp(left + log1p(-along), right + jnp.log(along))
    estimate = jnp.where(found == start + 1, jnp.clip(between, left, right), 0.5 * (left + right))
    blank = lambda x: jnp.where(none, jnp.nan, x)  # noqa: E731
    return Crossings(blank(left), blank(right), blank(estimate), change.sum())


_crossings = jax.jit(_crossings, static_argnames="most")


def _chain(family: Enclosed, points: Array, order: Array, known: Array, tolerance: float) -> Chain:
    count = order.shape[0]
    if count == 1:
        return Chain(jnp.asarray(YES, jnp.int8), jnp.full(2, -1), jnp.full(2, jnp.nan))
    line, point, upper = (x[order] for x in family)
    slack = jnp.where(known, -jnp.inf, jnp.max(upper[:-1] - line[1:], -1))
    chained = jnp.all(slack <= tolerance)

    def excess(i: Array, j: Array) -> Array:
        """How much i certainly exceeds j, and j exceeds i: the smaller of the two."""
        return jnp.minimum(jnp.max(point[i] - upper[j]), jnp.max(point[j] - upper[i]))

    near = jax.lax.map(lambda i: excess(i, i + 1), jnp.arange(count - 1))
    worst = first_greatest(jnp.where(jnp.any(near > 0), near, slack))
    first, second, unordered = worst, worst + 1, jnp.max(near) > 0
    if count <= 64:
        i, j = (jnp.asarray(x) for x in np.triu_indices(count, 1))
        every = jax.lax.map(lambda ij: excess(*ij), (i, j))
        best = first_greatest(every)
        found = every[best] > 0
        first, second = jnp.where(found, i[best], first), jnp.where(found, j[best], second)
        unordered = unordered | found
    above, below = point[first] - upper[second], point[second] - upper[first]
    seen = lambda d: jnp.where(jnp.max(d) > 0, points[first_greatest(d)], jnp.nan)  # noqa: E731
    verdict = jnp.where(unordered, NO, jnp.where(chained, YES, UNDECIDED)).astype(jnp.int8)
    pair = jnp.where(verdict == YES, -1, jnp.stack([order[first], order[second]]))
    where = jnp.where(verdict == YES, jnp.nan, jnp.stack([seen(above), seen(below)]))
    return Chain(verdict, pair, where)


_chain = jax.jit(_chain, static_argnames="tolerance")


def _at_slopes(a: TradeOff, b: TradeOff) -> tuple[Array, Enclosed, Enclosed]:
    points, both = _all_at_slopes([a, b])
    return points, *(jax.tree.map(lambda x, i=i: x[i], both) for i in range(2))


def _all_at_slopes(members: list[TradeOff]) -> tuple[Array, Enclosed]:
    """All trade-off curves at all of their slopes, and at both infinities, where their atoms are."""
    rows = [padded(m) for m in members]
    logs = []
    for widths, drops in rows:
        if widths.ndim > 1 and len(members) > 1:
            raise ValueError(f"trade-off curves in a sequence must have no batch axes, got shape {widths.shape}")
        both = (widths > 0) & (drops > 0)
        loss = jnp.log(jnp.where(both, widths, 1.0)) - jnp.log(jnp.where(both, drops, 1.0))
        logs.append(jnp.where(both, loss, 0.0).reshape(-1))
    points = jnp.concatenate([*logs, jnp.asarray([0.0, jnp.inf, -jnp.inf])])
    found = [families.excess_of_segments(*row, points) for row in rows]
    batch = len(members) == 1 and rows[0][0].ndim > 1
    lower, upper = found[0] if batch else tuple(jnp.stack(x) for x in zip(*found, strict=True))
    # Losses carry a rounding of their own, and so does the curve read there: the line is the lower value.
    return points, Enclosed(lower, lower, upper)


def _stack(found: list[Enclosed]) -> Enclosed:
    if len(found) == 1:
        if found[0].upper.ndim < 2:
            return Enclosed(*(x[None] for x in found[0]))
        return Enclosed(*(x.reshape(-1, x.shape[-1]) for x in found[0]))
    shapes = {x.upper.shape for x in found}
    if len(shapes) > 1 or found[0].upper.ndim > 1:
        raise ValueError(f"members of a sequence must have no batch axes, got shapes {sorted(shapes)}")
    return Enclosed(*(jnp.stack(x) for x in zip(*found, strict=True)))
