"""The least curve above a family and the greatest below it: suprema and infima in the Blackwell order."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct import _validate
from jaxacct._rounding import EPS
from jaxacct.losses import conversions, families
from jaxacct.losses.envelope import infimum_excess, lower_hull
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.profile import PrivacyProfile
from jaxacct.losses.tradeoff import TradeOff, arrays

__all__ = ["infimum", "supremum"]


def supremum(
    family: Any, *, bound: str | None = None, relation: str = "add_or_remove", grid: LossGrid | None = None
) -> Any:
    """The least curve that dominates every member: the pointwise maximum of hockey sticks (Proposition 11).

    On a grid the maximum's new atoms, at crossings inside a cell, are rounded to the side of ``bound``. A family of
    trade-off curves is exact up to rounding: the lower convex envelope of all, by its vertices; about 1e-15 a vertex
    is added at both infinities, so profiles keep deep tails better.

    Args:
        family: a sequence of mechanisms, PLDs or curves of one bound, or one batched curve or mechanism, whose first
            axis is the family (the fast way: 1,000 curves of 8,192 points take milliseconds).
        bound: for a family of mechanisms only, ``"upper"`` without it. Curves bring theirs.
        relation: for mechanisms.
        grid: without it the curves' own, or one chosen for the mechanisms.

    Returns:
        A ``PrivacyProfile``; a ``TradeOff`` where every member is one and no grid is given.

    Raises:
        ValueError: an empty family, grids or bounds that do not match.
    """
    members = families.members_of(family)
    side = _side(members, bound)
    with jax.enable_x64(True):
        if grid is None and all(isinstance(m, TradeOff) for m in members):
            rows = [arrays(m) for m in members]
            size = max(w.shape[-1] for w, _ in rows)
            pad = lambda x: jnp.pad(x, (*((0, 0),) * (x.ndim - 1), (0, size - x.shape[-1])))  # noqa: E731
            batch = len(rows) == 1 and rows[0][0].ndim > 1
            stacked = [xs[0] if batch else jnp.stack([pad(x) for x in xs]) for xs in zip(*rows, strict=True)]
            widths, drops = _hull(*stacked, leakier=side == "upper")
            return conversions.concrete(TradeOff(widths, drops, "lower" if side == "upper" else "upper"))
        only = members[0]
        alone = side == "upper" and len(members) == 1 and isinstance(only, PrivacyProfile) and np.ndim(only.excess) > 1
        if alone and grid in (None, only.grid):
            # A maximum is exact and keeps NaN, so what float64() makes of a bad curve can wait.
            highest = PrivacyProfile(_largest(only.excess), only.grid, side).float64()
            return PrivacyProfile(conversions.concrete(highest), only.grid, side)
        stacked, grid = _stacked(members, side, relation, grid)
        return PrivacyProfile(conversions.concrete(conversions.supremum_excess(stacked, side)), grid, side)


def _largest(excess: Any) -> Any:
    """Maximum over the first axis; NumPy's reads host memory at full speed and copies nothing."""
    if _validate.is_traced(excess) or any(d.platform != "cpu" for d in getattr(excess, "devices", set)()):
        return jnp.max(excess, 0)
    return np.maximum.reduce(np.asarray(excess), axis=0)


def infimum(
    family: Any, *, bound: str | None = None, relation: str = "add_or_remove", grid: LossGrid | None = None
) -> PrivacyProfile:
    """The greatest curve that every member dominates: the convex envelope of the pointwise minimum (Proposition 11).

    Args:
        family: see :func:`supremum`.
        bound: see :func:`supremum`.
        relation: for mechanisms.
        grid: see :func:`supremum`; needed where every member is a ``TradeOff``.

    Raises:
        ValueError: see :func:`supremum`.
    """
    members = families.members_of(family)
    side = _side(members, bound)
    with jax.enable_x64(True):
        stacked, grid = _stacked(members, side, relation, grid)
        return PrivacyProfile(conversions.concrete(infimum_excess(stacked, jnp.asarray(grid.losses), side)), grid, side)


