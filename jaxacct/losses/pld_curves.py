"""Curves read off a discrete privacy loss: hockey sticks, trade-off, exponential moments, each rounded to a side.

All take masses of one law on lattice losses ``(lowest + i) * spacing`` and the probability of an infinite loss;
``sign`` is 1 to round an upper law up, -1 to round a lower law down. Positive terms only are added, so n of them cost
n units.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct._rounding import EPS, inflated
from jaxacct.losses.grid import LossGrid

__all__ = ["at_lattice_points", "discounted", "hockey_stick", "log_moment", "relative_error", "tilted", "trade_off"]

_LARGEST = 700.0  # log of the largest gamma


def relative_error(n: int) -> float:
    """Of a hockey stick at a lattice point: n positive terms, each good to a few units."""
    return EPS * (4.0 * n + 16.0)


def at_lattice_points(masses: Array, spacing: Array | float) -> tuple[Array, Array]:
    """``(above, curve)``: the mass above each lattice point, and the finite losses' hockey stick there."""
    above = jnp.flip(jnp.cumsum(jnp.flip(masses, -1), -1), -1)
    above = jnp.concatenate([above[..., 1:], jnp.zeros_like(above[..., :1])], -1)
    # With A_k the mass above l_k: H(l_k) = (1 - e^-h) A_k + e^-h H(l_k+1), a recurrence of positive terms.
    return above, discounted(-jnp.expm1(-spacing) * above, spacing)


def discounted(terms: Array, spacing: Array | float) -> Array:
    """Sums of ``terms[i] * exp(-(i - k) * spacing)`` over i >= k, for every k; over the last axis."""

    def link(later: tuple[Array, Array], earlier: tuple[Array, Array]) -> tuple[Array, Array]:
        return earlier[0] * later[0], earlier[0] * later[1] + earlier[1]

    factor = jnp.full_like(terms, jnp.exp(-spacing))
    return jnp.flip(jax.lax.associative_scan(link, (factor, jnp.flip(terms, -1)), axis=-1)[1], -1)


@functools.partial(jax.jit, static_argnums=(2, 4))
def hockey_stick(masses: Array, infinity: Array, grid: LossGrid, epsilon: Array, sign: float) -> Array:
    """delta(epsilon), shape ``batch + epsilon.shape``; see :meth:`jaxacct.PLD.hockey_stick`."""
    spacing, n = grid.spacing, grid.size
    above, curve = at_lattice_points(masses, spacing)
    shift = epsilon / spacing - grid.lowest
    cell = jnp.clip(jnp.floor(shift), -1, n - 1).astype(jnp.int64)
    next_loss = (grid.lowest + cell + 1) * spacing
    part = -jnp.expm1(jnp.minimum(epsilon - next_loss, 0.0))
    total = masses.sum(-1)
    at = lambda array: jnp.take(array, jnp.clip(cell, 0, n - 1), axis=-1)  # noqa: E731
    index = jnp.clip(cell + 1, 0, n - 1)
    total = total[(...,) + (None,) * epsilon.ndim]
    mass = jnp.where(cell < 0, total, at(above))
    beyond = jnp.take(curve, index, axis=-1)
    # Nothing lies beyond the lattice, unless the masses are no numbers.
    value = jnp.where(cell >= n - 1, 0.0 * total, mass * part + (1.0 - part) * beyond)
    value = value + infinity[(...,) + (None,) * epsilon.ndim]
    # The loss itself is good to a unit of its size; within that of a lattice point its atom may be above as well.
    near = jnp.abs(epsilon - (next_loss - spacing)) <= 4.0 * EPS * (jnp.abs(epsilon) + spacing)
    mass = mass + jnp.where(near & (cell >= 0), at(masses), 0.0)
    error = relative_error(n) * value + 2.0 * EPS * jnp.abs(epsilon) * (mass + value)
    floor = inflated(-jnp.expm1(jnp.minimum(epsilon, 0.0)), sign * 2.0**-50)
    bounded = jnp.clip(value + sign * error, floor, 1.0)
    return jnp.where(jnp.isnan(bounded), 1.0 if sign > 0 else floor, bounded)


