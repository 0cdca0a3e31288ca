"""The Rényi curve of the Gaussian mechanism with random sensitivity, sampled or not."""

from __future__ import annotations

import math

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, Real, column, logsumexp, xp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.mechanisms.pairs.mixture import MixturePair
from jaxacct.mechanisms.renyi.gaussian import log_remainder

_NODES = 2048


def _divergence(noise: Array, shifts: Array, weights: Array, order: Array, reverse: Array) -> Array:
    """Numeric, with its errors added, or by convexity; shifts and weights have a last axis of k terms more.

    With M = dP/dQ: A = E_Q[M^b], b = order (`remove`) or 1 - order (`add`), and A - 1 = E_Q[M^b - 1 - b (M - 1)].
    In standard units Q = N(0, 1) and M(x) = sum_i w_i e^(y_i), y_i = s_i x - s_i^2 / 2, with k terms. What the
    trapezoid rule of step h errs by, and where its nodes end, is docs/proofs/families.md, theorem 5.
    """
    xp, noise, shifts, weights, a = floats(noise, shifts, weights, order)
    b = xp.where(reverse, 1.0 - a, a)
    s = shifts / noise[..., None]
    s = xp.where(weights > 0, s, 0.0)
    w = weights / weights.sum(-1, keepdims=True)
    log_w = xp.log(xp.where(w > 0, w, 1.0))
    count = s.shape[-1] + 1
    reach = xp.sqrt(2.0 * (80.0 + xp.abs(b) * math.log(count)))
    largest = s.max(-1)
    high = xp.maximum(b, 2.0) * largest + reach
    power = b[..., None]
    weight = xp.where(w > 0, power * log_w + 0.5 * power * (power - 1.0) * s**2, np.inf)
    ends = power * s - xp.sqrt(2.0 * (80.0 + xp.maximum(weight, 0.0)))
    low = xp.where(reverse, ends.max(-1), -reach)
    step = (high - low) / (_NODES - 1)
    x = low[..., None] + step[..., None] * np.arange(_NODES)
    # Shape (..., nodes, k).
    y = s[..., None, :] * x[..., None] - 0.5 * s[..., None, :] ** 2
    logs = xp.where(w[..., None, :] > 0, y + log_w[..., None, :], -np.inf)
    u = logsumexp(logs)
    excess = (w[..., None, :] * xp.expm1(xp.minimum(y, 600.0))).sum(-1)
    near = xp.abs(excess) < 0.5
    u = xp.where(near, log1p(xp.where(near, excess, 0.0)), u)
    excess = xp.where(u < 600.0, excess, 1e300)
    parts = log_remainder(excess, u, u, power) - 0.5 * x**2
    value = logsumexp(parts) + xp.log(step) - 0.5 * math.log(2.0 * math.pi)
    value = value + 1e-12 + 16.0 * EPS * xp.maximum(low**2, high**2)

    log_total = xp.logaddexp(0.0, value)
    height = xp.minimum(np.pi / (3.0 * xp.maximum(largest, 1e-300)), 2.0 * np.pi / step)
    digits = 2.0 * np.pi * height / step
    scale = xp.logaddexp(math.log(2.0) * xp.maximum(-b, 0.0) + log_total, xp.log(1.0 + 2.0 * xp.abs(b)))
    aliased = math.log(2.0) + 0.5 * height**2 + scale - xp.log(xp.expm1(xp.minimum(digits, 600.0)))
    aliased = xp.where(digits > 1.0, aliased, np.inf)
    left_out = xp.where(reverse, 2.0 * xp.log(a) - 76.0, log_total - 66.0)
    # The discrete total has the aliasing error itself: inflate by e where that is small, else it is inf anyway.
    total = logsumexp(xp.stack([value, aliased + 1.0, left_out], -1))
    numeric = xp.logaddexp(0.0, total)

    # A <= sum_i w_i e^(a (a-1) s_i^2 / 2) by convexity of x^a and of x^(1-a).
    c = (0.5 * a * (a - 1.0))[..., None] * s**2
    mean = (w * xp.expm1(xp.minimum(c, 600.0))).sum(-1)
    overall = logsumexp(xp.where(w > 0, c + log_w, -np.inf))
    convex = inflated(xp.where(c.max(-1) < 600.0, log1p(mean), overall), 1e-12)
    value = inflated(xp.minimum(xp.where(xp.isnan(numeric), np.inf, numeric), convex) / (a - 1.0), 4.0 * EPS)
    good = (noise > 0) & (noise < np.inf) & (a > 1) & (a < np.inf) & ((weights >= 0) & (shifts >= 0)).all(-1)
    good &= (xp.abs(weights.sum(-1) - 1.0) < 1e-8) & (largest < np.inf)
    return xp.where(good & ~xp.isnan(value), value, np.inf)


_curve = hosted(_divergence, work=lambda noise, shifts, *rest: shifts.size * _NODES)


def mixture_divergence(pair: MixturePair, order: ArrayLike, rate: Real = 1.0, rest: Real = 0.0) -> Array:
    """The divergence of a mixture on a Poisson sample of ``rate``: ``rest`` more weight at 0."""
    shape = np.broadcast_shapes(*settings_shapes((pair, order, rate, rest)))
    pair, orders, rate, rest = flattened((pair, order, rate, rest), shape, xp)
    shifts, weights = pair.sensitivities.values, pair.weights.values
    weights = weights / weights.sum(-1, keepdims=True)
    shifts = xp.concatenate([xp.zeros_like(column(rate)), shifts], -1)
    weights = xp.concatenate([column(rest), column(rate) * weights], -1)
    return _curve(pair.noise, shifts, weights, orders, pair.reverse > 0.5).reshape(shape)
