"""`Composer`: the law of many runs from those of one, composed two by two, each on few points again.

Every law is a bound exactly as it stands, so that nothing depends on how many are composed: docs/proofs/cells.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxacct._numerics.rounding import EPS
from jaxacct.losses.engines.laws.aim import Aim
from jaxacct.losses.engines.laws.cells import Law, Laws, laws, laws_of_outcomes
from jaxacct.losses.engines.laws.sums import merged, split
from jaxacct.mechanisms.pairs.base import Pair, Survey
from jaxacct.mechanisms.pairs.cells import placed, with_edge
from jaxacct.mechanisms.pairs.table import lists_outcomes

LEAST_POINTS = 96
"""Points of a law that are enough to learn what matters."""

_SKETCH = 48  # points of a law that tell where the points of a composition should go


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
        survey = pair.survey()
        massive = survey.log_masses > -np.inf
        if not massive.any():  # all of it infinite, as far as is known
            return laws(pair, np.array([-1.0, 1.0]))
        return laws(pair, self._kept(lambda: self._edges_of(pair, survey, massive)))

    def _edges_of(self, pair: Pair, survey: Survey, massive: np.ndarray) -> np.ndarray:
        order = np.argsort(survey.losses[massive])
        losses, log_masses = survey.losses[massive][order], survey.log_masses[massive][order]
        most = float(pair.max_loss() + 2.0 * pair.loss_error())
        low, high = self.aim.ends(losses, log_masses)
        # Tails are those of losses that are off by so much: an atom at the end must lie before it for all of them.
        high = most if high >= losses[-1] and most < np.inf else min(high + 2.0 * float(pair.loss_error()), most)
        low = low - 1e-9 * abs(low)
        high = high if high > low else low + 1e-9 + 1e-9 * abs(low)
        edges = placed(losses, self.aim.weights(losses, log_masses), (np.asarray(low), np.asarray(high)), self.size)
        return with_edge(edges, pair.anchor() + 2.0 * pair.loss_error())

    def _composed(self, first: Laws, second: Laws, size: int) -> Laws:
        """Both sides of the sum of two losses, on ``size`` points or less."""
        edges = self._kept(lambda: self._edges_between(first, second, size))
        return Laws(merged(first.lower, second.lower, edges), split(first.upper, second.upper, edges))

    def _edges_between(self, first: Laws, second: Laws, size: int) -> np.ndarray:
        sketch = [_sketched(one.upper, _SKETCH) for one in (first, second)]
        (losses, other_losses), (masses, other_masses) = zip(*sketch, strict=True)
        products = Law(np.add.outer(losses, other_losses).ravel(), np.multiply.outer(masses, other_masses).ravel(), 0.0)
        losses, masses = _sketched(products, _SKETCH**2 // 8)
        ends = [sum(end(one.upper.losses) for one in (first, second)) for end in (np.min, np.max)]
        losses = np.concatenate([ends[:1], losses, ends[1:]])
        log_masses = np.log(np.concatenate([[0.0], masses, [0.0]]))
        low, high = self.aim.ends(losses, log_masses)
        largest = ends[-1]
        high = largest if high >= losses[-1] else min(high, largest)
        high = high + 8 * EPS * (abs(high) + abs(low)) if high > low else low + 1e-9 + 1e-9 * abs(low)
        return placed(losses, self.aim.weights(losses, log_masses), (np.asarray(low), np.asarray(high)), size)

    def _kept(self, make: Callable[[], np.ndarray]) -> np.ndarray:
        """The next edges: those that were given, or new ones."""
        edges = make() if self._given is None else next(self._given)
        self.edges.append(edges)
        return edges


def _sketched(law: Law, points: int) -> tuple[np.ndarray, np.ndarray]:
    """A law on few points, sorted: for planning."""
    order = np.argsort(law.losses)
    begins = np.unique(np.arange(points) * order.size // points)
    masses, losses = law.masses[order], law.losses[order]
    total = np.add.reduceat(masses, begins)
    mean = np.add.reduceat(masses * losses, begins) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, mean, losses[begins]), total
