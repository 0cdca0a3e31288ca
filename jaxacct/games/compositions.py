"""Compositions of a family by how often each member ran: exact for finite members, else on a grid."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxacct import _validate
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.experiment import (
    Experiment,
    Query,
    by_direction,
    excess,
    excess_near,
    experiments_of,
    identity,
    product,
)
from jaxacct.games.lattice_laws import lattice_for, laws_of
from jaxacct.games.rules import sequence
from jaxacct.games.runs import Runs, both_sides
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import RELATIONS, directions
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.response import ResponsePair

_MOST_OUTCOMES = 200_000


class Nodes(NamedTuple):
    """Excess of one direction of a composition at lattice points: ``lower <= truth <= upper``."""

    lower: np.ndarray
    upper: np.ndarray


def multisets_up_to(members: int, most: int) -> Iterator[tuple[int, ...]]:
    """Counts of all multisets of at most ``most`` members, the smaller ones first, the empty one included."""
    for total in range(most + 1):
        for cut in itertools.combinations(range(total + members - 1), members - 1):
            edges = (-1, *cut, total + members - 1)
            yield tuple(b - a - 1 for a, b in itertools.pairwise(edges))


def gaussian_mu(member: Query, relation: str) -> float | None:
    """mu of a mechanism that is exactly one Gaussian, else None."""
    found = approximate_mu(member, relation)
    return found[0] if found is not None and found[1] == 0.0 else None


def approximate_mu(member: Query, relation: str) -> tuple[float, float] | None:
    """(mu, delta) of a mechanism that is one Gaussian, or one with one (0, delta)-DP query; else None."""
    sides = directions(member, relation) if isinstance(member, Mechanism) else []
    if len(sides) != 1 or len(sides[0]) > 2 or any(np.any(np.asarray(count) != 1) for _, count in sides[0]):
        return None
    gaussian, delta = None, 0.0
    for pair, _ in sides[0]:
        if isinstance(pair, GaussianPair) and np.ndim(pair.noise) == 0 and np.all(np.asarray(pair.rate) == 1):
            gaussian = 1.0 / float(pair.noise)
        elif isinstance(pair, ResponsePair) and np.ndim(pair.delta) == 0 and float(pair.epsilon) == 0.0:
            delta = float(pair.delta)
        else:
            return None
    return None if gaussian is None else (gaussian, delta)


class Compositions:
    """All products of up to ``rounds`` members of a family (mechanisms, PLDs or curves), made when asked for and kept.

    What is not finite is put on ``grid``, or else on :func:`lattice_for`.
    """

    def __init__(self, family: Sequence[Query], rounds: int, relation: str, grid: LossGrid | None = None) -> None:
        _validate.one_of(RELATIONS, relation=relation)
        _validate.instance(LossGrid | None, grid=grid)
        self.family = families.members_of(sequence(family=family))
        self.rounds, self.relation = rounds, relation
        self._grid = grid
        found = [one for m in self.family if (one := experiments_of(m, relation)) is not None]
        self.experiments = by_direction(found) if len(found) == len(self.family) else None
        self.mus = [gaussian_mu(m, relation) for m in self.family]
        self._exact: dict[tuple[int, tuple[int, ...]], Experiment] = {}
        self._nodes: dict[tuple[int, tuple[int, ...]], Nodes] = {}

    @property
    def finite(self) -> bool:
        """Whether all members are finite experiments."""
        return self.experiments is not None

    @functools.cached_property
    def grid(self) -> LossGrid:
        """The lattice on which members that are not finite are composed."""
        return lattice_for(self.family, self.rounds, self.relation) if self._grid is None else self._grid

    @functools.cached_property
    def runs(self) -> list[tuple[Runs, Runs]]:
        """(upper, lower) runs of the members on the lattice, by direction."""
        return both_sides([laws_of(m, self.grid, self.relation) for m in self.family], self.grid)

    @property
    def sides(self) -> int:
        """How many directions there are."""
        return len(self.runs if self.experiments is None else self.experiments)

    def mu(self, counts: tuple[int, ...]) -> float | None:
        """mu of a product of Gaussians alone, else None."""
        used = [(m, n) for m, n in zip(self.mus, counts, strict=True) if n]
        if any(m is None for m, _ in used):
            return None
        return float(sum(n * m * m for m, n in used if m is not None)) ** 0.5

    def exact(self, counts: tuple[int, ...], side: int) -> Experiment:
        """The product as a finite experiment."""
        if not any(counts):
            return identity()
        key = (side, counts)
        if key not in self._exact:
            assert self.experiments is not None
            fewer, last = without_last(counts)
            before, one = self.exact(fewer, side), self.experiments[side][last]
            if before.p.size * one.p.size > _MOST_OUTCOMES:
                raise ValueError(f"rounds must be few enough for 200000 outcomes of a composition, got {self.rounds}")
            self._exact[key] = product(before, one)
        return self._exact[key]

    def nodes(self, counts: tuple[int, ...], side: int) -> Nodes:
        """The product's excess at the lattice's points."""
        if self.finite:
            return Nodes(*excess(self.exact(counts, side), self.grid.losses))
        if not any(counts):
            zero = np.zeros(self.grid.size)
            return Nodes(zero, zero)
        key = (side, counts)
        if key not in self._nodes:
            fewer, last = without_last(counts)
            before, (upper, lower) = self.nodes(fewer, side), self.runs[side]
            self._nodes[key] = Nodes(lower.then(last, before.lower), upper.then(last, before.upper))
        return self._nodes[key]

    def points(self, products: Sequence[tuple[int, ...]], side: int) -> np.ndarray:
        """Where the products' curves bend: their losses, 0 and what is beyond; or the lattice's points."""
        if not self.finite:
            return self.grid.losses
        own = np.unique(np.concatenate([[0.0], *(self.exact(counts, side).finite for counts in products)]))
        return np.concatenate([own[:1] - 1.0, own, own[-1:] + 1.0])

    def excess(self, counts: tuple[int, ...], side: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of the product's excess at epsilons ``points``."""
        if self.finite:
            return excess(self.exact(counts, side), points)
        # Both bounds are lines between lattice points, 0 being one.
        nodes, losses = self.nodes(counts, side), self.grid.losses
        gamma, nodes_gamma = np.exp(points), np.exp(losses)
        margin = np.where(np.isin(points, losses), 0.0, 1e-12 * np.minimum(gamma, 1.0))
        low = np.interp(gamma, nodes_gamma, nodes.lower, 0.0, 0.0) - margin
        return low, np.interp(gamma, nodes_gamma, nodes.upper) + margin

    def followed(
        self, first: int, plans: Sequence[tuple[int, ...]], side: int, points: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """``(lower, upper)`` of the excess of one member, then of the leakiest plan at the epsilon that is left.

        At epsilons ``points``; without finite members at the lattice's points.
        """
        if self.experiments is None:
            lower, upper = (np.maximum.reduce(x) for x in zip(*(self.nodes(plan, side) for plan in plans), strict=True))
            above, below = self.runs[side]
            return below.then(first, lower), above.then(first, upper)
        query, each = self.experiments[side][first], [self.exact(plan, side) for plan in plans]
        lower, upper = excess(query, points)
        kept = np.isfinite(query.losses)
        for loss, p in zip(query.losses[kept], query.p[kept], strict=True):
            shift = query.loss_error + 4 * EPS * (abs(loss) + np.abs(points))
            ends = [excess_near(plan, points - loss, shift) for plan in each]
            lower = lower + p * np.maximum.reduce([end[0] for end in ends])
            upper = upper + p * np.maximum.reduce([end[1] for end in ends])
        units = query.error + (query.p.size + 8) * EPS
        return deflated(lower, units), inflated(upper, units)


def without_last(counts: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The counts with one run less of the last member that ran, and its index."""
    last = max(i for i, n in enumerate(counts) if n)
    return tuple(n - (i == last) for i, n in enumerate(counts)), last
