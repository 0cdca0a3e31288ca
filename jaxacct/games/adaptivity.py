"""`cost_of_adaptivity`: what the best filter that admits every affordable schedule really guarantees."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS
from jaxacct.accounting.batch import Bounds
from jaxacct.accounting.calibration import calibrate
from jaxacct.games.blocks import block_lattice, block_laws
from jaxacct.games.compositions import without_last
from jaxacct.games.enclosure import Enclosure
from jaxacct.games.rules import MOST_ROUNDS, Rule, sequence, unroll
from jaxacct.games.runs import both_sides
from jaxacct.games.worst_case import solve
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.mechanisms import Composed
from jaxacct.mechanisms.base import Mechanism, shapes_of_settings
from jaxacct.mechanisms.directions import RELATIONS

_MOST_STATES = 10_000  # of one round
_KEPT = 2048  # curves of compositions

Counts = tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class CostOfAdaptivity:
    """The privacy of the filter that admits every schedule of fixed cost at most ``schedules``, enclosed.

    No filter that admits all of them has a smaller epsilon at ``delta`` than ``epsilon.lower``.

    Attributes:
        schedules: the epsilon, at ``delta``, that schedules fixed in advance cost at most.
        delta: of the target.
        block: runs of each query that are decided on at once.
        states: how many combinations of blocks the lower bound's analyst can reach.
        curve: the worst analyst's, enclosed.
    """

    schedules: float
    delta: float
    block: tuple[int, ...]
    states: int
    curve: Enclosure = dataclasses.field(repr=False)

    @property
    def epsilon(self) -> Bounds:
        """Bounds of the least epsilon for which the filter is (epsilon, delta)-DP."""
        return self.curve.epsilon(self.delta)

    @property
    def share(self) -> Bounds:
        """Bounds of what such a filter must hold back of its epsilon: 1 - schedules / epsilon."""
        lower, upper = (1.0 - self.schedules / max(float(x), self.schedules) for x in self.epsilon)
        return Bounds(np.asarray(lower), np.asarray(upper))

    def hockey_stick(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of the worst analyst's delta(epsilon), epsilon >= 0."""
        _validate.nonnegative(epsilon=epsilon)
        return self.curve.hockey_stick(epsilon)


