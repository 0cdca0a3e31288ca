"""Whether a composition is within a budget: certainly, possibly, or certainly not."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.compositions import Compositions, approximate_mu, gaussian_mu
from jaxacct.games.experiment import Experiment, Query, excess, experiments_of
from jaxacct.games.lattice_laws import lattice_index
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.compare.gaussian_order import dominating_mu
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import side_names
from jaxacct.mechanisms.pairs.gaussian_curve import log_delta_bounds


class Verdict(NamedTuple):
    """What is known of one composition; ``certain`` implies ``possible``."""

    certain: bool
    possible: bool


class Budget:
    """Tests compositions of a family against a budget, in every direction, up to ``tolerance``.

    Budgets that some composition meets exactly are the interesting ones, and no floating-point test decides equality.
    So a composition is *within* the budget if H <= H_budget + tolerance (for Gaussian budgets and compositions, if the
    composition needs mu <= mu_budget (1 + tolerance)), and what is tested is whether that is certain.

    *Finite budget*: between its losses its curve is a line or constant, and the composition's is convex and falls, so
    its losses are the only points to look at. *Gaussian budget, finite composition*: the difference of trade-off curves
    is concave on each of the composition's segments, so its vertices are. *Otherwise*: bounds on the lattice.
    """

    def __init__(self, budget: Query, compositions: Compositions, tolerance: float) -> None:
        self.compositions, self.tolerance = compositions, tolerance
        relation = compositions.relation
        self.experiments = experiments_of(budget, relation)
        self.mu = gaussian_mu(budget, relation)
        self.approximate = approximate_mu(budget, relation)
        self._budget = budget
        self._known: dict[tuple[int, ...], Verdict] = {}

    def test(self, counts: tuple[int, ...]) -> Verdict:
        """Whether the product with these counts is within the budget."""
        if not any(counts):
            return Verdict(True, True)
        if counts not in self._known:
            self._known[counts] = self._test(counts)
        return self._known[counts]

    def _test(self, counts: tuple[int, ...]) -> Verdict:
        mu = self.compositions.mu(counts)
        if mu is not None and self.mu is not None:
            room = self.mu * (1.0 + self.tolerance)
            return Verdict(inflated(mu, 8 * EPS) <= room, deflated(mu, 8 * EPS) <= room)
        found = [self._side(counts, side) for side in range(self.sides)]
        return Verdict(all(v.certain for v in found), all(v.possible for v in found))

    @property
    def sides(self) -> int:
        """The number of directions in which a composition is compared with the budget."""
        own = 1 if self.mu is not None else len(self.experiments or self._enclosed)
        return max(own, self.compositions.sides)

    def experiment(self, side: int) -> Experiment | None:
        """The budget in one direction, if it is finite."""
        return None if self.experiments is None else self.experiments[min(side, len(self.experiments) - 1)]

    def _side(self, counts: tuple[int, ...], side: int) -> Verdict:
        of, own = min(side, self.compositions.sides - 1), self.experiment(side)
        if own is not None:
            return self._verdict(*self.compositions.excess(counts, of, own.finite), *excess(own, own.finite))
        if self.compositions.finite and self.approximate is not None:
            (mu, delta), one = self.approximate, self.compositions.exact(counts, of)
            # What is left beside delta up to the tolerance counts as nothing.
            low, high = (dominating_mu(one.p, one.q, delta + self.tolerance, one.error, side) for side in (-1.0, 1.0))
            room = mu * (1.0 + self.tolerance)
            return Verdict(bool(high <= room), bool(low <= room))
        nodes, budget = self.compositions.nodes(counts, of), self.enclosed(side)
        return self._verdict(nodes.lower, nodes.upper, np.asarray(budget.line), np.asarray(budget.upper))

    def _verdict(self, low: np.ndarray, high: np.ndarray, room_low: np.ndarray, room_high: np.ndarray) -> Verdict:
        certain, possible = high <= room_low + self.tolerance, low <= room_high + self.tolerance
        return Verdict(bool(np.all(certain)), bool(np.all(possible)))

    @functools.cached_property
    def _enclosed(self) -> list[families.Enclosed]:
        relation, names = self.compositions.relation, [self.compositions.relation]
        with jax.enable_x64(True):
            if isinstance(self._budget, Mechanism):
                names = side_names(self._budget, relation)[: 1 if self.mu is not None else None]
            return [families.enclose(self._budget, self.compositions.grid, name) for name in names]

    def enclosed(self, side: int) -> families.Enclosed:
        """The budget on the lattice: ``line`` is a curve below it everywhere, ``upper`` one above."""
        return self._enclosed[min(side, len(self._enclosed) - 1)]

    def bounds(self, points: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of the budget's excess at epsilons; at lattice points if it is not finite or Gaussian."""
        own = self.experiment(side)
        if own is not None:
            return excess(own, points)
        if self.approximate is not None:
            mu, delta = self.approximate
            return _gaussian_excess(mu, delta, points)
        budget = self.enclosed(side)
        index = lattice_index(self.compositions.grid, points)
        return np.asarray(budget.point)[index], np.asarray(budget.upper)[index]


def _gaussian_excess(mu: float, delta: float, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """delta + (1 - delta) H_mu at gammas of at least 1; below, gamma times that of 1 / gamma."""
    at = np.abs(np.asarray(points, np.float64))
    with np.errstate(all="ignore"):
        low, high = (np.exp(x) for x in log_delta_bounds(np.full_like(at, mu), at))
    gamma, units = np.exp(np.minimum(points, 0.0)), EPS * (16.0 + 2.0 * np.abs(points))
    each = [(delta + (1.0 - delta) * x) * gamma for x in (low, high)]
    return deflated(each[0], units), inflated(each[1], units) + 1e-300
