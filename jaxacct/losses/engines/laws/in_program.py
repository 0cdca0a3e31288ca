"""delta and epsilon of compositions, law by law, inside a program: what transforms leave wide.

The law of all runs is built from its binary digits, doubled and added to, in one loop that holds one composition. One
setting after the other is worked on, and those that are narrow already are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.manual_axes import cond, fori_loop, while_loop
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct.losses.engines.laws.aim import Aim
from jaxacct.losses.engines.laws.cells import Law, Laws, laws, laws_of_outcomes
from jaxacct.losses.engines.laws.composer import composed, edges_of_run, edges_of_sum, sorted_survey
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.table import lists_outcomes

_POINTS = 448  # of a law
_PASSES = 3  # each aims better
_TIGHT = 1e-3  # relative width that asks for no laws
_DIGITS = 53  # of counts
_HALVINGS = 56
_UNDERFLOW, _FLUSHED = 1e-300, 1e-301  # of all sums and products together: once, and for each run

Bounds = tuple[Array, Array]


def narrowed_by_laws(kind: str, groups: tuple[Pair, ...], counts: Array, goal: Array, known: Bounds) -> Bounds:
    """``known``, lower and upper bounds of shape ``(B,)``, narrowed where they are wide.

    Leaves of groups have shape ``(B, parts of the group)``, ``counts`` ``(B, K)``, in the order of the groups.
    """

    def one(row: tuple[tuple[Pair, ...], Array, Array, Bounds]) -> Bounds:
        groups, counts, goal, known = row
        pairs = [
            jax.tree.map(lambda x: x[part], group)  # noqa: B023
            for group in groups
            for part in range(jax.tree.leaves(group)[0].shape[0])
        ]
        spread, total = _spread(pairs, counts), counts.sum()
        hidden = _Hidden(_UNDERFLOW + _FLUSHED * total, _largest(pairs, counts))

        def narrower(state: tuple[Array, Bounds]) -> tuple[Array, Bounds]:
            times, (lower, upper) = state
            ceiling = jnp.where(upper < np.inf, upper, jnp.maximum(10.0 * lower, spread))
            between = jnp.where(lower > 0, jnp.sqrt(lower) * jnp.sqrt(ceiling), ceiling)
            at = (between, goal) if kind == "epsilon" else (goal, between)
            both = _law(pairs, counts, Aim.at(*at, total, spread))
            low, high = (_delta if kind == "delta" else _epsilon)(both, goal, (lower, upper), hidden)
            return times + 1, (jnp.fmax(lower, low), jnp.fmin(upper, high))

        def wide(state: tuple[Array, Bounds]) -> Array:
            times, (lower, upper) = state
            return counted & (times < _PASSES) & ~(lower >= (1.0 - _TIGHT) * upper)

        # Other counts have no digits, and would be no runs at all; NaN is one of them.
        whole = (counts >= 0.0) & (counts == jnp.floor(counts)) & (counts <= 2.0**_DIGITS)
        counted = whole.all() & (total >= 1.0)
        return while_loop(wide, narrower, (jnp.int32(0), known))[1]

    return jax.lax.map(one, (groups, counts, goal, known))


def _spread(pairs: list[Pair], counts: Array) -> Array:
    """About the size of the sum of all losses."""
    found = 0.0
    for pair, count in zip(pairs, counts, strict=True):
        losses, log_masses = sorted_survey(pair)
        found = found + count * (jnp.exp(log_masses) * jnp.clip(losses, -50.0, 50.0) ** 2).sum()
    return jnp.sqrt(found)


def _law(pairs: list[Pair], counts: Array, aim: Aim) -> Laws:
    """The law of all runs from below and from above."""
    singles = [_of_run(pair, aim) for pair in pairs]
    operands = jax.tree.map(lambda *x: jnp.stack(x), *singles)
    kinds = len(pairs) + 1

    def step(state: tuple[Array, Array, Laws]) -> tuple[Array, Array, Laws]:
        index, begun, law = state
        phase, digit = index % kinds, jnp.float64(2.0) ** (_DIGITS - index // kinds)
        of = jnp.maximum(phase - 1, 0)
        single = jax.tree.map(lambda x: x[of], operands)
        other = jax.tree.map(lambda a, b: jnp.where(phase == 0, a, b), law, single)
        wanted = jnp.where(phase == 0, begun, jnp.floor(counts[of] / digit) % 2.0 == 1.0)

        def joined() -> Laws:
            return _padded(composed(law, other, edges_of_sum(law.upper, other.upper, aim, _POINTS)))

        begins = lambda: jax.tree.map(lambda a, b: jnp.where(wanted, b, a), law, other)  # noqa: E731
        law = cond(wanted & begun, joined, begins)
        return index + 1, begun | wanted, law

    going = lambda state: state[0] < kinds * (_DIGITS + 1)  # noqa: E731
    # The largest digit that any count has, so that nothing is done before it.
    first = _DIGITS - jnp.floor(jnp.log2(jnp.maximum(counts.max(), 1.0))).astype(np.int32) - 1
    start = kinds * jnp.clip(first, 0, _DIGITS), jnp.zeros((), bool), jax.tree.map(jnp.zeros_like, singles[0])
    return while_loop(going, step, start)[2]


def _of_run(pair: Pair, aim: Aim) -> Laws:
    """The law of one run on as many points as all others."""
    if not lists_outcomes(pair):
        return _padded(laws(pair, edges_of_run(pair, aim, _POINTS)))
    found = laws_of_outcomes(pair)
    if found.upper.losses.size <= _POINTS + 1:
        return _padded(found)
    nothing = Law(jnp.zeros(1), jnp.ones(1), jnp.zeros(()))
    return _padded(composed(found, Laws(nothing, nothing), edges_of_sum(found.upper, nothing, aim, _POINTS)))


def _padded(both: Laws) -> Laws:
    """Laws with points of no mass, so that all have the same number of points."""

    def filled(law: Law, size: int) -> Law:
        more = (0, size - law.losses.size)
        return Law(jnp.pad(law.losses, more, mode="edge"), jnp.pad(law.masses, more), jnp.asarray(law.infinite))

    return Laws(filled(both.lower, _POINTS + 2), filled(both.upper, _POINTS + 1))


class _Hidden(NamedTuple):
    """What underflows may hide of the probability of finite losses, none of which is above ``largest``."""

    mass: Array
    largest: Array


def _largest(pairs: list[Pair], counts: Array) -> Array:
    """No sum of finite losses is above."""
    each = [jnp.where(count > 0, count * pair.max_loss(), 0.0) for pair, count in zip(pairs, counts, strict=True)]
    largest = inflated(jnp.stack(each).sum(), 1e-12)
    return jnp.where(jnp.isnan(largest), np.inf, largest)


def _curve(law: Law, sign: float, hidden: _Hidden) -> Callable[[Array], Array]:
    """A bound of the hockey stick, below for a ``sign`` of -1.0 and above for 1.0."""
    units = (law.losses.size + 32) * EPS

    def at(epsilon: Array) -> Array:
        total = (law.masses * -jnp.expm1(jnp.minimum(epsilon - law.losses, 0.0))).sum()
        lost = jnp.where(epsilon < hidden.largest, hidden.mass, 0.0)
        return jnp.maximum(total * (1.0 + sign * units) + sign * lost, 0.0) + law.infinite * (1.0 + sign * units)

    return at


def _delta(both: Laws, epsilon: Array, known: Bounds, hidden: _Hidden) -> Bounds:
    return possible(_curve(both.lower, -1.0, hidden)(epsilon), _curve(both.upper, 1.0, hidden)(epsilon), epsilon)


def _epsilon(both: Laws, delta: Array, known: Bounds, hidden: _Hidden) -> Bounds:
    below, above = _curve(both.lower, -1.0, hidden), _curve(both.upper, 1.0, hidden)
    top = inflated(jnp.maximum(both.upper.losses.max(), 0.0), 8 * EPS)
    ceiling = jnp.minimum(known[1], top)
    certain = (above(ceiling) <= delta) | (ceiling == known[1])

    def halved(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = jnp.where(low > 0.1 * high, 0.5 * (low + high), jnp.maximum(jnp.sqrt(low * high), 1e-3 * high))
        met = jnp.stack([~(below(middle[0]) > delta), above(middle[1]) <= delta])
        return jnp.where(met, low, middle), jnp.where(met, middle, high)

    start = jnp.stack([known[0], known[0]]), jnp.stack([ceiling, ceiling])
    low, high = fori_loop(0, _HALVINGS, halved, start)
    upper = jnp.where(above(jnp.float64(0.0)) <= delta, 0.0, jnp.where(certain, high[1], known[1]))
    # An infinite loss that is likelier than delta leaves no epsilon.
    lower = jnp.where(deflated(both.lower.infinite, 16 * EPS) > delta, np.inf, low[0])
    return jnp.minimum(lower, upper), upper
