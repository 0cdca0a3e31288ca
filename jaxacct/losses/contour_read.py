"""delta(epsilon) and epsilon(delta) from the powers of a transform; see :mod:`jaxacct.losses.contour`."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._log1p import log1p
from jaxacct.mechanisms._pair import UNIT

__all__ = ["Integrand", "aliases", "read_delta", "read_epsilon"]


class Integrand(NamedTuple):
    """The sum ``scale * sum_j Re(terms_j exp(-i w_j (epsilon - mean)))`` and what it may be wrong by.

    Attributes:
        theta, mean: scalars.
        log_total: log of M(theta); ``log_error`` bounds its error.
        log_error: scalar.
        spacing: of the frequencies.
        terms: transform at the frequencies over M(theta), times spacing / pi (half of it at 0); 0 where cut off.
        error: bound on the sum's error, relative to M(theta) e^(-theta eps), for phases known exactly.
        phase_error: bound on the sum of |terms_j| w_j, per unit of error in epsilon - mean.
        mean_error: rounding error of ``mean``.
        tilts, log_moments: Chernoff's t and upper bounds of log M(t), shape ``(shifts,)``, on either side of theta.
    """

    theta: Array
    mean: Array
    mean_error: Array
    log_total: Array
    log_error: Array
    spacing: Array
    terms: Array
    error: Array
    phase_error: Array
    tilts: Array
    log_moments: Array


def aliases(integrand: Integrand, epsilon: Array) -> Array:
    """Bound on the sum over k != 0 of e^(theta k c) D(eps + k c)."""
    n = integrand.tilts.shape[0] // 2
    period = 2.0 * jnp.pi / integrand.spacing
    gap = jnp.abs(integrand.tilts - integrand.theta) * period
    linear = integrand.tilts * epsilon
    log_first = integrand.log_moments - linear - log1p(integrand.tilts) - gap
    log_first += 4.0 * UNIT * (jnp.abs(integrand.log_moments) + jnp.abs(linear) + gap)
    # A geometric series; D <= 1 with tilt 0.
    each = jnp.where(gap > 0.1, jnp.exp(log_first) / -jnp.expm1(-gap), jnp.inf)
    each = jnp.where(jnp.isnan(each), jnp.inf, each)
    return (each[:n].min() + each[n:].min()) * (1.0 + 1e-9)


def read_delta(integrand: Integrand, epsilon: Array) -> tuple[Array, Array, Array, Array]:
    """``(lower, upper, value, slope)`` of delta at epsilon; the last two are no bounds."""
    i = integrand
    frequencies = jnp.arange(i.terms.shape[-1]) * i.spacing
    offset = epsilon - i.mean
    phase = frequencies * offset
    real = i.terms.real * jnp.cos(phase) + i.terms.imag * jnp.sin(phase)
    imag = i.terms.imag * jnp.cos(phase) - i.terms.real * jnp.sin(phase)
    total = real.sum()
    log_scale = i.log_total - i.theta * epsilon
    scale = jnp.exp(log_scale)
    moved = i.mean_error + 4.0 * UNIT * (jnp.abs(epsilon) + jnp.abs(i.mean))
    error = i.error + i.phase_error * (moved + 4.0 * UNIT * jnp.abs(offset))
    # Each term, and a sum in any order.
    error += (jnp.abs(real) + jnp.abs(imag)).sum() * (16.0 + real.shape[0]) * UNIT
    log_error = i.log_error + 4.0 * UNIT * (1.0 + jnp.abs(i.log_total) + jnp.abs(i.theta * epsilon))
    floor = jnp.maximum(-jnp.expm1(epsilon), 0.0)
    upper = scale * (total + error) * jnp.exp(log_error)
    lower = scale * (total - error) * jnp.exp(-log_error) - aliases(i, epsilon)
    upper = jnp.where(jnp.isnan(upper), 1.0, jnp.clip(upper, floor, 1.0))
    # Underflow is no upper bound.
    upper = jnp.maximum(upper, 1e-300)
    under = floor * (1.0 - 2.0**-50)
    lower = jnp.where(jnp.isnan(lower), under, jnp.clip(lower, under, upper))
    slope = -scale * (i.theta * total - (frequencies * imag).sum())
    return lower, upper, scale * total, slope


def read_epsilon(integrand: Integrand, guess: Array, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta."""

    def newton(epsilon: Array, _: Any) -> tuple[Array, None]:
        _, _, value, slope = read_delta(integrand, epsilon)
        step = value / jnp.minimum(slope, -1e-300) * jnp.log(delta / value)
        step = jnp.where(jnp.isfinite(step), step, 0.0)
        return jnp.maximum(epsilon + jnp.clip(step, -1.0 - epsilon, 1.0 + epsilon), 0.0), None

    root, _ = jax.lax.scan(newton, guess, None, length=5)
    lower, upper, value, slope = read_delta(integrand, root)
    # How far the bounds lie from the value says how far from the root they meet the target.
    nudge = jnp.maximum(upper - value, value - lower) / jnp.maximum(-slope, 1e-300)
    nudges = nudge * jnp.asarray([1.5, 5.0, 100.0]) + jnp.abs(root) * jnp.asarray([1e-14, 1e-11, 1e-6])
    above = root + nudges
    below = jnp.maximum(root - nudges, 0.0)
    highs = jax.vmap(lambda e: read_delta(integrand, e)[1])(above)
    lows = jax.vmap(lambda e: read_delta(integrand, e)[0])(below)
    high = jnp.min(jnp.where(highs <= delta, above, jnp.inf))
    low = jnp.max(jnp.where(lows >= delta, below, 0.0))
    at_zero = read_delta(integrand, jnp.zeros(()))[1] <= delta
    high = jnp.where(at_zero, 0.0, high)
    return jnp.minimum(low, high), high
