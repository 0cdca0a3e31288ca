"""`true_cost`: what an adaptive analyst can do to a filter with one budget, from above and from below."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate, accounting
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.accounting.batch import Bounds
from jaxacct.adversary.blocks import attained, whole_nodes
from jaxacct.filters import amounts
from jaxacct.filters.additive.approximate_gdp import ApproximateGDPFilter
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.guarantees.of_profiles import decreasing
from jaxacct.filters.prices.closed_form import certified_queries
from jaxacct.filters.prices.laws import MenuLaws, menu_laws
from jaxacct.filters.prices.menu_table import curve_of_budget
from jaxacct.filters.queries import as_sampled_gaussian
from jaxacct.games.enclosure import Enclosure
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.mechanisms.base import Mechanism, shapes_of_settings

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

_BUDGET = 2**44  # units of the whole budget
_ADMITTED = 2.0**-39  # more than what accounts admit beyond the budget
_EXACT = 2.0**-44  # more than what they round up
_WORK = 200_000  # runs of the quietest query, times queries, from which on a family takes the place of the recursion
_LEAST_EPSILON = 0.01
_BLOCK_POINTS = 3000  # of the lattice of a lower bound
_STAIRS = (4000, 6000)  # nodes of a staircase
_RAMP = 0.2  # of a run of the loudest query: about what a table costs that is no staircase
_LEAST_NODES = 1200
_REACH = 1.3  # epsilons of the lattice over that of the worst constant schedule
_POINTS = 300.0  # of the lattice, over the root of the runs
_Steps = list[tuple[float, float]]
_LEVELS = 256  # of the floors that a lower bound starts from


@dataclasses.dataclass(frozen=True, eq=False)
class TrueCost:
    """The privacy profile of the worst analyst of a filter, enclosed, in both directions.

    Attributes:
        curve: what the recursion says.
        alone: the queries, and how often each alone fits: analysts who look at nothing.
    """

    curve: Enclosure
    alone: list[tuple[Mechanism, int]]

    @property
    def profile(self) -> PrivacyProfile:
        """The upper bound as a curve: a guarantee at every epsilon."""
        return self.curve.profile

    def hockey_stick(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of delta(epsilon) = sup over analysts of H(e^epsilon); shape of ``epsilon``."""
        each = [np.asarray(accounting.delta(one, epsilon, steps=runs).lower) for one, runs in self.alone]
        return _at_least(self.curve.hockey_stick(epsilon), each)

    def epsilon(self, delta: ArrayLike) -> Bounds:
        """Bounds of the least epsilon >= 0 at which no analyst has more than ``delta``; shape of ``delta``."""
        each = [np.asarray(accounting.epsilon(one, delta, steps=runs).lower) for one, runs in self.alone]
        return _at_least(self.curve.epsilon(delta), each)


def _at_least(bounds: Bounds, others: list[np.ndarray]) -> Bounds:
    return Bounds(np.minimum(np.maximum.reduce([bounds.lower, *others]), bounds.upper)[()], bounds.upper)