def cost_of_adaptivity(
    queries: Sequence[Mechanism], epsilon: float, delta: float, *, blocks: int = 24, relation: str = "add_or_remove"
) -> CostOfAdaptivity:
    """What it costs to let an analyst choose, as it goes, among all schedules that cost at most ``epsilon`` alone.

    The filter keeps how often each query ran, and admits a query if the new counts, had they been fixed in advance,
    would be (epsilon, delta)-DP. Its true epsilon is a floor for every filter that admits as much
    (docs/theorems/adaptivity.md). The lower bound is of an analyst who decides on blocks of runs, and plays only
    counts that are certified to cost at most ``epsilon``; the upper bound is of one who is given a whole block's
    results for each block that was begun. Both are curves on a lattice; every rounding is accounted for.

    Args:
        queries: mechanisms with one setting each, two or more.
        epsilon: what schedules fixed in advance may cost, > 0 and at most 100.
        delta: strictly between 0 and 1.
        blocks: into how many blocks a query's runs are divided, if it alone spends ``epsilon``. States are about
            blocks ** k / k! for k queries.
        relation: see :func:`jaxacct.delta`.

    Raises:
        ValueError: a bad value (named), a query that exceeds the target at once, too many states.
    """
    _validate.scalar(_validate.positive, epsilon=epsilon)
    _validate.at_most(100.0, epsilon=epsilon)
    _validate.scalar(_validate.probability, delta=delta)
    _validate.scalar(_validate.count, blocks=blocks)
    _validate.at_most(1024, blocks=blocks)
    _validate.one_of(RELATIONS, relation=relation)
    moves = sequence(queries=queries)
    if len(moves) < 2 or not all(isinstance(query, Mechanism) for query in moves):
        raise ValueError(f"queries must be two or more mechanisms, got {queries!r:.200}")
    if any(shapes_of_settings(list(moves))):
        raise ValueError("queries must have one setting each, got an array of settings")
    epsilon, delta, blocks = float(epsilon), float(delta), int(blocks)
    if math.comb(blocks + len(moves) - 1, blocks) > _MOST_STATES:
        raise ValueError(
            f"blocks must give at most {_MOST_STATES} counts of one sum of {len(moves)} queries, got {blocks}"
        )
    runs = [_runs_alone(query, epsilon, delta, relation) for query in moves]
    block = tuple(max(1, fits // blocks) for fits, _ in runs)
    most = tuple((fails - 1) // size for (_, fails), size in zip(runs, block, strict=True))
    played: list[Mechanism] = [
        Composed([query], count) if count > 1 else query for query, count in zip(moves, block, strict=True)
    ]
    rounds = max(fits // size for (fits, _), size in zip(runs, block, strict=True))
    grid = block_lattice(played, rounds, epsilon, delta, relation)
    sides = both_sides([block_laws(one, grid, relation) for one in played], grid)

    @functools.lru_cache(maxsize=_KEPT)
    def curves(counts: Counts) -> list[tuple[np.ndarray, np.ndarray]]:
        """Bounds of the excess of these blocks, fixed in advance, in each direction."""
        if not any(counts):
            return [(np.zeros(grid.size), np.zeros(grid.size))] * len(sides)
        fewer, last = without_last(counts)
        return [
            (below.then(last, low), above.then(last, high))
            for (above, below), (low, high) in zip(sides, curves(fewer), strict=True)
        ]

    def meets(counts: Counts, bound: int, point: float, target: float) -> bool:
        at = min(int(point) - grid.lowest, grid.size - 1)
        fits = all(count <= alone for count, alone in zip(counts, most, strict=True))
        return fits and all(one[bound][at] <= target for one in curves(counts))

    # The points next to epsilon, but for a rounding, by which H changes no more than epsilon does.
    slack, place = 16 * EPS * epsilon, epsilon / grid.spacing
    before, after = math.floor(place * (1.0 + 4 * EPS)), math.ceil(place * (1.0 - 4 * EPS))

    def certain(counts: Counts) -> bool:
        return meets(counts, 1, before, delta - slack)

    def possible(counts: Counts) -> bool:
        """Whether the full ones among these blocks may meet the target: of each query that has any, all but one."""
        full = tuple(max(count - (size > 1), 0) for count, size in zip(counts, block, strict=True))
        return meets(full, 0, after, delta + slack)

    rule = Rule.of_counts(played, lambda n: certain(n) or possible(n), certain)
    game = unroll(rule, MOST_ROUNDS)
    reached = sum(certain(counts) for states in game.states for counts in states)
    each = [solve(game, runs) for runs in sides]
    lower, upper = (np.maximum.reduce(x) for x in ([one.lower for one in each], [one.profile.excess for one in each]))
    profile = unchecked(PrivacyProfile, excess=upper, grid=grid, bound="upper")
    return CostOfAdaptivity(epsilon, delta, block, reached, Enclosure(profile, lower, grid))


def _runs_alone(query: Mechanism, epsilon: float, delta: float, relation: str) -> tuple[int, int]:
    """How often a query alone runs within the target, and a number of runs, near to it, that misses it for certain."""
    found = calibrate(
        lambda _: query,
        epsilon,
        delta,
        steps=lambda runs: runs,
        relation=relation,
        seek="largest",
        whole=True,
        tolerance=0.01,
    )
    if not np.isfinite(found.refuted):
        raise ValueError(f"queries must exceed epsilon {epsilon:g} at delta {delta:g} at last, got {query!r:.200}")
    return int(found.parameter), int(found.refuted)
