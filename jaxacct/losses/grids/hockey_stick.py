"""Curves read off a discrete privacy loss: hockey sticks, trade-off, exponential moments, each rounded to a side.

All take masses of one law on lattice losses ``(lowest + i) * spacing`` and the probability of an infinite loss;
``sign`` is 1 to round an upper law up, -1 to round a lower law down. Positive terms only are added, so n of them cost
n units.
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, Real, array_module, logsumexp, xp
from jaxacct._numerics.curve_arrays import compiled, mapped
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.losses.grids.grid import LossGrid

_LARGEST = 700.0  # log of the largest gamma
_BLOCK = 32
_FEW = 4  # epsilons up to which sums of their own are faster than the curve at all points


def relative_error(n: int) -> float:
    """Of a hockey stick at a lattice point: docs/proofs/fft.md, lemma 4."""
    return EPS * (4.0 * n + 16.0)


def at_lattice_points(masses: Array, spacing: Real) -> tuple[Array, Array]:
    """``(above, curve)``: the mass above each lattice point, and the finite losses' hockey stick there."""
    above = xp.flip(xp.cumsum(xp.flip(masses, -1), -1), -1)
    above = xp.concatenate([above[..., 1:], xp.zeros_like(above[..., :1])], -1)
    # With A_k the mass above l_k: H(l_k) = (1 - e^-h) A_k + e^-h H(l_k+1), a recurrence of positive terms.
    return above, discounted(-xp.expm1(-spacing) * above, xp.exp(-spacing))


def _times(rows: Array, matrix: Array) -> Array:
    """``rows @ matrix``. JAX cannot map a float64 product of matrices over an axis of a float32 program."""
    return rows @ matrix if array_module(rows, matrix) is np else (rows[..., None] * matrix).sum(-2)


def discounted(terms: Array, factor: Array) -> Array:
    """Sums of ``terms[i] * factor ** (i - k)`` over i >= k, for every k; over the last axis.

    Block by block, with a triangular matrix of powers. The power of i - k is off by little more than 2 (i - k) units,
    and a sum of n positive terms by n units more, for n up to 32, and by 34 units a level beyond.
    """
    n, size = terms.shape[-1], min(terms.shape[-1], _BLOCK)
    powers = xp.cumprod(xp.concatenate([xp.ones(1), xp.full(size, 1.0) * factor]))
    lags = np.subtract.outer(np.arange(size), np.arange(size))  # of a later term (row) at an earlier place (column)
    triangle = xp.where(lags >= 0, powers[np.maximum(lags, 0)], 0.0)
    if n <= _BLOCK:
        return _times(terms, triangle)
    fill = -n % size
    blocks = xp.concatenate([terms, xp.zeros((*terms.shape[:-1], fill))], -1) if fill else terms
    inside = _times(blocks.reshape(*blocks.shape[:-1], -1, size), triangle)
    later = discounted(inside[..., 0], powers[size])[..., 1:]
    later = xp.concatenate([later, xp.zeros_like(later[..., :1])], -1)
    return (inside + later[..., None] * powers[size:0:-1]).reshape(blocks.shape)[..., :n]


@compiled("grid", "sign")
def hockey_stick(masses: Array, infinity: Array, grid: LossGrid, epsilon: Array, sign: float) -> Array:
    """delta(epsilon), shape ``batch + epsilon.shape``; see :meth:`jaxacct.PLD.hockey_stick`."""
    spacing, n = grid.spacing, grid.size
    # A quotient is good to a unit of its own size; less the lowest index it would be to one of that.
    cell = xp.clip(xp.floor(epsilon / spacing) - grid.lowest, -1, n - 1).astype(np.int64)
    next_loss = (grid.lowest + cell + 1) * spacing
    part = -xp.expm1(xp.minimum(epsilon - next_loss, 0.0))
    total = masses.sum(-1)
    total = total[(...,) + (None,) * epsilon.ndim]
    mass, beyond = _beyond(masses, spacing, cell)
    # Nothing lies beyond the lattice, unless the masses are no numbers.
    value = xp.where(cell >= n - 1, 0.0 * total, mass * part + (1.0 - part) * beyond)
    value = value + infinity[(...,) + (None,) * epsilon.ndim]
    # The loss itself is good to a unit of its size; within that of a lattice point its atom may be above as well.
    near = xp.abs(epsilon - (next_loss - spacing)) <= 4.0 * EPS * (xp.abs(epsilon) + spacing)
    here = xp.take(masses, xp.clip(cell, 0, n - 1), axis=-1)
    mass = mass + xp.where(near & (cell >= 0), here, 0.0)
    error = relative_error(n) * value + 2.0 * EPS * xp.abs(epsilon) * (mass + value)
    floor = inflated(0.0 - xp.expm1(xp.minimum(epsilon, 0.0)), sign * 2.0**-50)
    bounded = xp.clip(value + sign * error, floor, 1.0)
    return xp.where(xp.isnan(bounded), 1.0 if sign > 0 else floor, bounded)


