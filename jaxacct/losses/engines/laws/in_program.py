"""delta and epsilon of compositions, law by law, inside a program: alone, or for what transforms leave wide.

The law of all runs is built from its binary digits, doubled and added to, in one loop that holds one composition. One
setting after the other is worked on, and those that are narrow already are left as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, filled_up, logsumexp, pick
from jaxacct._numerics.arrays import program as jnp
from jaxacct._numerics.least import first_least
from jaxacct._numerics.manual_axes import cond, fori_loop, while_loop
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._numerics.trivial_bounds import possible
from jaxacct._types import PyTree
from jaxacct.losses.engines.inversion.composed_transform import times
from jaxacct.losses.engines.inversion.saddle_point import tilt_bound
from jaxacct.losses.engines.laws.aim import Aim
from jaxacct.losses.engines.laws.cells import Law, Laws, laws, laws_of_outcomes
from jaxacct.losses.engines.laws.composer import ROUGH_POINTS, Rough, edges_of, rough_of_run, rough_of_sum, sketched
from jaxacct.losses.engines.laws.sums import composed_in_program
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.table import lists_outcomes

_CELLS = 320  # of a law
_POINTS = _CELLS + 2
_PASSES = 3  # each aims better
_TIGHT = 2e-3  # relative width that asks for no better aim
_AIMED = 0.1  # relative distance from the middle of the bounds of an aim that is good enough
_TILTS = np.geomspace(1e-3, 1e3, 48)  # of the first aim, in units of 1 / the size of the sum of all losses
_DIGITS = 53  # of counts
_HALVINGS = 58  # two of them ask at the ends
_UNDERFLOW, _FLUSHED = 1e-300, 1e-301  # of all sums and products together: once, and for each run

Bounds = tuple[Array, Array]


def narrowed_by_laws(kind: str, groups: tuple[Pair, ...], counts: Array, goal: Array, known: Bounds) -> Bounds:
    """``known``, lower and upper bounds of shape ``(B,)``, narrowed where they are wide.

    Leaves of groups have shape ``(B, parts of the group)``, ``counts`` ``(B, K)``, in the order of the groups.
    """

    def one(row: tuple[tuple[Pair, ...], list[Rough], Array, Array, Bounds]) -> Bounds:
        groups, roughs, counts, goal, known = row
        roughs = _as_of_sums(roughs)
        spread, total = _spread(roughs, counts), counts.sum()
        hidden = _Hidden(_UNDERFLOW + _FLUSHED * total, _largest(roughs.most, counts))

        guess, tilt = _guess(kind, roughs, counts, goal, spread)
        place = (lambda x: x) if kind == "epsilon" else (lambda x: -jnp.log(x))  # in proportion to the laws' own

        def narrower(state: tuple[Array, Array, Array, Bounds]) -> tuple[Array, Array, Array, Bounds]:
            done, _, between, (lower, upper) = state
            at = (between, goal) if kind == "epsilon" else (goal, between)
            aim = Aim.at(*at, total, spread)
            law = _law(groups, roughs, counts, aim._replace(theta=jnp.maximum(aim.theta, tilt)))
            low, high = (_delta if kind == "delta" else _epsilon)(law, goal, (lower, upper), hidden)
            lower, upper = jnp.fmax(lower, low), jnp.fmin(upper, high)
            ceiling = jnp.where(upper < np.inf, upper, jnp.maximum(10.0 * lower, spread))
            better = jnp.where(lower > 0, jnp.sqrt(lower) * jnp.sqrt(ceiling), ceiling)
            return done + 1, between, better, (lower, upper)

        def wide(state: tuple[Array, Array, Array, Bounds]) -> Array:
            done, before, between, (lower, upper) = state
            before, between = (place(x) for x in (before, between))
            aimed = (done > 0) & (jnp.abs(before - between) <= _AIMED * between)
            return counted & (done < _PASSES) & ~aimed & ~(lower >= (1.0 - _TIGHT) * upper)

        # Other counts have no digits, and would be no runs at all; NaN is one of them.
        whole = (counts >= 0.0) & (counts == jnp.floor(counts)) & (counts <= 2.0**_DIGITS)
        counted = whole.all() & (total >= 1.0)
        return while_loop(wide, narrower, (jnp.int32(0), guess, guess, known))[3]

    return jax.lax.map(one, (groups, [rough_of_run(group) for group in groups], counts, goal, known))


def _as_of_sums(roughs: list[Rough]) -> Rough:
    """The rough laws of all parts, one after the other, on as many points as that of a sum."""

    def sized(rough: Rough) -> Rough:
        losses, masses = sketched(rough.losses, jnp.exp(rough.log_masses), ROUGH_POINTS - 2)
        losses = jnp.concatenate([rough.losses[:1], losses, rough.losses[-1:]])  # an atom at an end stays where it is
        return rough._replace(losses=losses, log_masses=jnp.log(jnp.pad(masses, 1)))

    return jax.tree.map(lambda *x: jnp.concatenate(x), *map(jax.vmap(sized), roughs))


def _spread(roughs: Rough, counts: Array) -> Array:
    """About the size of the sum of all losses."""
    squares = (jnp.exp(roughs.log_masses) * jnp.clip(roughs.losses, -50.0, 50.0) ** 2).sum(-1)
    return jnp.sqrt((counts * squares).sum())


def _guess(kind: str, roughs: Rough, counts: Array, goal: Array, spread: Array) -> tuple[Array, Array]:
    """About delta or epsilon: the best of Chernoff's bounds; and the tilt that has it."""
    tilts = _TILTS / spread
    moments = logsumexp(roughs.log_masses + tilts[:, None, None] * roughs.losses)
    found = tilt_bound(kind, tilts, times(counts, moments).sum(-1), goal)
    tilt, found = pick(tilts, first_least(found)), found.min()
    known = found < np.inf
    found = jnp.exp(jnp.minimum(found, 0.0)) if kind == "delta" else found
    return jnp.where(known, found, spread), jnp.where(known, tilt, 0.0)


