"""`is_chain`: whether the members of a family are totally ordered (a Blackwell chain)."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.curve_arrays import as_arrays, compiled, mapped, quiet_float64
from jaxacct._numerics.least import first_greatest
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.compare.enclose import Enclosed, Family
from jaxacct.losses.compare.order import NO, UNDECIDED, WORDS, YES, all_at_slopes, known_order, refuse_nan, tolerance_of
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["Chain", "is_chain"]


class Chain(NamedTuple):
    """Whether every two members of a family are ordered.

    Attributes:
        verdict: 1 yes, 0 undecided, -1 no; certified.
        pair: two members that are certainly not ordered, or on which the verdict depends; (-1, -1) for a yes.
        epsilon: where either certainly exceeds the other (NaN if none).
    """

    verdict: Array
    pair: Array
    epsilon: Array

    @property
    def word(self) -> str:
        """The verdict as a word: "yes", "no" or "undecided"."""
        return WORDS[int(self.verdict)]


def is_chain(
    family: Family, *, relation: str = "add_or_remove", grid: LossGrid | None = None, tolerance: float | None = None
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
    refuse_nan(members)
    with quiet_float64():
        segments = [m for m in members if isinstance(m, TradeOff)]
        if len(segments) == len(members) and grid is None:
            points, stacked = all_at_slopes(segments)
        else:
            common = families.common_grid(members, relation, grid)
            points = common.losses
            stacked = _stack([families.enclose(m, common, relation) for m in members])
        count = stacked.upper.shape[0]
        order = xp.argsort(stacked.upper.sum(-1))
        known = [False] * (count - 1)
        if len(members) == count and not _validate.is_traced((members, order)):
            ranks = np.asarray(order)
            # Equal keys do not say which is first.
            known = [
                known_order(members[j], members[i], relation) or known_order(members[i], members[j], relation)
                for i, j in itertools.pairwise(ranks)
            ]
        limit = tolerance_of(tolerance, members)
        return as_arrays(_chain(stacked, points, order, np.asarray(known, bool), limit))


@compiled("tolerance")
def _chain(family: Enclosed, points: Array, order: Array, known: Array, tolerance: float) -> Chain:
    count = order.shape[0]
    if count == 1:
        return Chain(xp.asarray(YES, np.int8), xp.full(2, -1), xp.full(2, np.nan))
    line, point, upper = (x[order] for x in family)
    slack = xp.where(known, -np.inf, xp.max(upper[:-1] - line[1:], -1))
    chained = xp.all(slack <= tolerance)

    def excess(pairs: tuple[Array, Array]) -> Array:
        """How much the first certainly exceeds the second, and the other way round: the smaller of the two."""
        i, j = pairs
        return xp.minimum(xp.max(point[i] - upper[j], -1), xp.max(point[j] - upper[i], -1))

    places = xp.zeros_like(order) + np.arange(count)
    near = mapped(excess, (places[:-1], places[1:]), 8)
    worst = first_greatest(xp.where(xp.any(near > 0), near, slack))
    first, second, unordered = worst, worst + 1, xp.max(near) > 0
    if count <= 64:
        i, j = (places[x] for x in np.triu_indices(count, 1))
        every = mapped(excess, (i, j), 8)
        best = first_greatest(every)
        found = every[best] > 0
        first, second = xp.where(found, i[best], first), xp.where(found, j[best], second)
        unordered = unordered | found
    above, below = point[first] - upper[second], point[second] - upper[first]
    seen = lambda d: xp.where(xp.max(d) > 0, points[first_greatest(d)], np.nan)  # noqa: E731
    verdict = xp.where(unordered, NO, xp.where(chained, YES, UNDECIDED)).astype(np.int8)
    pair = xp.where(verdict == YES, -1, xp.stack([order[first], order[second]]))
    where = xp.where(verdict == YES, np.nan, xp.stack([seen(above), seen(below)]))
    return Chain(verdict, pair, where)


def _stack(found: list[Enclosed]) -> Enclosed:
    if len(found) == 1:
        if found[0].upper.ndim < 2:
            return Enclosed(*(x[None] for x in found[0]))
        return Enclosed(*(x.reshape(-1, x.shape[-1]) for x in found[0]))
    shapes = {x.upper.shape for x in found}
    if len(shapes) > 1 or found[0].upper.ndim > 1:
        raise ValueError(f"members of a sequence must have no batch axes, got shapes {sorted(shapes)}")
    return Enclosed(*(xp.stack(x) for x in zip(*found, strict=True)))
