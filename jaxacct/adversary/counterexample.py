"""`counterexample`: a first query, a budget and a selection rule that together break the natural filter."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.curve_arrays import concrete
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import inflated
from jaxacct.accounting.batch import Bounds
from jaxacct.games.compositions import Compositions, multisets_up_to
from jaxacct.games.experiment import Experiment, Query, excess, experiment, to_trade_off, whole_curve
from jaxacct.games.freeness import closure_of, known_chain
from jaxacct.games.lattice_laws import Law, lattice_index
from jaxacct.games.natural_cost import TOLERANCE
from jaxacct.games.rules import check_rounds, one_more, sequence
from jaxacct.games.runs import Runs
from jaxacct.losses.compare.order import YES
from jaxacct.losses.compare.suprema import supremum
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.grids.grid import LossGrid

_MOST_PRODUCTS = 60  # pairs of products that are looked at: about 1,800
_BLOCK = 2_000_000
Pair = tuple[tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A Monte-Carlo estimate of the interaction's hockey stick, not a bound.

    Attributes:
        estimate: P(A) - gamma Q(A), A the transcripts with a loss above epsilon.
        error: its standard error.
    """

    estimate: float
    error: float


@dataclasses.dataclass(frozen=True, eq=False)
class Counterexample:
    """An analyst whom the natural filter lets through and who gets more than the budget.

    The budget is the least curve that lets both plans through: first the query, then all of one branch, or all of the
    other. The analyst plays the query, looks at its loss l, and goes on with the branch that is leakier at the epsilon
    that is left, ``epsilon - l``.

    Attributes:
        family: the members.
        first: index of the first query.
        branches: how often each member is played after it, for the two plans.
        epsilon: the epsilon at which the budget is exceeded.
        cost: bounds of the analyst's H(e^epsilon), from its whole interaction.
        allowed: bounds of the budget's.
        excess: cost - allowed is certainly at least this.
        side: the direction (0 remove, 1 add, where they differ).
    """

    family: list[Query]
    first: int
    branches: Pair
    epsilon: float
    cost: Bounds
    allowed: Bounds
    excess: float
    side: int
    _compositions: Compositions = dataclasses.field(repr=False)

    @property
    def rounds(self) -> int:
        """How many queries are played."""
        return 1 + max(sum(b) for b in self.branches)

    def choice(self, loss: ArrayLike) -> np.ndarray:
        """Which branch, 0 or 1, is played after an outcome of the first query with this loss."""
        left = self.epsilon - np.asarray(loss, np.float64)
        values = [
            np.add(*self._compositions.excess(branch, self.side, np.clip(left, -600.0, 600.0)))
            for branch in self.branches
        ]
        return np.where(values[0] >= values[1], 0, 1)

    def budget(self) -> TradeOff | PrivacyProfile:
        """The budget as a curve: a ``TradeOff`` if members are finite, else a ``PrivacyProfile`` from above."""
        compositions = self._compositions
        plans = [one_more(b, self.first) for b in self.branches]
        if compositions.finite:
            return supremum([to_trade_off(compositions.exact(n, self.side)) for n in plans])
        uppers = [concrete(compositions.nodes(n, self.side).upper) for n in plans]
        return supremum([unchecked(PrivacyProfile, excess=x, grid=compositions.grid, bound="upper") for x in uppers])

    def profile(self, epsilon: ArrayLike) -> Bounds:
        """Bounds of this analyst's own H(e^epsilon), at any epsilon; lattice families: at the lattice point nearest.

        Raises:
            ValueError: an epsilon outside the lattice.
        """
        _validate.finite(epsilon=epsilon)
        at = np.asarray(epsilon, np.float64)
        if self._compositions.finite:
            return whole_curve(at, *excess(self.interaction(), at))
        index = lattice_index(self._compositions.grid, at)
        return whole_curve(at, *(bound[index] for bound in self._on_lattice()))

    def interaction(self) -> Experiment:
        """The whole interaction as one finite experiment: every transcript with its two probabilities.

        Raises:
            ValueError: members that are not finite.
        """
        query, branches = self._parts()
        # What is certain already needs no branch; the choice there does not matter.
        chosen = self.choice(np.where(np.isfinite(query.losses), query.losses, 0.0))
        parts = [(p * branches[c].p, q * branches[c].q) for p, q, c in zip(query.p, query.q, chosen, strict=True)]
        error = query.error + max(b.error for b in branches) + 2.0**-52
        p, q = (np.concatenate(x) for x in zip(*parts, strict=True))
        return experiment(p, q, error)

    def _parts(self) -> tuple[Experiment, list[Experiment]]:
        """The first query and both branches."""
        compositions = self._compositions
        if compositions.experiments is None:
            raise ValueError("family must be finite for transcripts, and has members that are not")
        return compositions.experiments[self.side][self.first], [
            compositions.exact(b, self.side) for b in self.branches
        ]

    def _on_lattice(self) -> tuple[np.ndarray, np.ndarray]:
        compositions = self._compositions
        grid = compositions.grid
        nodes = [compositions.nodes(b, self.side) for b in self.branches]
        found = []
        for runs in reversed(compositions.runs[self.side]):
            law = runs.laws[self.first]
            # After each lattice loss its own branch: two laws without the rest of each other's mass.
            chosen = self.choice(law.offsets * grid.spacing)
            total = law.excess
            for branch, node in enumerate(nodes):
                part = Law(law.offsets, np.where(chosen == branch, law.masses, 0.0), 0.0, np.zeros(grid.size))
                total = total + Runs([part], grid, runs.upper).then(0, node[runs.upper])
            found.append(inflated(total, 2.0**-48 * (1 if runs.upper else -1)))
        return found[0], found[1]

    def simulate(self, samples: int, seed: int = 0) -> Simulation:
        """Plays the interaction ``samples`` times under P and under Q.

        Args:
            samples: of each.
            seed: of NumPy's generator.

        Raises:
            ValueError: members that are not finite.
        """
        _validate.count(samples=samples)
        query, branches, generator = *self._parts(), np.random.default_rng(seed)
        above = []
        for under_p in (True, False):

            def draw(one: Experiment, size: int, under_p: bool = under_p) -> np.ndarray:
                masses = one.p if under_p else one.q
                return np.asarray(one.losses)[generator.choice(masses.size, size, p=masses / masses.sum())]

            loss = draw(query, samples)
            chosen = self.choice(np.where(np.isfinite(loss), loss, 0.0))
            for branch, one in enumerate(branches):
                here = np.flatnonzero(chosen == branch)
                loss[here] = loss[here] + draw(one, here.size)
            above.append(float(np.mean(loss > self.epsilon)))
        gamma = float(np.exp(self.epsilon))
        variance = [a * (1.0 - a) / samples for a in above]
        identity = max(1.0 - gamma, 0.0)
        estimate = max(above[0] - gamma * above[1], identity)
        return Simulation(estimate, (variance[0] + gamma**2 * variance[1]) ** 0.5)


