"""Rényi curves of the Gaussian mechanism and of it on a Poisson sample."""

from __future__ import annotations

import functools
import math

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, logsumexp, xp
from jaxacct._numerics.host import floats, hosted, settings
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, inflated

_TINY = 1e-300
# Of the trapezoid rule; `add` has no finite sum and is used outside loops only.
_NODES = {"remove": 1024, "add": 4096}
_LARGEST_WHOLE = 4096  # above it the binomial sum costs more than the trapezoid rule
_SERIES = 24  # terms of the Taylor series of (1 + w)^b - 1 - b w near w = 0


def _whole(mu: Array, rate: Array, order: Array, log_binomial: Array) -> Array:
    """An upper bound of log(A - 1), A = E_Q[(P/Q)^order], for whole orders; 0 < rate < 1, mu > 0.

    A is the mean of exp(k (k - 1) mu^2 / 2) over k ~ Binomial(order, rate) (Mironov, Talwar, Zhang 2019,
    section 3.1), so A - 1 is the mean of expm1 of it: every term is positive, and tiny rates lose no digits.
    """
    k = np.arange(log_binomial.shape[-1], dtype=np.float64)
    mu, rate, order = mu[..., None], rate[..., None], order[..., None]
    c = xp.maximum(k * (k - 1) * mu * mu / 2, _TINY)
    gain = c + xp.log(-xp.expm1(-c))  # log(e^c - 1)
    kept, dropped = k * xp.log(rate), (order - k) * log1p(-rate)
    terms = log_binomial + kept + dropped + gain
    # Each term is inflated by what its own rounding can have cost, relative to the size of its parts.
    size = xp.where(xp.isfinite(log_binomial), log_binomial, 0.0) + xp.abs(kept) + xp.abs(dropped) + xp.abs(gain)
    terms = xp.where((k >= 2) & (log_binomial > -np.inf), terms + 8 * EPS * (size + 4), -np.inf)
    return logsumexp(terms) + 1e-14 * (1 + log_binomial.shape[-1] / 64)


def log_remainder(w: Array, u: Array, x: Array, b: Array) -> Array:
    """log of (1 + w)^b - 1 - b w, positive by convexity; u = log1p(w), and x = log(w) where w is huge.

    Where w and b w are not small, the two parts are subtracted, and next to b = 0 and 1 little is left: it is rounded
    up by what they may have lost.
    """
    near = xp.abs(b * w) < 0.25
    near &= xp.abs(w) < 0.25
    v = xp.where(near, w, 0.0)
    # b (b - 1) / 2 w^2 (1 + (b - 2) / 3 w (1 + (b - 3) / 4 w (...)))
    series = xp.ones_like(v)
    for k in range(_SERIES, 2, -1):
        series = 1 + (b - (k - 1)) / k * v * series
    series = xp.log(b * (b - 1) / 2) + 2 * xp.log(xp.maximum(xp.abs(v), _TINY)) + xp.log(series)
    # Away from 0, divide by the larger of (1 + w)^b and 1 + b w before subtracting, so that nothing
    # overflows.
    power = xp.where(near, 1.0, b * u)
    plain = 1 + b * xp.minimum(w, 1e100)
    below = plain < 0  # each branch sees harmless numbers where the other one is taken: gradients stay finite
    # In units of (1 + w)^b: a product, a sum, a logarithm and its multiple, an exponential, and w itself are rounded.
    lost = 4 * EPS * (xp.abs(plain - 1) + plain * (1 + xp.abs(power)))
    share = xp.where(below, 0.0, (plain - lost) * xp.exp(-power))
    by_power = power + log1p(-xp.minimum(share, 1 - EPS))
    linear = xp.where(w > 1e100, xp.log(-xp.minimum(b, -_TINY)) + x, xp.log(xp.maximum(-plain, _TINY)))
    linear = xp.where(below, linear, power)
    linear = linear + log1p(xp.exp(power - linear))
    # (1 + w)^b >= 1 + b w always; for negative `plain` both terms count.
    direct = xp.where(below, linear, by_power)
    return xp.where(near, series, direct)


def _trapezoid(mu: Array, rate: Array, b: Array, nodes: int) -> tuple[Array, Array]:
    """log E_Q[(1 + w)^b - 1 - b w] for w = rate (P/Q - 1), and whether its error is certified small.

    b = order gives `remove`, b = 1 - order gives `add` (E_Q[w] = 0, so the subtraction changes nothing but
    the digits). What the trapezoid rule of step h errs by is docs/proofs/families.md, theorem 4.
    """
    mu, rate, b = mu[..., None], rate[..., None], b[..., None]
    reach = xp.sqrt(144 + 2 * xp.abs(b))  # the mass beyond is below exp(-72), whatever (1 + w)^b adds
    low, high = xp.minimum(b, 0.0) * mu - reach, xp.maximum(b, 2.0) * mu + reach
    step = (high - low) / (nodes - 1)
    t = low + step * np.arange(nodes)
    loss = mu * t - mu * mu / 2
    moderate = xp.minimum(loss, 600.0)
    w = rate * xp.expm1(moderate)
    x = xp.log(rate) + loss
    u = xp.where(loss < 600, log1p(w), x)
    w = xp.where(loss < 600, w, 1e300)
    logs = log_remainder(w, u, x, b) - t * t / 2
    value = logsumexp(logs) + xp.log(step[..., 0]) - 0.5 * math.log(2 * math.pi)
    height = xp.minimum(np.pi / (2 * mu), 2 * np.pi / step)
    digits = 2 * np.pi * height / step - height**2 / 2
    digits -= xp.log(4 + 16 / xp.expm1(mu * mu)) + 0.35 * xp.maximum(2 - b, 0.0)
    # Rounding of the exponents, which are at most of the size of the largest t^2.
    value += 1e-12 + 8 * EPS * xp.maximum(low**2, high**2)[..., 0]
    return value, (digits > 32)[..., 0]


