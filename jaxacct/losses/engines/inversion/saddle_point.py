"""Estimates where the saddle point of delta(epsilon) lies; they guide searches and are no bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxacct._numerics.arrays import Array, pick, xp
from jaxacct._numerics.least import first_least

_DIGITS = 18.0  # e-foldings between delta and each error that a plan aims at
# How far from theta Chernoff's bounds are tried, in units of 1 / standard deviation and of theta. The second kind
# serves rare sampling, where a slightly larger tilt lets rare and large losses take over.
_SHIFTS = np.array([0.5, 1.0, 2.0, 4.0, 6.0])[:, None]
_STRETCHES = np.array([0.02, 0.06, 0.15, 0.4, 0.8])[:, None]
_MOST = 1e6
_STEEP = 0.5  # least tilt, in units of 1 / standard deviation, where the mean loss exceeds epsilon


def _log_delta(t: Array, k0: Array, k2: Array, epsilon: Array | float) -> Array:
    """Saddle-point approximation of log delta(epsilon) with K = k0 and K'' = k2 at the saddle t."""
    spread = k2 + 1.0 / t**2 + 1.0 / (t + 1.0) ** 2
    return k0 - t * epsilon - xp.log(t) - xp.log1p(t) - 0.5 * xp.log(2 * np.pi * spread)


def estimate(kind: str, t: Array, k0: Array, k2: Array, goal: Array, bound: Array) -> tuple[Array, Array]:
    """``(epsilon, log_delta)``, of which ``goal`` is one; ``bound`` is what :func:`tilt_bound` says at the saddle t."""
    if kind == "delta":
        return goal, xp.minimum(_log_delta(t, k0, k2, goal), 0.0)
    log_delta = xp.log(goal)
    epsilon = (_log_delta(t, k0, k2, 0.0) - log_delta) / t
    return xp.clip(epsilon, 0.0, xp.maximum(bound, 0.0)), log_delta


def tilt_bound(kind: str, t: Array, k0: Array, goal: Array) -> Array:
    """What the moment K = k0 at a tilt says of log delta(goal), or of epsilon where delta is the goal; inf for NaN.

    It is K - t epsilon + t log t - (1 + t) log(1 + t), the best conversion from Renyi divergence.
    """
    bound = k0 - xp.log1p(t) - t * xp.log1p(1.0 / t)
    value = bound - t * goal if kind == "delta" else (bound - xp.log(goal)) / t
    return xp.where(xp.isnan(value), np.inf, value)


def steeper(t: Array, k1: Array, k2: Array, epsilon: Array) -> Array:
    """A tilt for delta(epsilon) that is not too small where most losses exceed epsilon.

    The best bound is trivial there, at no tilt at all, and the period of a contour endless.
    """
    return xp.where((epsilon < k1) & (k1 < np.inf), xp.maximum(t, _STEEP / xp.sqrt(k2)), t)


def searched_between(kind: str, goal: Array, variance: Array) -> tuple[Array, Array]:
    """The smallest and the largest tilt that are tried, as logarithms: 1e-6 and at least ``_MOST``.

    Tiny losses want larger tilts: as many as a normal law of their variance.
    """
    normal = xp.maximum(10.0 / xp.sqrt(variance), goal / variance if kind == "delta" else 0.0)
    return xp.full_like(goal, np.log(1e-6)), xp.log(xp.clip(10.0 * normal, _MOST, 1e9))


def best_tilt(
    bound_at: Callable[[Array], Sequence[Array]],
    low: Array,
    high: Array,
    number: int,
    ahead: Callable[..., Array] | None = None,
) -> tuple[Array, ...]:
    """The logarithm of the best of ``number`` tilts, the distance of neighbours', and what ``bound_at`` says there.

    ``bound_at`` has :func:`tilt_bound` for tilts of shape ``(number, B)``, and may have more. Logarithms of tilts go
    from ``low`` to ``high``, shape ``(B,)``. ``ahead`` is what a larger tilt, by what it says of itself and by the
    distance of neighbours, says of the last but one. The next one counts too, then: rare and large losses take over all
    of a sudden, and where they are about to the period of a contour would have to be long.
    """
    spacing = (high - low) / (number - 1)
    grid = low + spacing * np.arange(float(number))[:, None]
    value, *rest = bound_at(xp.exp(grid))
    if ahead is not None:
        value = xp.maximum(xp.maximum(value[:-2], value[1:-1]), ahead(xp.exp(grid[2:]), value[2:], spacing))
        grid = grid[:-2]
    at = first_least(value.T)
    return pick(grid.T, at), spacing, *(pick(x[: len(grid)].T, at) for x in (value, *rest))


def tilts_around(theta: Array, deviation: Array) -> Array:
    """Tilts above theta, and as many below it or 0, where Chernoff's bounds are tried; shape ``(N, B)``."""
    shift = xp.concatenate([_SHIFTS / xp.maximum(deviation, 1e-300), _STRETCHES * theta])
    return xp.concatenate([theta + shift, xp.maximum(theta - shift, 0.0)])


def spacing_for(
    theta: Array, tilts: Array, moments: Array, epsilon: Array, log_delta: Array, reach: Array | float = 0.0
) -> Array:
    """The distance of frequencies at which every alias, by Chernoff's bounds, is e^-18 of delta.

    With a ``reach`` it is so at all epsilons that are no further away.
    """
    n = len(tilts) // 2
    excess = moments - tilts * epsilon - xp.log1p(tilts) - log_delta + _DIGITS
    gap = xp.abs(tilts - theta)
    needed = xp.where(gap > 0, xp.maximum(excess, 1.0) / xp.where(gap > 0, gap, 1.0), np.inf)
    period = xp.maximum(needed[:n].min(0), needed[n:].min(0)) * 1.05
    return 2.0 * np.pi / (period + reach)
