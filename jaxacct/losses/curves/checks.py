"""Checks that arrays are privacy profiles or trade-off curves."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct.losses.grids.discretize import CEILING
from jaxacct.losses.grids.grid import LossGrid

TOLERANCE = 1e-9
"""How far, relative to the curve's values nearby, rounding may bend a curve before it counts as not convex."""

_FLOOR = 1e-14  # the same for values near 1 - gamma, where only absolute accuracy is to be had


def check_grid(grid: LossGrid) -> None:
    """A grid fit for curves: two points or more, loss 0 among them, none beyond 650."""
    _validate.instance(LossGrid, grid=grid)
    if grid.size < 2:
        raise ValueError(f"grid must have at least 2 points, got {grid.size}")
    if grid.lowest > 0 or grid.highest < 0:
        raise ValueError(f"grid must hold loss 0, got losses {grid.losses[0]:g} to {grid.losses[-1]:g}")
    if max(-grid.lowest, grid.highest) * grid.spacing > CEILING:
        raise ValueError(
            f"grid must hold no loss beyond {CEILING:g}, got losses {grid.losses[0]:g} to {grid.losses[-1]:g}"
        )


def check_profile_values(values: np.ndarray, grid: LossGrid) -> None:
    """H(gamma) at the grid's points is decreasing, convex, at most 1 and at least (1 - gamma)_+ (Theorem A.3).

    Args:
        values: shape ``(..., grid.size)``.
        grid: see :func:`check_grid`.
    """
    if values.shape[-1:] != (grid.size,):
        raise ValueError(f"values must have {grid.size} points on the last axis, as the grid, got shape {values.shape}")
    for rule, broken in _broken(values, grid.losses, np).items():
        if broken.any():
            where = tuple(int(i[0]) for i in np.nonzero(broken))
            place = f"epsilon {grid.losses[where[-1]]:g}" + (f" of curve {where[:-1]}" if len(where) > 1 else "")
            raise ValueError(f"values must be {rule}, got {values[where]:g} at {place}")


def is_profile(values: Any, losses: Any) -> Array:
    """The same conditions as one boolean for each curve, for traced values."""
    xp = array_module(values, losses)
    return ~xp.stack([broken.any(-1) for broken in _broken(values, losses, xp).values()]).any(0)


def _broken(values: Any, losses: Any, xp: ModuleType) -> dict[str, Any]:
    gamma = xp.exp(losses)
    identity = -xp.expm1(xp.minimum(losses, 0.0))
    # H(0) = 1 stands in front; slopes between neighbours must grow, up to the rounding of what they come from.
    before = xp.concatenate([xp.ones_like(values[..., :1]), values], -1)
    steps = xp.diff(xp.concatenate([xp.zeros(1), gamma]))
    slopes = xp.diff(before, axis=-1) / steps
    rounding = (TOLERANCE * xp.abs(before[..., :-1] - before[..., 1:]) + _FLOOR * before[..., :-1]) / steps
    bend = slopes[..., 1:] - slopes[..., :-1] + rounding[..., 1:] + rounding[..., :-1]
    return {
        "numbers": xp.isnan(values),
        "at most 1": values > 1.0 + _FLOOR,
        "at least (1 - gamma)_+": values < identity - _FLOOR,
        "decreasing": xp.diff(before, axis=-1) > TOLERANCE * before[..., :-1],
        "convex in gamma": xp.concatenate([bend < 0, xp.zeros_like(values[..., :1], bool)], -1),
    }


def check_trade_off_points(alpha: np.ndarray, beta: np.ndarray) -> None:
    """Points of a trade-off curve: alpha from 0 to 1, beta decreasing, convex, at most 1 - alpha, 0 at the end.

    Theorem 2.3 of the paper on f-DP filters (Dong, Roth, Su 2022, Proposition 2.2).
    """
    if alpha.shape != beta.shape or alpha.ndim < 1 or alpha.shape[-1] < 2:
        raise ValueError(f"alpha and beta must have one shape of 2 or more points, got {alpha.shape} and {beta.shape}")
    width, drop = np.diff(alpha, axis=-1), -np.diff(beta, axis=-1)
    pad = ((0, 0),) * (alpha.ndim - 1) + ((0, 1),)
    cross = drop[..., 1:] * width[..., :-1] - drop[..., :-1] * width[..., 1:]
    size = np.abs(drop[..., 1:] * width[..., :-1]) + np.abs(drop[..., :-1] * width[..., 1:])
    bent = cross > TOLERANCE * size + _FLOOR * (width[..., 1:] + width[..., :-1])
    rules = {
        "be numbers": np.isnan(alpha) | np.isnan(beta),
        "go from alpha 0 to alpha 1 without turning back": np.pad(width < 0, pad)
        | np.concatenate([alpha[..., :1] != 0, np.zeros_like(alpha[..., 1:], bool)], -1)
        | np.concatenate([np.zeros_like(alpha[..., 1:], bool), alpha[..., -1:] != 1], -1),
        "be at most 1 - alpha": beta > 1.0 - alpha + _FLOOR,
        "be at least 0": beta < 0,
        "be decreasing": np.pad(drop < -TOLERANCE * beta[..., :-1], pad),
        "be convex": np.pad(bent, (*pad[:-1], (1, 1))),
    }
    for rule, broken in rules.items():
        if broken.any():
            where = tuple(int(i[0]) for i in np.nonzero(broken))
            raise ValueError(f"beta must {rule}, got {beta[where]:g} at alpha {alpha[where]:g} (point {where})")