def counterexample(
    family: Sequence[Query], rounds: int, *, relation: str = "add_or_remove", grid: LossGrid | None = None
) -> Counterexample | None:
    """Breaks the natural filter for ``family`` within ``rounds`` rounds, with the fewest rounds and then the most gain.

    Where two products A and C of members are not ordered, and a query L spreads the epsilon left over both sides
    of their crossing, the budget sup{L * A, L * C} lets either plan through, and choosing between them by the outcome
    of L costs L * sup{A, C}, which is more (Theorem B.1 and 3.8 of the paper on f-DP filters; Lemma 4, Proposition 13
    and Theorem 18 of the residue paper). All pairs of up to 60 products are tried with every first query.

    Args:
        family: mechanisms, PLDs or curves, a finite number.
        rounds: the most queries, at least 1.
        relation: for mechanisms.
        grid: lattice for members that are not finite.

    Returns:
        None where none was found, because compositions are totally ordered (then there is none), because the filter
        is free all the same, or because the excess is within the bounds' error.

    Raises:
        ValueError: an empty family, a batch of mechanisms.
    """
    rounds = check_rounds(rounds)
    compositions = Compositions(family, rounds, relation, grid)
    if known_chain(compositions):
        return None
    for most in range(1, rounds):
        every = list(itertools.islice(multisets_up_to(len(compositions.family), most), 1, _MOST_PRODUCTS + 1))
        if closure_of(compositions, most, TOLERANCE).verdict == YES:
            continue
        # Plans of fewer rounds were tried before.
        pairs = [pair for pair in itertools.combinations(every, 2) if max(sum(plan) for plan in pair) == most]
        cases = itertools.product(pairs, range(len(compositions.family)), range(compositions.sides))
        gaps = ((_gap(compositions, first, pair, side), first, pair, side) for pair, first, side in cases)
        best = max(gaps, key=lambda gap: gap[0].excess, default=None)
        found = None if best is None else _evaluated(compositions, *best)
        if found is not None:
            return found
    return None