@in_float64
def true_cost(filter: Any, queries: Sequence[Mechanism], *, clipped: bool = False, delta: float = 1e-6) -> TrueCost:
    """The exact worst case of an adaptive analyst who asks ``filter`` for ``queries`` until its budget is spent.

    Bounds from both sides, whatever the filter itself guarantees: the worst case over all analysts who pick the next
    query by all earlier outputs, while the sum of the filter's costs stays within its budget
    (docs/theorems/true-cost.md).

        true_cost(filters.approximate_gdp(0.1), [PoissonSampled(Gaussian(s), 0.1) for s in (1.0, 1.5, 2.5)])

    Args:
        filter: with one budget that costs add up to: `approximate_gdp`, `gdp`, `zcdp`, `renyi`, `pure_dp`.
        queries: mechanisms with scalar, concrete parameters that the filter takes.
        clipped: whether the last query, which does not fit, runs clipped to what is left (`approximate_gdp`,
            `update_clipped`).
        delta: about the least delta that is read: the lattice of losses is made for it.

    Raises:
        ValueError: a filter of another kind, no query that fits, or one that costs nothing.
    """
    queries, costs = _costs(filter, queries)
    _validate.scalar(_validate.probability, delta=delta)
    _validate.truth(clipped=clipped)
    if clipped and not isinstance(filter, ApproximateGDPFilter):
        raise ValueError(f"clipped must be False for {type(filter).__name__}: approximate_gdp alone has clipped steps")
    fits = costs <= 1.0 + _ADMITTED
    if not fits.any():
        raise ValueError("queries must hold one that fits within the filter's budget, got none")
    asked = [query for query, fit in zip(queries, fits, strict=True) if fit]
    runs = np.floor((1.0 + _ADMITTED) / costs[fits])
    alone = [float(accounting.epsilon(one, delta, steps=int(n)).upper) for one, n in zip(asked, runs, strict=True)]  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    steps = _loudest(queries, costs) if clipped else []
    profile = _above(filter, asked, costs[fits], steps, _REACH * max(*alone, _LEAST_EPSILON), delta)
    lattice = _lattice(profile.grid)
    floors = _floors(lattice, steps, filter, np.arange(1, _LEVELS + 1) / _LEVELS, "lower") if steps else None
    # Accounts with a slack admit what fits in real numbers; those of approximate_gdp what fits after rounding up.
    room = 1.0 + (_EXACT if isinstance(filter, ApproximateGDPFilter) else -0.5 * amounts.SLACK)
    certain = costs[fits] * room
    below = attained(asked, certain, lattice, floors)
    whole = [int(n) for n in np.floor((1.0 - 8 * EPS) / certain)]
    fixed = [(one, n) for one, n in zip(asked, whole, strict=True) if n]
    return TrueCost(Enclosure(profile, _both(below, lattice), lattice), fixed)


def _above(
    filter: Filter, queries: list[Mechanism], costs: np.ndarray, steps: _Steps, reach: float, delta: float
) -> PrivacyProfile:
    """The certified curve, in both directions: of the recursion, or of a family where there are many runs."""
    most = 1.0 / costs.min()
    if most * len(queries) > _WORK and (noises := _noises(queries)) is not None:
        share = 1.0 + _ADMITTED + max((cost for _, cost in steps), default=0.0)
        found = certified_queries(noises, costs, share, reach / _REACH, delta)
        if found is not None:
            return _profile(*found)
    points = 1 << round(math.log2(min(max(_POINTS * math.sqrt(most), 2048.0), 8192.0)))
    laws, _ = menu_laws(queries, reach, delta, points)
    return _profile(_upper(laws, costs, steps, filter), laws.grid)


def _profile(excess: np.ndarray, grid: LossGrid) -> PrivacyProfile:
    worst = np.minimum(excess, np.minimum(inflated(np.exp(grid.losses), 2.0**-48), 1.0))
    return decreasing(unchecked(PrivacyProfile, excess=worst, grid=grid, bound="upper").symmetrise())


def _noises(queries: list[Mechanism]) -> list[tuple[float, float]] | None:
    """The noise multipliers and rates of queries that all are sampled Gaussians."""
    found = [as_sampled_gaussian(one) for one in queries]
    return None if None in found else [(float(noise), float(rate)) for noise, rate in found]  # pyright: ignore[reportGeneralTypeIssues]


