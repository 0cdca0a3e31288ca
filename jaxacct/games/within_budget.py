"""Whether a composition is within a budget: certainly, possibly, or certainly not."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import ndtri

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.compositions import Compositions, approximate_mu, gaussian_mu
from jaxacct.games.experiment import Experiment, Query, excess, experiments_of
from jaxacct.games.lattice_laws import lattice_index
from jaxacct.losses.compare import enclose as families
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import side_names
from jaxacct.mechanisms.pairs.gaussian_curve import log_delta_bounds

_QUANTILE = 1e-14  # as in jaxacct.losses.compare.gaussian_order


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
            mu, delta = self.approximate
            low, high = mu_needed(self.compositions.exact(counts, of), delta, self.tolerance)
            room = mu * (1.0 + self.tolerance)
            return Verdict(high <= room, low <= room)
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


def mu_needed(one: Experiment, delta: float = 0.0, tolerance: float = 0.0) -> tuple[float, float]:
    """``(lower, upper)`` of the least mu whose Gaussian curve, with a (0, delta) query, dominates a finite experiment.

    max over vertices (alpha, beta) of its trade-off curve, those with alpha and beta below 1 - delta, of
    Phi^-1(1 - alpha / (1 - delta)) - Phi^-1(beta / (1 - delta)), with each tail summed from its own end; inf if there
    is none. What is left beside delta up to ``tolerance`` counts as nothing.
    """
    if delta >= 1.0:
        return 0.0, 0.0
    alpha, beta = np.cumsum(one.p)[:-1], np.cumsum(one.q[::-1])[::-1][1:]
    rest_p, rest_q = np.cumsum(one.p[::-1])[::-1][1:], np.cumsum(one.q)[:-1]
    if not alpha.size:
        return 0.0, 0.0
    units = one.error + (one.p.size + 4) * EPS

    kept = (rest_p > delta + tolerance) & (rest_q > delta + tolerance)
    if not kept.any():
        return 0.0, 0.0
    alpha, beta, rest_p, rest_q = (x[kept] for x in (alpha, beta, rest_p, rest_q))
    # 1 - alpha / (1 - delta) = (rest_p - delta) / (1 - delta), a difference only where delta is not 0.
    lost = units + (2 * EPS + units * delta / np.minimum(rest_p - delta, rest_q - delta)).max() * float(delta > 0)
    alpha, beta = alpha / (1.0 - delta), beta / (1.0 - delta)
    rest_p, rest_q = (rest_p - delta) / (1.0 - delta), (rest_q - delta) / (1.0 - delta)
    units = 2 * lost + 4 * EPS

    def quantile(tail: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Phi^-1(tail) from whichever of a probability and its complement is smaller."""
        small = np.minimum(tail, rest)
        ends = [ndtri(inflated(small, s * units)) for s in (-1.0, 1.0)]
        # A tail of 0 is exactly that: its quantile is infinite.
        margins = [_QUANTILE * (1.0 + np.where(np.isfinite(e), np.abs(e), 0.0)) for e in ends]
        low, high = ends[0] - margins[0], ends[1] + margins[1]
        flip = rest < tail
        return np.where(flip, -high, low), np.where(flip, -low, high)

    first, second = quantile(rest_p, alpha), quantile(beta, rest_q)
    return max(float(np.max(first[0] - second[1])), 0.0), max(float(np.max(first[1] - second[0])), 0.0)