def adaptive_choice(
    first: Query,
    one: Sequence[Query],
    other: Sequence[Query],
    *,
    relation: str = "add_or_remove",
    grid: LossGrid | None = None,
) -> Counterexample | None:
    """The counterexample with this first query and these two plans for what follows, or None if there is no excess.

    Args:
        first: a mechanism, PLD or curve.
        one: the queries of one plan.
        other: of the other.
        relation: for mechanisms.
        grid: lattice for what is not finite.

    Raises:
        ValueError: see :func:`counterexample`.
    """
    one, other = sequence(one=one), sequence(other=other)
    family = [first, *one, *other]
    compositions = Compositions(family, 1 + max(len(one), len(other)), relation, grid)
    pair = (0, *(1,) * len(one), *(0,) * len(other)), (0, *(0,) * len(one), *(1,) * len(other))
    gaps = [_gap(compositions, 0, pair, side) for side in range(compositions.sides)]
    side = max(range(len(gaps)), key=lambda i: gaps[i].excess)
    return _evaluated(compositions, gaps[side], 0, pair, side)


class _Gap(NamedTuple):
    """The largest certain difference between L * sup{A, C} and sup{L * A, L * C}, and at which epsilon."""

    excess: float
    epsilon: float


def _gap(compositions: Compositions, first: int, pair: Pair, side: int) -> _Gap:
    """What is gained by choosing between A and C after the outcome of L, and not before.

    Positive at gamma iff the leakier continuation changes between outcomes (Proposition 13 of the residue paper, and
    Theorem B.1 of the paper on f-DP filters). For finite members it is searched where it can be largest: all curves are
    lines between those epsilons.
    """
    points = compositions.points(pair, side)
    plans = [one_more(plan, first) for plan in pair]
    if compositions.experiments is not None:
        query = compositions.experiments[side][first]
        inner = _with_crossings(points, compositions, pair, side)
        outer = np.unique((query.finite[:, None] + inner).reshape(-1))
        # Thinned where outcomes are many: any epsilon is a sound place to look at.
        outer = outer[:: max(1, outer.size * query.p.size // _BLOCK)]
        points = _with_crossings(outer, compositions, plans, side)
    adaptive, _ = compositions.followed(first, pair, side, points)
    certain = adaptive - np.maximum.reduce([compositions.excess(plan, side, points)[1] for plan in plans])
    best = int(np.argmax(certain))
    return _Gap(float(certain[best]), float(points[best]))


def _with_crossings(
    points: np.ndarray, compositions: Compositions, pair: Sequence[tuple[int, ...]], side: int
) -> np.ndarray:
    """The points, and about where two products' curves cross between neighbouring ones."""
    one, other = (np.add(*compositions.excess(plan, side, points)) for plan in pair)
    difference = one - other
    i = np.nonzero(difference[:-1] * difference[1:] < 0)[0]
    share = difference[i] / (difference[i] - difference[i + 1])
    return np.unique(np.concatenate([points, points[i] + np.log1p(share * np.expm1(points[i + 1] - points[i]))]))


def _evaluated(compositions: Compositions, gap: _Gap, first: int, pair: Pair, side: int) -> Counterexample | None:
    """The counterexample with its numbers from the analyst's own interaction, not from the gap that found it."""
    if not gap.excess > 0:
        return None
    nothing = Bounds(np.zeros(()), np.ones(()))
    found = Counterexample(compositions.family, first, pair, gap.epsilon, nothing, nothing, 0.0, side, compositions)
    with jax.enable_x64(True):
        cost = found.profile(gap.epsilon)
    at = np.array([gap.epsilon])
    each = [compositions.excess(one_more(plan, first), side, at) for plan in pair]
    allowed = whole_curve(np.asarray(gap.epsilon), *(np.max(bound) for bound in zip(*each, strict=True)))
    gained = float(cost.lower - allowed.upper)
    return dataclasses.replace(found, cost=cost, allowed=allowed, excess=gained) if gained > 0 else None
