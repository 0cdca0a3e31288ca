"""The Rényi curve of Gaussian noise under a random sensitivity, sampled or not."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct._log1p import log1p
from jaxacct._rounding import EPS, inflated
from jaxacct.losses.renyi.gaussian import log_remainder
from jaxacct.mechanisms.mixture import MixtureOfGaussians

__all__ = ["mixture_curve"]

_NODES = 2048


@jax.jit
def _curve(noise: Array, shifts: Array, weights: Array, order: Array, reverse: Array) -> Array:
    """Flat batches: noise, order, reverse of shape ``(batch,)``; shifts and weights ``(batch, k)``."""
    return jax.vmap(_divergence)(noise, shifts, weights, order, reverse)


def _divergence(noise: Array, shifts: Array, weights: Array, a: Array, reverse: Array) -> Array:
    """Numeric, with its errors added, or by convexity.

    With M = dP/dQ: A = E_Q[M^b], b = order (`remove`) or 1 - order (`add`), and A - 1 = E_Q[M^b - 1 - b (M - 1)].
    In standard units Q = N(0, 1) and M(x) = sum_i w_i e^(y_i), y_i = s_i x - s_i^2 / 2, with k terms.

    The trapezoid rule of step h errs by at most 2 / (e^(2 pi d / h) - 1) times the integral of the modulus on lines of
    height d. Where s_i d <= pi / 3 for all i, abs(M) lies between M(Re x) / 2 and M(Re x), so that integral is at most
    e^(d^2 / 2) (2^max(-b, 0) A + 1 + 2 abs(b)). The nodes end at R standard deviations beyond 0 and beyond
    the steepest tilt b s_i, R^2 / 2 = 80 + abs(b) log(k + 1). For b > 0, M^b <= (k + 1)^b max_i w_i^b e^(b y_i) puts
    a share of e^-80 (k + 1) of A beyond. For b < 0, M^b <= w_j^b e^(b y_j) for every j: on the left the nodes end where
    the best of these has no more than e^-80 left; on the right M >= 1.
    """
    b = jnp.where(reverse, 1.0 - a, a)
    s = shifts / noise
    s = jnp.where(weights > 0, s, 0.0)
    w = weights / weights.sum()
    count = s.shape[0] + 1
    reach = jnp.sqrt(2.0 * (80.0 + jnp.abs(b) * math.log(count)))
    largest = s.max()
    high = jnp.maximum(b, 2.0) * largest + reach
    weight = jnp.where(w > 0, b * jnp.log(jnp.where(w > 0, w, 1.0)) + 0.5 * b * (b - 1.0) * s**2, jnp.inf)
    ends = b * s - jnp.sqrt(2.0 * (80.0 + jnp.maximum(weight, 0.0)))
    low = jnp.where(reverse, ends.max(), -reach)
    step = (high - low) / (_NODES - 1)
    x = low + step * jnp.arange(_NODES)
    y = s * x[:, None] - 0.5 * s**2
    logs = jnp.where(w > 0, y + jnp.log(jnp.where(w > 0, w, 1.0)), -jnp.inf)
    u = jax.nn.logsumexp(logs, axis=-1)
    excess = (w * jnp.expm1(jnp.minimum(y, 600.0))).sum(-1)
    near = jnp.abs(excess) < 0.5
    u = jnp.where(near, log1p(jnp.where(near, excess, 0.0)), u)
    excess = jnp.where(u < 600.0, excess, 1e300)
    parts = log_remainder(excess, u, u, b) - 0.5 * x**2
    value = jax.nn.logsumexp(parts) + jnp.log(step) - 0.5 * math.log(2.0 * math.pi)
    value = value + 1e-12 + 16.0 * EPS * jnp.maximum(low**2, high**2)

    log_total = jnp.logaddexp(0.0, value)
    height = jnp.minimum(jnp.pi / (3.0 * jnp.maximum(largest, 1e-300)), 2.0 * jnp.pi / step)
    digits = 2.0 * jnp.pi * height / step
    scale = jnp.logaddexp(jnp.log(2.0) * jnp.maximum(-b, 0.0) + log_total, jnp.log(1.0 + 2.0 * jnp.abs(b)))
    aliased = jnp.log(2.0) + 0.5 * height**2 + scale - jnp.log(jnp.expm1(jnp.minimum(digits, 600.0)))
    aliased = jnp.where(digits > 1.0, aliased, jnp.inf)
    left_out = jnp.where(reverse, 2.0 * jnp.log(a) - 76.0, log_total - 66.0)
    # The discrete total has the aliasing error itself: inflate by e where that is small, else it is inf anyway.
    total = jax.nn.logsumexp(jnp.stack([value, aliased + 1.0, left_out]))
    numeric = jnp.logaddexp(0.0, total)

    # A <= sum_i w_i e^(a (a-1) s_i^2 / 2) by convexity of x^a and of x^(1-a).
    c = 0.5 * a * (a - 1.0) * s**2
    mean = (w * jnp.expm1(jnp.minimum(c, 600.0))).sum()
    overall = jax.nn.logsumexp(jnp.where(w > 0, c + jnp.log(jnp.where(w > 0, w, 1.0)), -jnp.inf))
    convex = inflated(jnp.where(c.max() < 600.0, log1p(mean), overall), 1e-12)
    value = inflated(jnp.minimum(jnp.where(jnp.isnan(numeric), jnp.inf, numeric), convex) / (a - 1.0), 4.0 * EPS)
    good = (noise > 0) & (noise < jnp.inf) & (a > 1) & (a < jnp.inf) & jnp.all((weights >= 0) & (shifts >= 0))
    good &= (jnp.abs(weights.sum() - 1.0) < 1e-8) & (largest < jnp.inf)
    return jnp.where(good & ~jnp.isnan(value), value, jnp.inf)


def mixture_curve(mechanism: MixtureOfGaussians, order: ArrayLike, relation: str, rate: ArrayLike = 1.0) -> Array:
    """The curve of ``mechanism`` on a Poisson sample of ``rate``: a mixture with 1 - rate more weight at 0.

    `add_or_remove` is the larger of both directions.
    """
    shape = jnp.broadcast_shapes(*(jnp.shape(leaf) for leaf in jax.tree.leaves((mechanism, order, rate))))
    flat = lambda value: jnp.broadcast_to(jnp.asarray(value, jnp.float64), shape).reshape(-1)  # noqa: E731
    rate = flat(rate)
    rate = jnp.where((rate >= 0) & (rate <= 1), rate, jnp.nan)
    shifts = jnp.stack([jnp.zeros_like(rate), *(flat(value) for value in mechanism.sensitivities)], -1)
    weights = jnp.stack([1.0 - rate, *(rate * flat(value) for value in mechanism.weights)], -1)
    noise, orders = flat(mechanism.sigma), flat(order)
    directions: list[Any] = {"remove": [False], "add": [True]}.get(relation, [False, True])
    found = [_curve(noise, shifts, weights, orders, jnp.full(noise.shape, side)) for side in directions]
    return jnp.max(jnp.stack(found), 0).reshape(shape)
