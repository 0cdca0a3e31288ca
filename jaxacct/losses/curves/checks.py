"""Checks that arrays are privacy profiles or trade-off curves."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, running_greatest, xp
from jaxacct._numerics.curve_arrays import float64, quiet_float64
from jaxacct.losses.grids.grid import CEILING, LossGrid

TOLERANCE = 1e-9
"""How far, relative to the curve's values nearby, rounding may bend a curve before it counts as not convex."""

LAW_SLACK = 1e-6
"""How far the masses of a law may sum up to something else than 1: float32 programs round them, and transforms do."""

_ROUNDED_UP = 1e-3  # by how much many operations that round up may exceed that on the safe side
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


def lawful(masses: Array, infinity_mass: Array, grid: LossGrid, bound: str) -> tuple[Array, Array]:
    """Both as they are if they are a law's on ``grid``; see :class:`jaxacct.PLD`.

    Traced ones that are not become the loss that is always infinite (upper), or no mass at all (lower).

    Raises:
        ValueError: shapes that do not fit, and concrete arrays that are no law's.
    """
    if np.shape(masses)[-1:] != (grid.size,) or np.shape(masses)[:-1] != np.shape(infinity_mass):
        raise ValueError(
            f"masses must have {grid.size} points on the last axis, as the grid, and infinity_mass the axes before it, "
            f"got shapes {np.shape(masses)} and {np.shape(infinity_mass)}"
        )
    most = 1.0 + (_ROUNDED_UP if bound == "upper" else LAW_SLACK)
    if _validate.is_traced((masses, infinity_mass)):
        with quiet_float64():
            total = float64(masses).sum(-1) + float64(infinity_mass)
            good = (total <= most) & ((total >= 1.0 - LAW_SLACK) | (bound == "lower"))
            good &= (jnp.min(masses, -1) >= 0) & (infinity_mass >= 0)  # NaN is not
            worst = jnp.full_like(infinity_mass, 1 if bound == "upper" else 0)
            none = jnp.zeros_like(masses)
            return jnp.where(good[..., None], masses, none), jnp.where(good, infinity_mass, worst)
    _validate.rate(masses=masses, infinity_mass=infinity_mass)
    total = np.asarray(masses, np.float64).sum(-1) + np.asarray(infinity_mass, np.float64)
    if np.any(total > most):
        raise ValueError(f"masses and infinity_mass must sum up to at most 1, got {total.max():g}")
    if bound == "upper" and np.any(total < 1.0 - LAW_SLACK):
        raise ValueError(
            f"masses and infinity_mass of an upper law must sum up to 1, got {total.min():g}; "
            "PLD.from_masses counts what is missing as an infinite loss"
        )
    return masses, infinity_mass


def lawful_excess(excess: Array, grid: LossGrid, bound: str) -> Array:
    """``excess`` as it is if it is that of a bound on ``grid``; see :class:`jaxacct.PrivacyProfile`.

    Traced ones that are not become no privacy (upper) or perfect privacy (lower).

    Raises:
        ValueError: a shape that does not fit, or a concrete excess that no curve has.
    """
    if np.shape(excess)[-1:] != (grid.size,):
        raise ValueError(
            f"excess must have {grid.size} points on the last axis, as the grid, got shape {np.shape(excess)}"
        )
    limit = np.minimum(np.exp(grid.losses), 1.0)
    # H falls: its excess grows by no more than the identity falls.
    growth = -np.diff(-np.expm1(np.minimum(grid.losses, 0.0)))
    with quiet_float64():
        values = _float64(excess=excess)
        rules = {
            "be between 0 and min(gamma, 1)": ~((values >= 0.0) & (values <= limit * (1.0 + LAW_SLACK) + _FLOOR)),
            "be that of a decreasing curve": xp.diff(values, axis=-1) > growth + LAW_SLACK * values[..., 1:] + _FLOOR,
        }
        good = _kept("excess", values, rules, "epsilon", grid.losses)
        if not _validate.is_traced(excess):
            return excess
        return xp.where(good[..., None], excess, (limit if bound == "upper" else 0.0 * limit).astype(excess.dtype))


def _float64(**given: ArrayLike) -> Array:
    """The one argument in float64: NumPy's if it is known, and numbers then."""
    ((_, value),) = given.items()
    if _validate.is_traced(value):
        return float64(value)
    _validate.numbers(**given)
    return np.asarray(value, np.float64)


