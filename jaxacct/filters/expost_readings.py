"""What a running sum of Rényi divergences proves about the privacy loss when the sum depends on outputs.

Let L_t be the loss after t queries and R_j,t the sum of their divergences at order a_j, for orders and weights w_j
(adding up to 1) fixed in advance. Given the past, E_P[exp((a_j - 1) l)] <= exp((a_j - 1) rho_j) for each query, so

    W_t = sum_j w_j exp((a_j - 1) (L_t - R_j,t))

is a supermartingale under P with W_0 = 1, and E_P[W_T] <= 1 at any time T at which the analyst stops. With one order
this is ex-post Rényi privacy (adaptive composition with adaptive bounds, Section 4 of the paper on accuracy-first Rényi
privacy). Two readings follow, by comparing a number with delta W at the stopping time.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.manual_axes import fori_loop
from jaxacct._numerics.rounding import deflated

_TOLERANCE = 2.0**-40
_HALVINGS = 80


def _root(log_weights: Array, slopes: Array, sums: Array, log_delta: Array) -> tuple[Array, Array]:
    """A bracket of the L with log sum exp(log_weights + slopes (L - sums)) = -log_delta, widened for rounding."""
    each = sums + (-log_delta[..., None] - log_weights) / slopes
    # One term alone is less than the sum; with each term at most 1 / k of it the sum is not reached.
    high = jnp.min(each, axis=-1)
    low = jnp.min(each - jnp.log(float(slopes.shape[-1])) / slopes, axis=-1)

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = ends
        middle = left + (right - left) / 2
        under = jax.nn.logsumexp(log_weights + slopes * (middle[..., None] - sums), axis=-1) < -log_delta
        return jnp.where(under, middle, left), jnp.where(under, right, middle)

    low, high = fori_loop(0, _HALVINGS, halve, (low, high))
    margin = _TOLERANCE * (1 + jnp.abs(high))
    return low - margin, high + margin


def _good(sums: Array, delta: Array) -> Array:
    return (delta > 0) & (delta < 1) & jnp.any(sums < jnp.inf, axis=-1) & ~jnp.any(jnp.isnan(sums), axis=-1)


def approximate_reading(orders: Array, sums: Array, delta: Array) -> Array:
    """The least epsilon with (1 - exp(epsilon - L))_+ <= delta W for every L, rounded up, at least 0; float64.

    Then P(S) <= E_Q[exp(epsilon) on S] + delta for every event S. The maximum over L of L + log(1 - delta W(L)) is
    where delta sum w_j a_j exp((a_j - 1) (L - R_j)) = 1. With one order it is the conversion of Canonne, Kamath,
    Steinke 2020. (Total variation, which may improve that conversion, says nothing at a stopping time.)
    ``sums`` are the R_j, rounded up, shape ``(..., k)``.
    """
    good = _good(sums, delta)
    sums, delta = jnp.where(good[..., None], sums, 1.0), jnp.where(good, delta, 0.5)
    log_weights, slopes = jnp.full(orders.shape, -jnp.log(float(orders.size))), orders - 1
    log_delta = jnp.log(delta)
    low, high = _root(log_weights + jnp.log(orders), slopes, sums, log_delta)
    below = jnp.exp(jax.nn.logsumexp(log_weights + slopes * (low[..., None] - sums), axis=-1) + log_delta)
    value = high + log1p(deflated(-below, _TOLERANCE))
    return jnp.where(good, jnp.maximum(value, 0.0), jnp.inf)


def probable_reading(orders: Array, sums: Array, delta: Array) -> Array:
    """The L with delta W(L) = 1, rounded up; float64. By Ville's inequality P(L_t exceeds it at any t) <= delta.

    With one order it is R + log(1 / delta) / (order - 1). Arguments as in `approximate_reading`.
    """
    good = _good(sums, delta)
    sums, delta = jnp.where(good[..., None], sums, 1.0), jnp.where(good, delta, 0.5)
    log_weights = jnp.full(orders.shape, -jnp.log(float(orders.size)))
    _, high = _root(log_weights, orders - 1, sums, jnp.log(delta))
    return jnp.where(good, jnp.maximum(high, 0.0), jnp.inf)
