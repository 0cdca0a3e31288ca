"""Which engine answers a batch of queries.

One run of one pair is read off its tails (:mod:`jaxacct.losses.single`). Compositions of Gaussians, sampled or not,
go to the contour (:mod:`jaxacct.losses.contour`): its bounds are 1e-9 wide where it suits the query, and say so
where it does not. What is left, and everything else, goes to the lattices (:mod:`jaxacct.losses.lattice`). Where two
engines answered, both enclosures hold, so their intersection does.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct.losses.contour import Size, contour_bounds, plan, smooth_delta
from jaxacct.losses.lattice import grouped, lattice_bounds, traced_lattice_bounds
from jaxacct.losses.single import single_delta, single_epsilon, single_value
from jaxacct.mechanisms._gaussian_pair import GaussianPair

__all__ = ["bounds", "smooth_deltas"]

_SIZES = (Size(128, 64), Size(512, 1024))  # of the contour, tried in turn
_BATCHES = (2, 16, 128, 1024)  # to which batches are padded: every size is a compilation
_WORK = 2**25  # points times square roots of nodes worked on at once: 256 MiB a table
_TRACED = Size(256, 256)
_SMOOTH = Size(512, 1024)
_TIGHT = {"delta": 2e-4, "epsilon": 2e-5}  # relative width that asks for no second engine


def bounds(kind: str, pairs: list[Any], counts: list[Any], goal: Any, most: float | None, xp: Any) -> tuple[Any, Any]:
    """``(lower, upper)`` of delta or epsilon for a flat batch.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        pairs: the K pairs of a composition, leaves of shape ``(batch,)``.
        counts: how often each runs, K arrays of shape ``(batch,)``.
        goal: shape ``(batch,)``.
        most: the largest number of steps, where it is known while tracing.
        xp: NumPy where everything is concrete, jax.numpy inside a trace.
    """
    groups, stacked = grouped(pairs, counts, xp)
    contour = all(isinstance(pair, GaussianPair) for pair in pairs)
    if xp is not np:
        return _traced(kind, most, contour, groups, stacked, goal)
    lower, upper = np.zeros(goal.size), np.full(goal.size, np.inf if kind == "epsilon" else 1.0)
    open_ = np.arange(goal.size)
    if len(pairs) == 1:
        single = stacked[:, 0] == 1.0
        _take(lower, upper, open_[single], *_padded_batch(_single_batch, (kind,), (groups, goal), open_[single]))
        open_ = open_[~single]
    for size in _SIZES if contour else ():
        query = (groups[0], stacked, goal)
        _take(lower, upper, open_, *_padded_batch(_contour_batch, (kind, size), query, open_))
        open_ = open_[~_tight(kind, lower[open_], upper[open_])]
    if open_.size:
        some = jax.tree.map(lambda x: x[open_], (groups, stacked, goal))
        _take(lower, upper, open_, *lattice_bounds(kind, *some))
    return lower, upper


def _tight(kind: str, lower: Any, upper: Any) -> Any:
    return upper - lower <= _TIGHT[kind] * upper


def _take(lower: np.ndarray, upper: np.ndarray, members: np.ndarray, low: Any, high: Any) -> None:
    lower[members] = np.maximum(lower[members], low)
    upper[members] = np.minimum(upper[members], high)


def _padded_batch(run: Any, static: tuple[Any, ...], query: Any, members: np.ndarray) -> tuple[Any, Any]:
    """Runs ``members`` of a batch in chunks of few different sizes."""
    if not members.size:
        return np.zeros(0), np.zeros(0)
    parts = np.shape(query[1])[1] if np.ndim(query[1]) > 1 else 1
    each = parts * static[1].points * static[1].nodes ** 0.5 if len(static) > 1 else 1
    chunk = max([size for size in _BATCHES if size * each <= _WORK], default=_BATCHES[0])
    lows, highs = [], []
    for begin in range(0, members.size, chunk):
        some = members[begin : begin + chunk]
        size = next(size for size in _BATCHES if size >= some.size)
        low, high = run(*static, *jax.tree.map(lambda x: x[np.resize(some, size)], query))  # noqa: B023
        lows.append(np.asarray(low)[: some.size])
        highs.append(np.asarray(high)[: some.size])
    return np.concatenate(lows), np.concatenate(highs)


@functools.partial(jax.jit, static_argnums=0)
def _single_batch(kind: str, groups: tuple[Any, ...], goal: jax.Array):
    read = single_delta if kind == "delta" else single_epsilon
    (group,) = groups
    return jax.vmap(lambda pair, goal: read(jax.tree.map(lambda x: x[0], pair), goal))(group, goal)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _contour_batch(kind: str, size: Size, pairs: Any, counts: jax.Array, goal: jax.Array):
    return jax.vmap(functools.partial(contour_bounds, kind, size))(pairs, counts, goal)


def _traced(kind: str, most: float | None, contour: bool, groups: tuple[Any, ...], counts: Any, goal: Any):
    """Bounds of a batch inside somebody's trace."""
    if most == 1.0 and counts.shape[-1] == 1:
        return _single_batch(kind, groups, goal)
    if not contour:
        return traced_lattice_bounds(kind, groups, counts, goal, most)
    lower, upper = _contour_batch(kind, _TRACED, groups[0], counts, goal)

    def both() -> tuple[Any, Any]:
        low, high = traced_lattice_bounds(kind, groups, counts, goal, most)
        return jnp.maximum(lower, low), jnp.minimum(upper, high)

    return jax.lax.cond(_tight(kind, lower, upper).all(), lambda: (lower, upper), both)


def smooth_deltas(pairs: list[Any], counts: list[Any], epsilon: Any, most: float | None) -> tuple[Any, Any]:
    """delta(epsilon) of a flat batch without bounds, to be differentiated in everything.

    The contour integral converges spectrally, and so do its derivatives; the contour, its points and frequencies
    may be held fixed, because the integral does not depend on them.

    Returns:
        The values, and whether their derivatives are to be trusted.

    Raises:
        NotImplementedError: a composition of other pairs than Gaussian ones.
    """
    (group, *others), stacked = grouped(pairs, counts, jnp)
    if most == 1.0 and len(pairs) == 1:
        value = jax.vmap(lambda pair, at: single_value(jax.tree.map(lambda x: x[0], pair), at))(group, epsilon)
        return value, jnp.ones(value.shape, bool)
    if others or not isinstance(pairs[0], GaussianPair):
        raise NotImplementedError(
            "compositions have derivatives for Gaussian and PoissonSampled(Gaussian) mechanisms only; "
            "take finite differences of the bounds, or differentiate one run"
        )

    def one(pairs: Any, counts: Any, at: Any) -> Any:
        return smooth_delta(plan("delta", pairs, counts, at), _SMOOTH, pairs, counts, at)

    return jax.vmap(one)(group, stacked, epsilon)