def _law(groups: tuple[Pair, ...], roughs: Rough, counts: Array, aim: Aim) -> Law:
    """The law of all runs, along an axis in front: from below, and from above.

    One loop makes the law of a run of each part, and then composes all of them, so that a program holds one of each.
    """
    parts, digits = counts.size, 2.0 ** np.arange(_DIGITS, -1, -1)[:, None]
    kinds = parts + 1
    odd = jax.lax.rem(jnp.floor(counts / digits), np.full((digits.size, parts), 2.0)) == 1.0  # of each digit and part
    first = kinds * (counts.max() < digits).sum(dtype=np.int32)  # nothing is done before the largest digit of all

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        index, begun, law, singles = state
        making, place, phase = index < 0, jax.lax.div(index, np.int32(kinds)), jax.lax.rem(index, np.int32(kinds))
        part = jnp.where(making, index + parts, jnp.maximum(phase - 1, 0))
        single, rough = _at((singles, roughs), part)
        other = jnp.where(phase == 0, law, single)
        wanted = jnp.where(phase == 0, begun, odd[place, part])
        sides = _unpacked(law), _unpacked(other)
        summed = rough_of_sum(*(Law(*(x[1] for x in side)) for side in sides))
        edges = edges_of(jax.tree.map(lambda a, b: jnp.where(making, a, b), rough, summed), aim, _CELLS)

        def joined() -> Array:
            return _packed(composed_in_program(*sides, edges))

        def grown() -> Array:
            return cond(wanted & begun, joined, lambda: jnp.where(wanted, other, law))

        found = cond(making, lambda: _of_run(groups, part, edges, single), grown)
        here = (jnp.arange(parts) == part) & making
        singles = jnp.where(here[:, None, None], found, singles)
        after = jnp.where(index == -1, first, index + 1)
        return after, begun | (wanted & ~making), jnp.where(making, law, found), singles

    none = jnp.zeros((2, 2 * _POINTS + 1))
    start = jnp.int32(-parts), jnp.zeros((), bool), none, jnp.zeros((parts, *none.shape))
    return _unpacked(while_loop(lambda state: state[0] < kinds * digits.size, step, start)[2])


def _of_run(groups: tuple[Pair, ...], part: Array, edges: Array, found: Array) -> Array:
    """The law of one run of a part on as many points as all others; a program holds that of each group once."""
    first = 0
    for group in groups:
        size = jax.tree.leaves(group)[0].shape[0]
        pair = _at(group, jnp.clip(part - first, 0, size - 1))
        made, before = lambda: _packed(_laws_of_run(pair, edges)), lambda: found  # noqa: B023
        found = made() if len(groups) == 1 else cond(part >= first, made, before)
        first += size
    return found