def _work(mu: Array, rate: Array, order: Array, table: Array, direction: str, whole: bool, real: bool) -> int:
    return settings(mu, rate, order) * max(table.shape[-1], _NODES[direction] if real else 1)


@hosted(static=("direction", "whole", "real"), work=_work)
def _sampled(
    mu: Array, rate: Array, order: Array, log_binomial: Array, direction: str, whole: bool, real: bool
) -> Array:
    xp, *args = floats(mu, rate, order)
    mu, rate, order = xp.broadcast_arrays(*args)
    plain = order * mu * mu / 2
    inside = (rate > 0) & (rate < 1) & (mu > 0) & (plain < np.inf) & (order > 1)
    m, q, a = xp.where(inside, mu, 1.0), xp.where(inside, rate, 0.5), xp.where(inside, order, 2.0)

    # x^a is convex, so A <= (1 - q) + q exp(a (a - 1) mu^2 / 2): never better than the exact value, always
    # there.
    c = a * (a - 1) * m * m / 2
    value = inflated(xp.where(c < 600, log1p(q * xp.expm1(xp.minimum(c, 600.0))), xp.log(q) + c), 1e-14)
    value = xp.where((c >= 600) & (q < 1e-200), c, value)
    if whole:
        exact = xp.logaddexp(0.0, _whole(m, q, a, xp.asarray(log_binomial)))
        value = xp.where((a == xp.floor(a)) & (a <= _LARGEST_WHOLE), xp.minimum(exact, value), value)
    if real:
        log_excess, certified = _trapezoid(m, q, a if direction == "remove" else 1 - a, _NODES[direction])
        value = xp.where(certified, xp.minimum(xp.logaddexp(0.0, log_excess), value), value)
    value = xp.where(inside, xp.maximum(inflated(value / (a - 1), 4 * EPS), _TINY), np.inf)
    value = xp.where(rate == 1, inflated(plain, 4 * EPS), value)
    value = xp.where((rate == 0) | (mu == 0), 0.0, value)
    good = (mu >= 0) & (mu < np.inf) & (rate >= 0) & (rate <= 1) & (order > 1) & (order < np.inf)
    return xp.where(good, value, np.inf)


@hosted
def gaussian_divergence(mu: Array, order: Array) -> Array:
    """order * mu^2 / 2, for every relation (Mironov 2017, Proposition 7)."""
    xp, mu, order = floats(mu, order)
    value = xp.where(mu == 0, 0.0, xp.maximum(inflated(order * mu * mu / 2, 4 * EPS), _TINY))
    return xp.where((mu >= 0) & (mu < np.inf) & (order > 1) & (order < np.inf), value, np.inf)


@hosted
def mu_of_noise(sigma: Array, sensitivity: Real = 1.0) -> Array:
    """sensitivity / sigma, rounded up; NaN where either is invalid."""
    xp, sigma, sensitivity = floats(sigma, sensitivity)
    good = (sigma > 0) & (sigma < np.inf) & (sensitivity >= 0) & (sensitivity < np.inf)
    return xp.where(good, inflated(sensitivity / sigma, 2 * EPS), np.nan)


@functools.lru_cache(maxsize=256)
def _log_binomial(orders: tuple[float, ...], shape: tuple[int, ...]) -> np.ndarray:
    """log C(order, k) on a trailing axis; its length is a power of two, so that few programs are compiled."""
    terms = 1 << math.ceil(math.log2(max(orders) + 1))
    table = np.full((len(orders), terms), -np.inf)
    for row, order in enumerate(orders):
        n = int(order)
        for k in range(n + 1):
            table[row, k] = math.log(math.comb(n, k))
    return table.reshape((*shape, terms))


def sampled_gaussian_divergence(mu: Array, rate: ArrayLike, order: ArrayLike, relation: str) -> Array:
    """The curve of a Poisson-sampled Gaussian, see :func:`jaxacct.losses.renyi.renyi`."""
    # For every order the mixture against its base has the larger divergence (Mironov et al. 2019, section 3).
    direction = "add" if relation == "add" else "remove"
    whole, real, table = False, True, np.zeros(1)
    if not _validate.is_traced(order):
        orders = np.asarray(order, np.float64)
        if direction == "remove":
            exact = (orders == np.floor(orders)) & (orders <= _LARGEST_WHOLE)
            whole, real = bool(exact.any()), not bool(exact.all())
            if whole:
                table = _log_binomial(tuple(np.where(exact, orders, 2.0).ravel().tolist()), orders.shape)
    return _sampled(mu, rate, order, table, direction, whole, real)