def _side(members: list[Any], bound: str | None) -> str:
    sides = {families.bound_of(m) for m in members} - {None}
    if len(sides) > 1:
        raise ValueError("bounds must agree, got upper and lower ones in one family")
    if bound is None:
        return str(sides.pop()) if sides else "upper"
    _validate.one_of(("upper", "lower"), bound=bound)
    if sides and bound not in sides:
        raise ValueError(f"bound must be that of the curves, {sides.pop()!r}, got {bound!r}")
    return bound


def _stacked(members: list[Any], side: str, relation: str, grid: LossGrid | None) -> tuple[Array, LossGrid]:
    """Excess of every member as a bound from ``side``, shape ``(members, ..., size)``, on one grid."""
    grid = families.common_grid(members, relation, grid)
    found = []
    for member in members:
        if isinstance(member, PrivacyProfile):
            excess = member.float64()
            found.append(excess if member.grid == grid else conversions.moved(excess, member.grid, grid, side))
        elif isinstance(member, TradeOff):
            found.append(member.profile(grid).float64())
        elif families.is_curve(member):
            found.append(conversions.pld_excess(member, grid))
        else:
            found.append(conversions.mechanism_excess(member, grid, side, relation))
    if len(found) == 1:
        return jnp.asarray(found[0] if np.ndim(found[0]) > 1 else found[0][None]), grid
    shape = np.broadcast_shapes(*(x.shape for x in found))
    return jnp.stack([jnp.broadcast_to(x, shape) for x in found]), grid


@functools.partial(jax.jit, static_argnames="leakier")
def _hull(widths: Array, drops: Array, leakier: bool) -> tuple[Array, Array]:
    """Segments of the lower convex envelope of curves ``(members, ..., n)``: hull of all vertices."""
    members, n = widths.shape[0], widths.shape[-1]
    batch = widths.shape[1:-1]
    error = 8.0 * (n + 4) * EPS
    flat = lambda x: jnp.moveaxis(x, 0, -2).reshape(-1, members, n)  # noqa: E731

    def one(w: Array, d: Array) -> tuple[Array, Array]:
        # Vertices after each segment; after the last, (1, 0) but for rounding: sums of n masses, off by n units.
        alpha = jnp.clip(jnp.cumsum(w, -1), 0.0, 1.0)
        beta = jnp.flip(jnp.cumsum(jnp.flip(d, 1), 1), 1)
        beta = jnp.concatenate([beta[:, 1:], jnp.zeros((members, 1))], -1)
        if not leakier:
            # A vertex that is moved up and to the right lies above its curve, so the hull lies above theirs.
            alpha, beta = jnp.minimum(alpha + error, 1.0), beta + error
        x = jnp.concatenate([jnp.zeros(1), alpha.reshape(-1), jnp.ones(1)])
        y = jnp.concatenate([jnp.ones(1), jnp.minimum(beta, 1.0 - alpha).reshape(-1), jnp.zeros(1)])
        order = jnp.lexsort((y, x))
        x, y = x[order], y[order]
        kept = lower_hull(x, y)
        last = x.shape[0] - 1
        # A dropped vertex takes the place of the vertex before it: a segment of no size.
        before = jax.lax.cummax(jnp.where(kept, jnp.arange(last + 1), 0))
        x, y = x[before], y[before]
        new_w = jnp.concatenate([x[:1], jnp.diff(x), jnp.zeros(1)])
        new_d = jnp.concatenate([1.0 - y[:1], -jnp.diff(y), jnp.zeros(1)])
        new_d = jnp.maximum(new_d, 0.0)
        # From below the hull's error is paid at both infinities, which raises H by as much everywhere.
        return (new_w.at[-1].add(error), new_d.at[0].add(error)) if leakier else (new_w, new_d)

    found = jax.vmap(one)(flat(widths), flat(drops))
    return tuple(x.reshape(*batch, x.shape[-1]) for x in found)  # pyright: ignore[reportReturnType]
