"""The front desk: delta and epsilon of a mechanism, as certified bounds, over arrays of anything.

How a query runs: a rough survey of the loss chooses tilt, lattice and levels (:mod:`jaxacct.losses.plan`), the
loss is discretised from above and from below, composed, and read (:mod:`jaxacct.losses.compose`,
:mod:`jaxacct.losses.read`). Concrete queries choose the cheapest layout that promises enough tightness, and are
run in groups of equal layout; traced ones (inside somebody's ``jit``) use one layout that serves most.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.losses.compose import compose
from jaxacct.losses.plan import Layout, layouts, levels_for, outline_for_delta, outline_for_epsilon
from jaxacct.losses.read import delta_bounds, epsilon_bounds
from jaxacct.losses.single import single_delta, single_epsilon
from jaxacct.mechanisms._dominating import directions, rarely_sampled

__all__ = ["Bounds", "delta", "epsilon"]


class Bounds(NamedTuple):
    """A rigorous enclosure: ``lower <= truth <= upper``. ``upper`` is the guarantee, ``lower`` says how tight."""

    lower: Any
    upper: Any


_FINEST = 2**18
_LAYOUTS = layouts(_FINEST)
_TRACED = {False: Layout(2**16, 2**16, 1), True: Layout(2**16, 2**16, 2)}  # by whether steps may be many
_MANY = 2000.0
_WIDE = 1.1  # upper over lower
_MERGED_POINTS = 2**18  # extra lattice points that a compilation less is worth
_CHUNK_POINTS = 2**22  # lattice points worked on at once: half a GiB with all temporaries


def delta(mechanism: Any, epsilon: ArrayLike, *, steps: ArrayLike = 1, relation: str = "add_or_remove") -> Bounds:
    """Smallest delta for which ``steps`` runs of ``mechanism`` are (epsilon, delta)-DP, enclosed.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape.
        epsilon: any real number, any shape.
        steps: whole number >= 1 of runs, fixed in advance, any shape. All shapes broadcast.
        relation: ``"add_or_remove"`` (the worse of the two directions, composed first), ``"add"``,
            ``"remove"`` or ``"replace"``.

    Returns:
        ``Bounds(lower, upper)`` of the broadcast shape: float64 NumPy arrays or scalars; inside a ``jit``, JAX
        arrays of the surrounding program's precision, rounded outwards.

    Raises:
        ValueError: a bad concrete value (named), or a relation that the mechanism has no analysis for. Bad
            traced values give ``upper`` 1.
    """
    _validate.finite(epsilon=epsilon)
    return _answer("delta", mechanism, epsilon, steps, relation)


def epsilon(mechanism: Any, delta: ArrayLike, *, steps: ArrayLike = 1, relation: str = "add_or_remove") -> Bounds:
    """Smallest epsilon >= 0 for which ``steps`` runs of ``mechanism`` are (epsilon, delta)-DP, enclosed.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape.
        delta: strictly between 0 and 1, any shape.
        steps: whole number >= 1 of runs, fixed in advance, any shape. All shapes broadcast.
        relation: see :func:`delta`.

    Returns:
        ``Bounds(lower, upper)``, see :func:`delta`; ``upper`` is inf where no finite epsilon is certified.

    Raises:
        ValueError: a bad concrete value (named), or a relation that the mechanism has no analysis for. Bad
            traced values give ``upper`` inf.
    """
    _validate.probability(delta=delta)
    return _answer("epsilon", mechanism, delta, steps, relation)


def _answer(kind: str, mechanism: Any, target: ArrayLike, steps: ArrayLike, relation: str) -> Bounds:
    _validate.count(steps=steps)
    traced = _validate.is_traced((mechanism, target, steps))
    wide = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    with jax.enable_x64(True):
        xp = jnp if traced else np
        sides = directions(mechanism, relation, steps)
        goal = xp.asarray(target, np.float64)
        # Every leaf of every part, the steps and the target broadcast to one flat batch; the directions follow
        # one another in it, so that they share compiled programs.
        leaves = [*jax.tree.leaves(sides), goal]
        shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in leaves))
        flat = lambda x: xp.broadcast_to(xp.asarray(x, np.float64), shape).reshape(-1)  # noqa: E731
        batch = jax.tree.map(lambda *x: xp.concatenate([flat(leaf) for leaf in x]), *sides)
        pairs, counts = [pair for pair, _ in batch], xp.stack([count for _, count in batch], -1)
        # The largest number of steps, where it is known while tracing.
        numbers = [count for parts in sides for _, count in parts]
        most = None if _validate.is_traced(numbers) else max(float(np.max(np.asarray(count))) for count in numbers)
        lower, upper = _run(kind, _grouped(pairs, xp), counts, xp.tile(flat(goal), len(sides)), traced, most)
        lower, upper = (x.reshape(len(sides), *shape).max(0) for x in (lower, upper))
        lower, upper = _with_rare_sampling(kind, lower, upper, goal, mechanism, steps, xp)
        if not traced:
            _warn_if_wide(kind, np.asarray(lower), np.asarray(upper))
            return Bounds(np.asarray(lower)[()], np.asarray(upper)[()])
        if wide:
            return Bounds(lower, upper)
        return Bounds(*_outwards(lower, upper))


def _warn_if_wide(kind: str, lower: np.ndarray, upper: np.ndarray) -> None:
    """Says so where a bound is too wide to be of use, unless it is next to nothing anyway."""
    wide = (upper > _WIDE * lower) & (upper > (1e-6 if kind == "epsilon" else 1e-50))
    if wide.any():
        first = int(np.argmax(wide))
        warnings.warn(
            f"{int(wide.sum())} of {wide.size} bounds of {kind} are wide (the first: {lower.flat[first]:.3g} to "
            f"{upper.flat[first]:.3g}); they are sound. Larger sigma or rate, fewer steps or larger delta narrow them.",
            RuntimeWarning,
            stacklevel=4,
        )


def _with_rare_sampling(kind: str, lower: Any, upper: Any, target: Any, mechanism: Any, steps: Any, xp: Any):
    """Corrects bounds of mechanisms whose rates are too small for a lattice; see ``rarely_sampled``."""
    rare, total = rarely_sampled(mechanism, steps)
    if kind == "epsilon":
        return xp.where(rare, 0.0, lower), xp.where(total <= target, 0.0, upper)
    floor = -xp.expm1(xp.minimum(target, 0.0))
    return xp.where(rare, floor * (1.0 - 2.0**-50), lower), xp.minimum(upper, floor + total)


def _outwards(lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float64 bounds as float32 ones that still enclose."""
    low, high = lower.astype(jnp.float32), upper.astype(jnp.float32)
    low = jnp.where(low.astype(jnp.float64) > lower, jnp.nextafter(low, jnp.float32(-jnp.inf)), low)
    high = jnp.where(high.astype(jnp.float64) < upper, jnp.nextafter(high, jnp.float32(jnp.inf)), high)
    return low, high