def _beyond(masses: Array, spacing: float, cell: Array) -> tuple[Array, Array]:
    """The mass above the lattice points ``cell`` (from -1 on), and the finite losses' hockey stick at the next ones."""
    n = masses.shape[-1]
    if array_module(masses, cell) is np and cell.size <= _FEW:
        found = np.empty((2, *masses.shape[:-1], cell.size))
        for i, k in enumerate(np.ravel(cell)):
            found[0, ..., i] = masses[..., k + 1 :].sum(-1)
            found[1, ..., i] = masses[..., k + 2 :] @ -np.expm1(-spacing * np.arange(1, max(n - k - 1, 1)))
        return tuple(found.reshape(2, *masses.shape[:-1], *cell.shape))
    above, curve = at_lattice_points(masses, spacing)
    total = masses.sum(-1)[(...,) + (None,) * cell.ndim]
    mass = xp.where(cell < 0, total, xp.take(above, xp.clip(cell, 0, n - 1), axis=-1))
    return mass, xp.take(curve, xp.clip(cell + 1, 0, n - 1), axis=-1)


@compiled("grid", "sign")
def trade_off(masses: Array, infinity: Array, grid: LossGrid, alpha: Array, sign: float) -> Array:
    """The trade-off function at ``alpha``, shape ``batch + alpha.shape``; see :meth:`jaxacct.PLD.trade_off`."""
    n, losses = grid.size, grid.losses
    _, curve = at_lattice_points(masses, grid.spacing)
    gamma = np.exp(np.minimum(losses, _LARGEST))
    # Every gamma gives a bound from below, so those beyond a double may be left out. From above they may not: they
    # stay, at a gamma that is too small.
    held = (losses <= _LARGEST) | (sign < 0)
    values = inflated(curve + infinity[..., None], sign * relative_error(n))
    at_zero = inflated(xp.minimum(masses.sum(-1) + infinity, 1.0), sign * relative_error(n))
    cost = inflated(gamma, sign * 4.0 * EPS * (1.0 + np.abs(losses)))

    def some(alpha: Array) -> Array:
        alpha = alpha.reshape(-1, *(1,) * values.ndim)  # (alphas, *batch, n)
        inside = xp.max(xp.where(held, 1.0 - values - cost * alpha, 0.0), -1)
        return xp.maximum(inside, 0.0 if sign > 0 else 1.0 - at_zero)

    found = mapped(some, alpha.reshape(-1), 8) - sign * 4.0 * EPS
    found = xp.moveaxis(found, 0, -1).reshape((*values.shape[:-1], *alpha.shape))
    most = (1.0 - alpha) * (1.0 if sign > 0 else 1.0 + 2.0 * EPS)
    found = xp.clip(found, 0.0, most)
    return xp.where(xp.isnan(found), 0.0 if sign > 0 else most, found)


def _log_terms(masses: Array, grid: LossGrid, theta: Array) -> tuple[Array, Array]:
    """theta * loss + log(mass) and a bound on the relative error of its exponential."""
    losses, logs = grid.losses, xp.log(masses)
    return theta * losses + logs, 4.0 * EPS * (4.0 + theta * np.abs(losses) + xp.abs(logs))


@compiled("grid", "sign")
def log_moment(masses: Array, grid: LossGrid, theta: Array, sign: float) -> Array:
    """log E[exp(theta L); L < inf], shape ``batch``, rounded to the side of ``sign``."""
    terms, _ = _log_terms(masses, grid, theta)
    error = xp.max(4.0 * EPS * (4.0 + xp.where(masses > 0, xp.abs(terms), 0.0)), -1)
    error = error + 8.0 * EPS * theta * np.abs(grid.losses).max() + relative_error(grid.size)
    value = logsumexp(terms)
    return value + sign * (error + 4.0 * EPS * xp.where(xp.isfinite(value), xp.abs(value), 0.0))


@compiled("grid", "sign")
def tilted(masses: Array, grid: LossGrid, theta: Array, log_normaliser: Array, sign: float) -> Array:
    """Masses times exp(theta * loss - log_normaliser), rounded to the side of ``sign``."""
    terms, error = _log_terms(masses, grid, theta)
    exponent = terms - log_normaliser[..., None]
    error = error + 4.0 * EPS * (xp.abs(log_normaliser[..., None]) + xp.abs(exponent))
    value = inflated(xp.exp(exponent), sign * xp.where(masses > 0, error, 0.0))
    return xp.where(masses > 0, xp.maximum(value, 0.0), 0.0)
