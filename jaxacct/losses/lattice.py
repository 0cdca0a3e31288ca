"""Composition on lattices for batches of queries: choosing layouts, grouping, padding, running.

Concrete queries choose the cheapest layout that promises enough tightness and run in groups of equal layout;
traced ones (inside somebody's ``jit``) use one layout that serves most.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._rounding import inflated
from jaxacct.losses.caps import capped
from jaxacct.losses.compose import compose
from jaxacct.losses.plan import Layout, layouts, levels_for, outline_for_delta, outline_for_epsilon
from jaxacct.losses.read import delta_bounds, epsilon_bounds
from jaxacct.losses.spread import Spread

__all__ = ["grouped", "lattice_bounds", "traced_lattice_bounds"]

_FINEST = 2**18
_LAYOUTS = layouts(_FINEST)
_TRACED = 2**16  # points of a level on a traced query
_MANY = 2000.0
_MERGED_POINTS = 2**20  # extra lattice points that a compilation less is worth
_WIDE = 1.01  # upper over lower from which bounds without a lattice are tried as well
_FARTHEST = 1e4  # a lattice calls losses of 650 infinite; where steps have such ones as these it would say nothing
_CHUNK_POINTS = 2**20  # lattice points worked on at once: an eighth of a GiB with all temporaries
_CAPPED = 256  # queries bounded without a lattice at once


def grouped(pairs: list[Any], counts: list[Any], xp: Any) -> tuple[tuple[Any, ...], Any]:
    """Pairs of one structure stacked along a new axis 1, so that K parts of a kind are one array operation.

    Returns:
        ``(groups, counts)``: the stacked pairs, leaves of shape ``(batch, parts of the group)``, and how often each
        runs, shape ``(batch, K)``, in the order in which the groups hold the parts.
    """
    groups: dict[Any, list[int]] = {}
    for i, pair in enumerate(pairs):
        groups.setdefault(jax.tree.structure(pair), []).append(i)
    stacked = [jax.tree.map(lambda *x: xp.stack(x, 1), *(pairs[i] for i in members)) for members in groups.values()]
    order = [i for members in groups.values() for i in members]
    return tuple(stacked), xp.stack([counts[i] for i in order], -1)


def _outline(kind: str, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    surveys = [jax.vmap(lambda pair: pair.survey())(group) for group in groups]
    points = max(survey.losses.shape[-1] for survey in surveys)
    losses, masses = [], []
    for survey in surveys:
        short = ((0, 0), (0, points - survey.losses.shape[-1]))
        losses.append(jnp.pad(survey.losses, short))
        masses.append(jnp.pad(survey.log_masses, short, constant_values=-jnp.inf))
    periods = [jax.vmap(lambda pair: pair.anchors()[1])(group) for group in groups]
    outline = outline_for_delta if kind == "delta" else outline_for_epsilon
    return outline(jnp.concatenate(losses), jnp.concatenate(masses), counts, jnp.concatenate(periods), goal)


def _query(kind: str, layout: Layout, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    outline = _outline(kind, groups, counts, goal)
    composition = compose(list(groups), counts, outline, layout)
    # No loss exceeds the sum of the largest ones: beyond it delta is 0.
    largest = jnp.concatenate([jax.vmap(lambda pair: pair.max_loss())(group) for group in groups])
    largest = inflated((counts * largest).sum(), 1e-9)
    if kind == "epsilon":
        lower, upper = epsilon_bounds(composition, goal)
        upper = jnp.where(jnp.isnan(largest), upper, jnp.minimum(upper, largest))
        # An infinite loss that is likelier than delta leaves no epsilon.
        lower = jnp.where(composition.infinite[1] > goal, jnp.inf, lower)
        return jnp.minimum(lower, upper), upper
    lower, upper = delta_bounds(composition, goal)
    return jnp.where(goal > largest, 0.0, lower), jnp.where(goal > largest, 0.0, upper)


def traced_lattice_bounds(kind: str, groups: tuple[Any, ...], counts: Any, goal: Any, most: float | None):
    """Bounds of a traced batch; ``most`` is the largest number of steps where that is known."""
    layout = Layout(_TRACED, _TRACED, 2 if most is None or most > _MANY else 1)

    known = jax.vmap(functools.partial(_query, kind, layout))(groups, counts, goal)
    return capped(kind, groups, counts, goal, known)


@functools.partial(jax.jit, static_argnums=0)
def _outline_batch(kind: str, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    return jax.vmap(functools.partial(_outline, kind))(groups, counts, goal)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _compose_batch(kind: str, layout: Layout, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    return jax.vmap(functools.partial(_query, kind, layout))(groups, counts, goal)


def lattice_bounds(
    kind: str,
    groups: tuple[Any, ...],
    counts: Any,
    goal: Any,
    spread: Spread | None = None,
    report: Callable[[int], Any] = lambda _: None,
    setting: np.ndarray | None = None,
):
    """Groups concrete queries by the layout they need, pads groups to powers of 2 (few compilations), runs them.

    ``report`` is called with the number of queries answered since its last call. Queries of the same number in
    ``setting`` are directions of one setting, of which only the worst counts.
    """
    spread = spread or Spread()

    def run(program: Any, *tree: Any) -> list[np.ndarray]:
        return [spread.gather(x) for x in jax.tree.leaves(program(*spread.place(tree)))]

    total = goal.shape[0]
    lower, upper = np.zeros(total), np.full(total, np.inf if kind == "epsilon" else 1.0)
    if total == 0:
        return lower, upper
    everything = (groups, counts, goal)
    outline = _outline_batch(kind, *spread.place(padded(everything, np.arange(total), spread)))
    outline = jax.tree.map(lambda x: spread.gather(x)[:total], outline)
    gaps = np.full((total, len(_LAYOUTS)), np.inf)
    for i, layout in enumerate(_LAYOUTS):  # no further than the cheapest layout that the last query finds good
        with np.errstate(all="ignore"):
            gap = levels_for(outline, layout, np).gap
        gaps[:, i] = np.where(np.isnan(gap), np.inf, gap)
        if (gaps <= outline.tolerance[:, None]).any(1).all():
            break
    good = gaps <= outline.tolerance[:, None]
    chosen = _merged_choice(good, np.where(good.any(1), good.argmax(1), gaps.argmin(1)), counts.shape[-1])
    hopeless = outline.cutoff > _FARTHEST
    if setting is not None:
        hopeless = np.isin(setting, setting[hopeless])
    report(int(hopeless.sum()))
    for index in np.unique(chosen[~hopeless]):
        layout = _LAYOUTS[index]
        members = np.flatnonzero((chosen == index) & ~hopeless)
        chunk = max(1, _CHUNK_POINTS // (layout.first * counts.shape[-1]))
        for begin in range(0, len(members), chunk):
            some = members[begin : begin + chunk]
            program = functools.partial(_compose_batch, kind, layout)
            low, high = run(program, *padded(everything, some, spread))
            lower[some], upper[some] = low[: len(some)], high[: len(some)]
            report(len(some))
    wide = np.flatnonzero(~(upper <= _WIDE * lower))
    for begin in range(0, wide.size, _CAPPED):
        some = wide[begin : begin + _CAPPED]
        query = jax.tree.map(lambda x: np.asarray(x)[some], (*everything, (lower, upper)))  # noqa: B023
        lower[some], upper[some] = capped(kind, *query)
    return lower, upper


def _merged_choice(good: np.ndarray, chosen: np.ndarray, parts: int) -> np.ndarray:
    """Moves small groups of queries to a costlier layout that others use anyway: each layout is a compilation.

    Layouts are sorted by cost; ``chosen`` is the first good one of each query, or the tightest there is.
    """
    chosen = chosen.copy()
    used = np.unique(chosen)
    for here in used[:-1]:
        members = chosen == here
        for other in used[used > here]:
            extra = members.sum() * parts * (_LAYOUTS[other].cost - _LAYOUTS[here].cost)
            if extra <= _MERGED_POINTS and good[members, other].all():
                chosen[members] = other
                break
    return chosen


def padded(tree: Any, members: np.ndarray, spread: Spread) -> Any:
    """The ``members`` of every leaf, repeated up to the next power of 2 (and a multiple of the devices)."""
    index = spread.padded(members, 1 << (len(members) - 1).bit_length())
    return jax.tree.map(lambda x: x[index], tree)