@functools.partial(jax.jit, static_argnums=(2, 4))
def trade_off(masses: Array, infinity: Array, grid: LossGrid, alpha: Array, sign: float) -> Array:
    """The trade-off function at ``alpha``, shape ``batch + alpha.shape``; see :meth:`jaxacct.PLD.trade_off`."""
    n = grid.size
    _, curve = at_lattice_points(masses, grid.spacing)
    losses = (grid.lowest + np.arange(n)) * grid.spacing
    gamma = jnp.exp(jnp.minimum(losses, _LARGEST))
    # Every gamma gives a bound from below, so those beyond a double may be left out. From above they may not: they
    # stay, at a gamma that is too small.
    held = (losses <= _LARGEST) | (sign < 0)
    values = inflated(curve + infinity[..., None], sign * relative_error(n))
    at_zero = inflated(jnp.minimum(masses.sum(-1) + infinity, 1.0), sign * relative_error(n))
    cost = inflated(gamma, sign * 4.0 * EPS * (1.0 + np.abs(losses)))

    def one(alpha: Array) -> Array:
        inside = jnp.max(jnp.where(held, 1.0 - values - cost * alpha, 0.0), -1)
        return jnp.maximum(inside, 0.0 if sign > 0 else 1.0 - at_zero)

    found = jax.lax.map(one, alpha.reshape(-1)) - sign * 4.0 * EPS  # (alphas, *batch)
    found = jnp.moveaxis(found, 0, -1).reshape(*values.shape[:-1], *alpha.shape)
    most = (1.0 - alpha) * (1.0 if sign > 0 else 1.0 + 2.0 * EPS)
    found = jnp.clip(found, 0.0, most)
    return jnp.where(jnp.isnan(found), 0.0 if sign > 0 else most, found)


def _log_terms(masses: Array, grid: LossGrid, theta: Array) -> tuple[Array, Array]:
    """theta * loss + log(mass) and a bound on the relative error of its exponential."""
    losses = (grid.lowest + np.arange(grid.size)) * grid.spacing
    return theta * losses + jnp.log(masses), 4.0 * EPS * (4.0 + theta * np.abs(losses) + jnp.abs(jnp.log(masses)))


@functools.partial(jax.jit, static_argnums=(1, 3))
def log_moment(masses: Array, grid: LossGrid, theta: Array, sign: float) -> Array:
    """log E[exp(theta L); L < inf], shape ``batch``, rounded to the side of ``sign``."""
    terms, _ = _log_terms(masses, grid, theta)
    error = jnp.max(4.0 * EPS * (4.0 + jnp.where(masses > 0, jnp.abs(terms), 0.0)), -1)
    losses = (grid.lowest + np.arange(grid.size)) * grid.spacing
    error = error + 8.0 * EPS * theta * np.abs(losses).max() + relative_error(grid.size)
    value = jax.nn.logsumexp(terms, axis=-1)
    return value + sign * (error + 4.0 * EPS * jnp.where(jnp.isfinite(value), jnp.abs(value), 0.0))


@functools.partial(jax.jit, static_argnums=(1, 4))
def tilted(masses: Array, grid: LossGrid, theta: Array, log_normaliser: Array, sign: float) -> Array:
    """Masses times exp(theta * loss - log_normaliser), rounded to the side of ``sign``."""
    terms, error = _log_terms(masses, grid, theta)
    exponent = terms - log_normaliser[..., None]
    error = error + 4.0 * EPS * (jnp.abs(log_normaliser[..., None]) + jnp.abs(exponent))
    value = inflated(jnp.exp(exponent), sign * jnp.where(masses > 0, error, 0.0))
    return jnp.where(masses > 0, jnp.maximum(value, 0.0), 0.0)