def _grouped(pairs: list[Any], xp: Any) -> tuple[Any, ...]:
    """Pairs of one structure stacked along a new axis 1, so that K parts of a kind are one array operation."""
    groups: dict[Any, list[Any]] = {}
    for pair in pairs:
        groups.setdefault(jax.tree.structure(pair), []).append(pair)
    return tuple(jax.tree.map(lambda *x: xp.stack(x, 1), *group) for group in groups.values())


def _outline(kind: str, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    surveys = [jax.vmap(lambda pair: pair.survey())(group) for group in groups]
    points = max(survey.losses.shape[-1] for survey in surveys)
    losses, masses = [], []
    for survey in surveys:
        short = ((0, 0), (0, points - survey.losses.shape[-1]))
        losses.append(jnp.pad(survey.losses, short))
        masses.append(jnp.pad(survey.log_masses, short, constant_values=-jnp.inf))
    outline = outline_for_delta if kind == "delta" else outline_for_epsilon
    return outline(jnp.concatenate(losses), jnp.concatenate(masses), counts, goal)


def _query(kind: str, layout: Layout, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    outline = _outline(kind, groups, counts, goal)
    composition = compose(list(groups), counts, outline, layout)
    # No loss exceeds the sum of the largest ones: beyond it delta is 0.
    largest = jnp.concatenate([jax.vmap(lambda pair: pair.max_loss())(group) for group in groups])
    largest = (counts * largest).sum() * (1.0 + 1e-9)
    if kind == "epsilon":
        lower, upper = epsilon_bounds(composition, goal)
        upper = jnp.where(jnp.isnan(largest), upper, jnp.minimum(upper, largest))
        return jnp.minimum(lower, upper), upper
    lower, upper = delta_bounds(composition, goal)
    return jnp.where(goal > largest, 0.0, lower), jnp.where(goal > largest, 0.0, upper)


def _run(kind: str, groups: tuple[Any, ...], counts: Any, goal: Any, traced: bool, most: float | None):
    """Bounds of a flat batch. One run of one pair needs no lattice; merged Gaussians always are one run."""
    if traced:
        if most == 1.0 and counts.shape[-1] == 1:
            return _single_batch(kind, groups, goal)
        many = most is None or most > _MANY
        return jax.vmap(functools.partial(_query, kind, _TRACED[many]))(groups, counts, goal)
    if counts.shape[-1] > 1:
        return _run_lattices(kind, groups, counts, goal)
    single = np.asarray(counts)[:, 0] == 1.0
    lower, upper = np.empty(single.size), np.empty(single.size)
    for members, lattice in ((np.flatnonzero(single), False), (np.flatnonzero(~single), True)):
        if members.size:
            if lattice:
                some = jax.tree.map(lambda x: x[members], (groups, counts, goal))  # noqa: B023
                low, high = _run_lattices(kind, *some)
            else:
                some_groups, some_goal = _padded((groups, goal), members)
                low, high = _single_batch(kind, some_groups, some_goal)
            lower[members], upper[members] = np.asarray(low)[: members.size], np.asarray(high)[: members.size]
    return lower, upper


@functools.partial(jax.jit, static_argnums=0)
def _single_batch(kind: str, groups: tuple[Any, ...], goal: jax.Array):
    read = single_delta if kind == "delta" else single_epsilon
    (group,) = groups
    return jax.vmap(lambda pair, goal: read(jax.tree.map(lambda x: x[0], pair), goal))(group, goal)


@functools.partial(jax.jit, static_argnums=0)
def _outline_batch(kind: str, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    return jax.vmap(functools.partial(_outline, kind))(groups, counts, goal)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _compose_batch(kind: str, layout: Layout, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    return jax.vmap(functools.partial(_query, kind, layout))(groups, counts, goal)


def _run_lattices(kind: str, groups: tuple[Any, ...], counts: jax.Array, goal: jax.Array):
    """Groups queries by the layout they need, pads groups to powers of 2 (few compilations), runs them."""
    total = goal.shape[0]
    lower, upper = np.zeros(total), np.full(total, np.inf if kind == "epsilon" else 1.0)
    if total == 0:
        return lower, upper
    everything = (groups, counts, goal)
    padded = _padded(everything, np.arange(total))
    outline = jax.tree.map(lambda x: np.asarray(x)[:total], _outline_batch(kind, *padded))
    with np.errstate(all="ignore"):
        gaps = np.stack([levels_for(outline, layout, np).gap for layout in _LAYOUTS], -1)
    gaps = np.where(np.isnan(gaps), np.inf, gaps)
    good = gaps <= outline.tolerance[:, None]
    chosen = _merged_choice(good, np.where(good.any(1), good.argmax(1), gaps.argmin(1)), counts.shape[-1])
    for index in np.unique(chosen):
        layout = _LAYOUTS[index]
        members = np.flatnonzero(chosen == index)
        chunk = max(1, _CHUNK_POINTS // (layout.first * counts.shape[-1]))
        for begin in range(0, len(members), chunk):
            some = members[begin : begin + chunk]
            low, high = _compose_batch(kind, layout, *_padded(everything, some))
            lower[some], upper[some] = np.asarray(low)[: len(some)], np.asarray(high)[: len(some)]
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


def _padded(tree: Any, members: np.ndarray) -> Any:
    """The ``members`` of every leaf, repeated up to the next power of 2."""
    index = np.resize(members, 1 << (len(members) - 1).bit_length())
    return jax.tree.map(lambda x: x[index], tree)
