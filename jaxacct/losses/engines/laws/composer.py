"""`Composer`: the law of many runs from those of one, composed two by two, each on few points again.

Every law is a bound exactly as it stands, so that nothing depends on how many are composed: docs/proofs/cells.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, by_first, filled_up, shared, xp
from jaxacct._numerics.rounding import EPS
from jaxacct.losses.engines.laws.aim import Aim
from jaxacct.losses.engines.laws.cells import Law, Laws, laws, laws_of_outcomes
from jaxacct.losses.engines.laws.sums import composed
from jaxacct.mechanisms.pairs.base import Pair, sorted_survey
from jaxacct.mechanisms.pairs.cells import placed, with_edge
from jaxacct.mechanisms.pairs.table import lists_outcomes

LEAST_POINTS = 96
"""Points of a law that are enough to learn what matters."""

_SKETCH = 48  # points of a law that tell where the points of a composition should go

ROUGH_POINTS = _SKETCH**2 // 8 + 2
"""Points of the rough law of a sum."""


class Composer:
    """Composes laws on ``size`` points each, where ``aim`` wants them.

    ``edges`` are those of all laws in the order in which they were made; another composer that is given them puts its
    laws on the same ones.
    """

    def __init__(self, aim: Aim, size: int, edges: list[np.ndarray] | None = None) -> None:
        self.aim, self.size, self.edges = aim, size, []
        self._given = None if edges is None else iter(edges)

    def halves(self, runs: list[tuple[Pair, int]]) -> tuple[Laws, Laws] | None:
        """Two laws whose composition is that of all runs, None where a number is none."""
        singles = [self._single(pair) for pair, _ in runs]
        if any(not (np.isfinite(law.masses).all() and np.isfinite(law.losses).all()) for one in singles for law in one):
            return None
        first = second = None
        for single, (_, count) in zip(singles, runs, strict=True):
            half = self._power(single, count // 2)
            odd = single if count % 2 else None
            first, second = self._joined(first, half), self._joined(second, half)
            if odd is not None:
                first, second = second, self._joined(first, odd)
        nothing = Law(np.zeros(1), np.ones(1), np.zeros(()))
        return first or Laws(nothing, nothing), second or Laws(nothing, nothing)

    def _power(self, single: Laws, count: int) -> Laws | None:
        """``count`` runs. A square is used many times; a product of few runs only once, where fewer points will do."""
        result, square = None, single
        while count:
            if count % 2:
                points = int(self.size * 2.0 ** (0.25 - 0.25 * count.bit_length()))
                result = self._joined(result, square, max(points, LEAST_POINTS))
            count //= 2
            if count:
                square = self._joined(square, square)
        return result

    def _joined(self, first: Laws | None, second: Laws | None, size: int | None = None) -> Laws | None:
        if first is None or second is None:
            return first if second is None else second
        return self._composed(first, second, size or self.size)

    def _single(self, pair: Pair) -> Laws:
        if lists_outcomes(pair):
            return laws_of_outcomes(pair)
        return laws(pair, self._kept(lambda: edges_of(rough_of_run(pair), self.aim, self.size)))

    def _composed(self, first: Laws, second: Laws, size: int) -> Laws:
        edges = self._kept(lambda: edges_of(rough_of_sum(first.upper, second.upper), self.aim, size))
        return composed(first, second, edges)

    def _kept(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The next edges: those that were given, or new ones."""
        edges = make() if self._given is None else next(self._given)
        self.edges.append(edges)
        return edges


class Rough(NamedTuple):
    """A law that tells where its edges should lie: points sorted by loss, which are certified by nothing.

    Attributes:
        losses, log_masses: of the points, shape ``(points,)``.
        slack: how far from an edge the masses that are read there may belong.
        most: the largest loss.
        anchor: a loss that should be an edge; NaN for none.
    """

    losses: Array
    log_masses: Array
    slack: Array
    most: Array
    anchor: Array


def rough_of_run(pair: Pair) -> Rough:
    """From the pair's survey; with the axes of its settings in front."""
    losses, log_masses = sorted_survey(pair)
    return Rough(losses, log_masses, 2.0 * pair.loss_error(), pair.max_loss(), pair.anchor())


@shared
def rough_of_sum(first: Law, second: Law) -> Rough:
    """Of the sum of two losses, whose laws are from above."""
    if array_module(first.losses) is np:
        (losses, masses), (others, more) = (sketched(law.losses, law.masses, _SKETCH) for law in (first, second))
    else:  # both have as many points: one sketch is less to compile
        both = (xp.stack([one, other]) for one, other in zip(first[:2], second[:2], strict=True))
        (losses, others), (masses, more) = sketched(*both, points=_SKETCH)
    losses, masses = (losses[:, None] + others).ravel(), (masses[:, None] * more).ravel()
    losses, masses = sketched(*by_first(losses, masses), ROUGH_POINTS - 2)
    least, most = first.losses.min() + second.losses.min(), first.losses.max() + second.losses.max()
    losses, none = xp.concatenate([least[None], losses, most[None]]), xp.zeros_like(masses[:1])
    slack = 8 * EPS * (xp.abs(least) + xp.abs(most))
    return Rough(losses, xp.log(xp.concatenate([none, masses, none])), slack, most, np.nan * most)


@shared(static=("size",))
def edges_of(rough: Rough, aim: Aim, size: int) -> Array:
    """Where a law is cut into ``size`` cells."""
    losses, log_masses, slack, most, anchor = rough
    most = most + slack
    low, high = aim.ends(losses, log_masses)
    # Tails are those of losses that are off by so much: an atom at the end must lie before it for all of them.
    high = xp.where((high >= losses[-1]) & (most < np.inf), most, xp.minimum(high + slack, most))
    low = low - 1e-9 * xp.abs(low)
    high = xp.where(high > low, high, low + 1e-9 + 1e-9 * xp.abs(low))
    return with_edge(placed(losses, aim.weights(losses, log_masses), (low, high), size), anchor + slack)


def sketched(losses: Array, masses: Array, points: int) -> tuple[Array, Array]:
    """A law, sorted by loss, on so many points: neighbours are one, and points without mass fill it up.

    Laws and points have the last axes; what underflows leaves a point where it was, and in order.
    """
    group = -(-losses.shape[-1] // points)
    rows = (*losses.shape[:-1], -1, group)
    losses = filled_up(losses, group * points, losses[..., -1:]).reshape(rows)
    masses = filled_up(masses, group * points, 0.0 * masses[..., -1:]).reshape(rows)
    total, first = masses.sum(-1), losses[..., 0]
    beyond = (masses * (losses - first[..., None])).sum(-1)
    return first + beyond / xp.maximum(total, 1e-300), total