def _lattice(grid: LossGrid) -> LossGrid:
    """A lattice for blocks over the same losses: not finer than they need."""
    times = max(1, (grid.highest - grid.lowest) // _BLOCK_POINTS)
    reach = max(-grid.lowest, grid.highest) // times
    return LossGrid(grid.spacing * times, -reach, 2 * reach + 1)


def _costs(filter: Filter, queries: Sequence[Mechanism]) -> tuple[list[Mechanism], np.ndarray]:
    """The queries, and what each takes of the filter's budget of 1."""
    leaves = jax.tree.leaves(getattr(filter, "pieces", None))
    if not isinstance(filter, AdditiveFilter) or len(leaves) != 1 or np.ndim(amounts.join(leaves[0])):
        raise ValueError(f"filter must have one budget that costs add up to, got {filter!r:.200}")
    if not isinstance(queries, Sequence) or not all(isinstance(one, Mechanism) for one in queries) or not queries:
        raise ValueError(f"queries must be a sequence of mechanisms, got {queries!r:.200}")
    if any(shapes_of_settings(list(queries))) or _validate.is_traced(queries):
        raise ValueError("queries must hold mechanisms with scalar, concrete parameters")
    budget = float(amounts.join(leaves[0])) ** (2 if filter.squares else 1)
    costs = np.array([float(filter._cost(one)) for one in queries]) / budget
    if not (costs > 0).all():
        raise ValueError(
            f"queries must cost something and be taken by the filter, got costs {(costs * budget).tolist()}"
        )
    return list(queries), costs


def _upper(laws: MenuLaws, costs: np.ndarray, steps: _Steps, filter: Any) -> np.ndarray:
    """The certified curve of the whole budget: prices rounded down, the budget with what accounts admit."""
    budget, runs = _BUDGET * (1.0 + _ADMITTED), 1.0 / costs
    stairs, lost = whole_nodes(costs, _STAIRS, up=False)
    whole = not steps and lost < _RAMP / runs.min()
    node = math.floor(_BUDGET / (stairs if whole else max(_LEAST_NODES, 1.125 * runs.max())))
    prices = np.floor(costs * _BUDGET * (1.0 - 4 * EPS)).astype(np.int64)
    if whole:
        prices = np.maximum(prices // node, 2) * node
    levels = math.ceil(max((cost for _, cost in steps), default=0.0) * _BUDGET / node) + 1
    ends = np.minimum(np.arange(1, min(levels, math.ceil(budget / node)) + 1) * (node / _BUDGET), 1.0 + _ADMITTED)
    floors = _floors(laws.grid, steps, filter, ends, "upper") if steps else None
    if floors is not None:
        floors = floors * np.exp(-0.5 * laws.grid.losses) * (1.0 + 64 * EPS * (4.0 + np.abs(laws.grid.losses).max()))
    return curve_of_budget(laws, prices, node, math.ceil(budget), whole, floors)


def _loudest(queries: list[Mechanism], costs: np.ndarray) -> _Steps:
    """Each rate and the largest cost at it: what may be left when a query of that rate is clipped."""
    found: dict[float, float] = {}
    for one, cost in zip(queries, costs, strict=True):
        rate = float(one.rate) if isinstance(one, PoissonSampled) else 1.0  # pyright: ignore[reportArgumentType]
        found[rate] = max(found.get(rate, 0.0), float(cost))
    return list(found.items())


def _floors(grid: LossGrid, steps: _Steps, filter: ApproximateGDPFilter, ends: np.ndarray, bound: str) -> np.ndarray:
    """Excesses of the loudest clipped step with so much of the budget left, shape ``(levels, grid.size)``."""
    budget = float(filter.budget)
    curves = []
    for rate, most in steps:
        rest = 2.0 * budget * np.minimum(ends, most)
        mu = np.sqrt(np.log1p(rest / rate**2)) if filter.regime == "small" else np.sqrt(rest) / rate
        mu = inflated(mu, 2.0**-40) if bound == "upper" else deflated(mu, 2.0**-40)
        query = PoissonSampled(Gaussian(1.0 / mu), rate)
        curves.append(PrivacyProfile.from_mechanism(query, bound, relation="remove", grid=grid).excess)
    return np.maximum.reduce([np.asarray(x) for x in curves])


def _both(lower: np.ndarray, grid: LossGrid) -> np.ndarray:
    """The larger of both directions: the reversed pair's excess is gamma E(1 / gamma), on a symmetric lattice."""
    return np.maximum(lower, deflated(np.exp(grid.losses) * lower[::-1], 16 * EPS))
