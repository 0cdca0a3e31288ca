"""Which engine answers a batch of queries: closed tails for a single run, lattices for compositions."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from jaxacct.losses.lattice import grouped, lattice_bounds, padded, traced_lattice_bounds
from jaxacct.losses.single import single_delta, single_epsilon

__all__ = ["bounds"]


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
    if xp is not np:
        if most == 1.0 and len(pairs) == 1:
            return _single_batch(kind, groups, goal)
        return traced_lattice_bounds(kind, groups, stacked, goal, most)
    if len(pairs) > 1:
        return lattice_bounds(kind, groups, stacked, goal)
    single = stacked[:, 0] == 1.0
    lower, upper = np.empty(single.size), np.empty(single.size)
    for members, lattice in ((np.flatnonzero(single), False), (np.flatnonzero(~single), True)):
        if members.size:
            if lattice:
                some = jax.tree.map(lambda x: x[members], (groups, stacked, goal))  # noqa: B023
                low, high = lattice_bounds(kind, *some)
            else:
                low, high = _single_batch(kind, *padded((groups, goal), members))
            lower[members], upper[members] = np.asarray(low)[: members.size], np.asarray(high)[: members.size]
    return lower, upper


@functools.partial(jax.jit, static_argnums=0)
def _single_batch(kind: str, groups: tuple[Any, ...], goal: jax.Array):
    read = single_delta if kind == "delta" else single_epsilon
    (group,) = groups
    return jax.vmap(lambda pair, goal: read(jax.tree.map(lambda x: x[0], pair), goal))(group, goal)