def _kept(name: str, values: Array, broken: Mapping[str, Array], axis: str, at: Array) -> Array:
    """Whether each of the curves keeps all rules (shape of the batch): those that are known do, or are refused.

    ``broken`` has for each rule the points at which it is broken, and ``at`` the places of all points on ``axis``.
    """
    good = ~xp.stack([points.any(-1) for points in broken.values()]).any(0)
    if _validate.is_traced(values) or good.all():
        return good
    rule, points = next((rule, points) for rule, points in broken.items() if points.any())
    where = tuple(int(i[0]) for i in np.nonzero(points))
    place = f"{axis} {np.broadcast_to(at, values.shape)[where]:g}" + (f" of curve {where[:-1]}" if where[1:] else "")
    raise ValueError(f"{name} must {rule}, got {values[where]:g} at {place}")


def check_segments(widths: Array, drops: Array, bound: str) -> Array:
    """Whether each of the curves is one (shape of the batch), if they are traced; see :class:`jaxacct.TradeOff`.

    Raises:
        ValueError: shapes that do not fit, and concrete arrays that are no curve's.
    """
    if np.shape(widths) != np.shape(drops) or not np.shape(widths) or not np.shape(widths)[-1]:
        raise ValueError(
            f"widths and drops must have one shape of 1 or more segments, got {np.shape(widths)} and {np.shape(drops)}"
        )
    traced = _validate.is_traced((widths, drops))
    if not traced:
        _validate.rate(widths=widths, drops=drops)
    with quiet_float64():
        w, d = float64(widths), float64(drops)
        totals = xp.stack([w.sum(-1), d.sum(-1)])
        # Losses log(width / drop) grow; padding has none.
        losses = xp.where((w > 0) | (d > 0), xp.log(w) - xp.log(d), np.nan)
        before = running_greatest(xp.where(xp.isnan(losses), -np.inf, losses))
        bent = (losses < before - LAW_SLACK).any(-1)
        light = (totals < 1.0 - LAW_SLACK).any(0) & (bound == "lower")
        most = 1.0 + (_ROUNDED_UP if bound == "lower" else LAW_SLACK)
        good = ~(bent | light) & (totals <= most).all(0)
        if traced:
            return good & (xp.min(w, -1) >= 0) & (xp.min(d, -1) >= 0)
    if bent.any():
        raise ValueError("widths and drops must be sorted, steepest segment first, or the curve is not convex")
    if not good.all():
        rule = "at most 1" if (totals > most).any() else "1, for a lower curve"
        raise ValueError(f"widths and drops must each sum up to {rule}, got {totals[:, ~good].ravel()[:2]}")
    return good


def check_profile_values(values: ArrayLike, grid: LossGrid) -> Array:
    """Whether each of the curves is a profile (shape of the batch), if they are traced.

    H(gamma) at the grid's points is decreasing, convex, at most 1 and at least (1 - gamma)_+ (Theorem A.3).

    Raises:
        ValueError: shapes that do not fit ``(..., grid.size)``, and known values that are no profile's.
    """
    values = _float64(values=values)
    if values.shape[-1:] != (grid.size,):
        raise ValueError(f"values must have {grid.size} points on the last axis, as the grid, got shape {values.shape}")
    losses = grid.losses
    gamma = np.exp(losses)
    identity = -np.expm1(np.minimum(losses, 0.0))
    # H(0) = 1 stands in front; slopes between neighbours must grow, up to the rounding of what they come from.
    before = xp.concatenate([xp.ones_like(values[..., :1]), values], -1)
    steps = np.diff(gamma, prepend=0.0)
    slopes = xp.diff(before, axis=-1) / steps
    rounding = (TOLERANCE * xp.abs(before[..., :-1] - before[..., 1:]) + _FLOOR * before[..., :-1]) / steps
    bend = slopes[..., 1:] - slopes[..., :-1] + rounding[..., 1:] + rounding[..., :-1]
    rules = {
        "be numbers": xp.isnan(values),
        "be at most 1": values > 1.0 + _FLOOR,
        "be at least (1 - gamma)_+": values < identity - _FLOOR,
        "be decreasing": xp.diff(before, axis=-1) > TOLERANCE * before[..., :-1],
        "be convex in gamma": bend < 0,
    }
    return _kept("values", values, rules, "epsilon", losses)


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
    _kept("beta", beta, rules, "alpha", alpha)
