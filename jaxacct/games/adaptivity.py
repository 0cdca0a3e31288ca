"""`cost_of_adaptivity`: what the best filter that admits every affordable schedule really guarantees."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.accounting.batch import Bounds
from jaxacct.accounting.calibration import calibrate
from jaxacct.games.blocks import block_lattice, block_laws
from jaxacct.games.rules import one_more, sequence
from jaxacct.games.runs import Runs, both_sides
from jaxacct.games.worst_case import lower_at
from jaxacct.games.worst_case_tables import Round, earlier
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Composed
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import RELATIONS

_ROWS = 256  # curves that are transformed at once
_MOST_ROWS = 10_000  # curves that are kept at once

Counts = tuple[int, ...]
Levels = list[list[Counts]]


@dataclasses.dataclass(frozen=True, eq=False)
class CostOfAdaptivity:
    """The privacy of the filter that admits every schedule of fixed cost at most ``schedules``, enclosed.

    No filter that admits all of them has a smaller epsilon at ``delta`` than ``epsilon.lower``.

    Attributes:
        schedules: the epsilon, at ``delta``, that schedules fixed in advance cost at most.
        delta: of the target.
        block: runs of each query that are decided on at once.
        states: how many combinations of blocks the lower bound's analyst can reach.
        grid: the lattice.
        lower: lower bounds of the worst analyst's H - (1 - gamma)_+ at the lattice's points.
        upper: upper bounds.
    """

    schedules: float
    delta: float
    block: tuple[int, ...]
    states: int
    grid: LossGrid
    lower: np.ndarray = dataclasses.field(repr=False)
    upper: np.ndarray = dataclasses.field(repr=False)

    @property
    def epsilon(self) -> Bounds:
        """Bounds of the least epsilon for which the filter is (epsilon, delta)-DP."""
        losses = self.grid.losses
        misses = (self.lower > self.delta) & (losses >= 0)
        meets = (self.upper <= self.delta) & (losses >= 0)
        upper = losses[np.argmax(meets)] if meets.any() else np.inf
        return Bounds(deflated(np.max(losses[misses], initial=0.0), 4 * EPS), inflated(np.asarray(upper), 4 * EPS))

    @property
    def share(self) -> Bounds:
        """Bounds of what such a filter must hold back of its epsilon: 1 - schedules / epsilon."""
        lower, upper = (1.0 - self.schedules / max(float(x), self.schedules) for x in self.epsilon)
        return Bounds(np.asarray(lower), np.asarray(upper))

    def hockey_stick(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of the worst analyst's delta(epsilon), epsilon >= 0."""
        _validate.nonnegative(epsilon=epsilon)
        upper = unchecked(PrivacyProfile, excess=self.upper, grid=self.grid, bound="upper").hockey_stick(epsilon)
        lower = lower_at(self.lower, self.upper, self.grid, np.asarray(epsilon, np.float64))
        return Bounds(np.minimum(lower, upper)[()], np.asarray(upper)[()])


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
    if any(np.ndim(leaf) for leaf in jax.tree.leaves(list(moves))):
        raise ValueError("queries must have one setting each, got an array of settings")
    epsilon, delta, blocks = float(epsilon), float(delta), int(blocks)
    runs = [_runs_alone(query, epsilon, delta, relation) for query in moves]
    block = tuple(max(1, fits // blocks) for fits, _ in runs)
    most = tuple((fails - 1) // size for (_, fails), size in zip(runs, block, strict=True))
    played: list[Mechanism] = [
        Composed([query], count) if count > 1 else query for query, count in zip(moves, block, strict=True)
    ]
    rounds = max(fits // size for (fits, _), size in zip(runs, block, strict=True))
    grid = block_lattice(played, rounds, epsilon, delta, relation)
    upper, lower = zip(*both_sides([block_laws(one, grid, relation) for one in played], grid), strict=True)
    (before, after), slack = _around(np.asarray(epsilon), grid), _slack(epsilon)
    inner = _levels(upper, most, lambda curves: curves[:, before] <= delta - slack)
    outer = _begun(_levels(lower, most, lambda curves: curves[:, min(after, grid.size - 1)] <= delta + slack), block)
    below, above = _worst(lower, inner), _worst(upper, outer)
    return CostOfAdaptivity(epsilon, delta, block, sum(map(len, inner)), grid, below, above)


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


def _around(epsilon: np.ndarray, grid: LossGrid) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the points not above and not below ``epsilon``, but for a rounding; ``grid.size`` for no point."""
    place = epsilon / grid.spacing
    nearest = np.rint(place)
    on = np.abs(place - nearest) <= 4 * EPS * place
    before, after = (np.where(on, nearest, x) - grid.lowest for x in (np.floor(place), np.ceil(place)))
    return np.minimum(before, grid.size - 1).astype(np.int64), np.minimum(after, grid.size).astype(np.int64)


def _slack(epsilon: ArrayLike) -> np.ndarray:
    """What H changes by where epsilon is off by its roundings: no more than epsilon is."""
    return 16 * EPS * np.asarray(epsilon, np.float64)


def _levels(sides: Sequence[Runs], most: Counts, kept: Callable[[np.ndarray], np.ndarray]) -> Levels:
    """Counts of blocks, by their sum, of which every direction's fixed composition is ``kept``.

    Only counts that follow kept ones are looked at, and none above ``most``, which each query alone exceeds.
    """
    queries = len(sides[0].laws)
    level: dict[Counts, int] = {(0,) * queries: 0}
    curves = [np.zeros((1, runs.grid.size)) for runs in sides]
    found = [list(level)]
    while level:
        following: dict[Counts, tuple[int, int]] = {}
        for query, (counts, row) in itertools.product(range(queries), level.items()):
            if counts[query] < most[query]:
                following.setdefault(one_more(counts, query), (query, row))
        if not following:
            break
        if len(following) > _MOST_ROWS:
            raise ValueError(f"blocks must give at most {_MOST_ROWS} counts of one sum, got {len(following)}")
        names, made = list(following), [np.zeros((len(following), runs.grid.size)) for runs in sides]
        last, rows = np.array(list(following.values())).T
        for query in range(queries):
            for part in np.split(some := np.flatnonzero(last == query), range(_ROWS, some.size, _ROWS)):
                for runs, before, after in zip(sides, curves, made, strict=True):
                    after[part] = runs.after(query, runs.before(before[rows[part]]))
        good = np.logical_and.reduce([kept(one) for one in made])
        curves = [one[good] for one in made]
        level = {names[i]: row for row, i in enumerate(np.flatnonzero(good))}
        if level:
            found.append(list(level))
    return found


def _begun(levels: Levels, block: Counts) -> Levels:
    """Counts of blocks that may have been begun while the full ones among them were one of ``levels``'s counts."""
    open_blocks = [1 if size > 1 else 0 for size in block]
    found: dict[int, set[Counts]] = {}
    for counts in itertools.chain.from_iterable(levels):
        # A query of which no block is full may not have been begun.
        choices = [(0, more) if full == 0 else (full + more,) for full, more in zip(counts, open_blocks, strict=True)]
        for begun in itertools.product(*choices):
            found.setdefault(sum(begun), set()).add(begun)
    return [sorted(found[total]) for total in sorted(found)]


def _worst(sides: Sequence[Runs], levels: Levels) -> np.ndarray:
    """The worst analyst's excess in any direction: Lemma 1 of the residue paper, from the last level to the first."""
    rounds = [Round.over(len(levels[-1]), runs.grid) for runs in sides]
    queries = range(len(sides[0].laws))
    for level, following in reversed(list(itertools.pairwise(levels))):
        index = {counts: row for row, counts in enumerate(following)}
        moves = np.array([[index.get(one_more(counts, query), -1) for query in queries] for counts in level])
        rounds = [earlier(later, moves, runs)[0] for later, runs in zip(rounds, sides, strict=True)]
    return np.maximum.reduce([one.values[0] for one in rounds])