def _laws_of_run(pair: Pair, edges: Array) -> Laws:
    if not lists_outcomes(pair):
        return laws(pair, edges)
    found, nothing = laws_of_outcomes(pair), Law(jnp.zeros(1), jnp.ones(1), jnp.zeros(()))
    if found.upper.losses.size <= _POINTS:
        return found
    many, none = (jax.tree.map(lambda *x: jnp.stack(x), *both) for both in (found, (nothing, nothing)))
    return composed_in_program(many, none, edges)


def _at(tree: PyTree, index: Array) -> PyTree:
    return jax.tree.map(lambda x: x[0] if x.shape[0] == 1 else x[index], tree)


def _packed(both: Laws) -> Array:
    """Laws from below and from above as one array, of as many points each: a loop carries one, and few operations."""

    def row(law: Law) -> Array:
        losses, masses = (_set_apart(x, y) for x, y in ((law.losses, law.losses), (law.masses, 0.0 * law.masses)))
        return jnp.concatenate([losses, masses, jnp.reshape(law.infinite, 1)])

    return jnp.stack([row(law) for law in both])


def _set_apart(values: Array, between: Array) -> Array:
    """So many points, few outcomes as far apart as they can be, so that a sketch keeps each."""
    if (each := _POINTS // values.size) > 1:
        values = filled_up(values[:, None], each, between[:, None]).ravel()
    return filled_up(values, _POINTS, between[-1:])


def _unpacked(packed: Array) -> Law:
    """Both laws, along an axis in front."""
    return Law(packed[:, :_POINTS], packed[:, _POINTS:-1], packed[:, -1])


class _Hidden(NamedTuple):
    """What underflows may hide of the probability of finite losses, none of which is above ``largest``."""

    mass: Array
    largest: Array


def _largest(most: Array, counts: Array) -> Array:
    """No sum of finite losses is above; ``most`` is the largest loss of each part."""
    largest = inflated(jnp.where(counts > 0, counts * most, 0.0).sum(), 1e-12)
    return jnp.where(jnp.isnan(largest), np.inf, largest)


def _curves(law: Law, hidden: _Hidden, epsilon: Array) -> Array:
    """Bounds of the hockey stick, from below and from above, at an epsilon of each; shape ``(2,)``."""
    sign = np.array([-1.0, 1.0])
    factor = 1.0 + sign * ((_POINTS + 32) * EPS)
    total = (law.masses * -jnp.expm1(jnp.minimum(epsilon[:, None] - law.losses, 0.0))).sum(-1)
    lost = jnp.where(epsilon < hidden.largest, hidden.mass, 0.0)
    return jnp.maximum(total * factor + sign * lost, 0.0) + law.infinite * factor


def _delta(law: Law, epsilon: Array, known: Bounds, hidden: _Hidden) -> Bounds:
    lower, upper = _curves(law, hidden, jnp.stack([epsilon, epsilon]))
    return possible(lower, upper, epsilon)


def _epsilon(law: Law, delta: Array, known: Bounds, hidden: _Hidden) -> Bounds:
    top = jnp.minimum(known[1], inflated(jnp.maximum(law.losses[1].max(), 0.0), 8 * EPS))

    def halved(turn: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        """Ends move only to where a curve was seen to be above delta, or at most delta."""
        low, high = ends
        below = jnp.minimum(high, top)
        middle = jnp.where(low > 0.1 * below, 0.5 * (low + below), jnp.maximum(jnp.sqrt(low * below), 1e-3 * below))
        middle = jnp.where(turn == 0, 0.0, jnp.where(turn == 1, top, middle))
        value = _curves(law, hidden, middle)
        low = jnp.where(value > delta, jnp.maximum(low, middle), low)
        return low, jnp.where(value <= delta, jnp.minimum(high, middle), high)

    low, high = fori_loop(0, _HALVINGS, halved, tuple(jnp.stack([x, x]) for x in known))
    # An infinite loss that is likelier than delta leaves no epsilon.
    lower = jnp.where(deflated(law.infinite[0], 16 * EPS) > delta, np.inf, low[0])
    return jnp.minimum(lower, high[1]), high[1]
