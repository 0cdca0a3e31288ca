"""The tilted loss of a (Poisson-sampled) Gaussian as a few hundred weighted points, with certified errors.

With t the output in units of the noise, mu = 1 / s, u = mu t - mu^2 / 2 and R(t) = 1 - q + q e^u, the loss is
log R (`remove`) or -log R (`add`), and E_P[exp(z L)] = A(b) = E_{t ~ N(0,1)}[R^b] with b = 1 + z or b = -z.
For z = theta + i w, beta = Re b:

*The trapezoid rule* of step h over all multiples of h. R has no zero in the strip |Im t| < pi / mu. On
Im t = y, with v = mu y < pi: |R| <= R(Re t), |R| >= R(Re t) cos(v / 2), |arg R| <= v. So the integrand's modulus
there is at most exp(y^2 / 2 + |w| v) cos(v / 2)^min(beta, 0) times the real integrand, whose integral is A(beta), and
the rule errs by at most 2 / (exp(2 pi y / h) - 1) times that (Trefethen and Weideman 2014, Theorem 5.1), relative
to A(beta), for every such y.

*Truncation.* Outside the points the integrand is bounded on cells: t^2 / 2 is convex and log R is increasing.

*Decay.* |E exp(i w L)| under the tilted law is needed for every large w at once. A law that contains, as a
mixture, uniform laws of masses m_k on intervals of lengths l_k has |phi(w)| <= 1 - sum_k m_k s(w l_k / 2) with
s(x) <= 1 - |sin x / x| increasing. The uniform pieces are the layers under a step function below the loss's density
("layer cake"): for a normal law they give 1 - 0.375 w^2 sigma^2, where the truth is 1 - 0.5 w^2 sigma^2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct._least import first_least
from jaxacct._log1p import log1p
from jaxacct.mechanisms._pair import UNIT

__all__ = ["Quadrature", "decay", "log_moment", "quadrature", "rough_cumulants"]

_NEAR, _NEAR_CELLS, _FAR_CELLS = 48.0, 96, 24  # cells of half a standard deviation at most, then wider ones
_LADDER = 96
_RUNG = 0.35  # log ratio of neighbouring layers
_HALF_LOG_2PI = 0.9189385332046728
_HEIGHTS = (0.5, 0.75, 0.9, 0.985)  # of the strip, in units of pi


class Quadrature(NamedTuple):
    """``|sum_i weights_i exp(i w losses_i) - phi(w)| <= error(w)`` for the law tilted by theta, every real w.

    Attributes:
        log_total: log of E_P[exp(theta L)], within ``error(0)`` of it.
        weights: shape ``(S,)``, non-negative, total 1 up to rounding.
        losses: loss minus ``mean``, shape ``(S,)``.
        mean: the tilted mean that was taken off; exactly the number that must be added back.
        fixed: part of the error that does not depend on w: rounding and truncation.
        per_frequency: rounding error per unit of w.
        strip: log of the trapezoid rule's error at w = 0, for each height of the strip.
        strip_per_frequency: its growth per unit of |w|.
        layer_masses, layer_lengths: uniform pieces of the law of the loss, shape ``(layers,)``.
    """

    log_total: Array
    weights: Array
    losses: Array
    mean: Array
    fixed: Array
    per_frequency: Array
    strip: Array
    strip_per_frequency: Array
    layer_masses: Array
    layer_lengths: Array

    def error(self, frequency: Array) -> Array:
        """Bound on the error of the sum at frequencies of any shape."""
        w = jnp.abs(frequency)
        strips = jnp.min(self.strip + w[..., None] * self.strip_per_frequency, -1)
        return self.fixed + w * self.per_frequency + jnp.exp(jnp.minimum(strips, 700.0))


def _log_ratio(q: Array, u: Array) -> tuple[Array, Array]:
    """log(1 - q + q e^u) and its derivative in u."""
    small = q * jnp.expm1(jnp.minimum(u, 40.0))
    near = jnp.abs(small) < 0.5
    sampled = q < 1.0  # a rate of 1 is kept away from log(0), whose derivative is none
    log_rest, log_shifted = log1p(-jnp.where(sampled, q, 0.5)), jnp.log(q) + u
    far = jnp.maximum(log_rest, log_shifted) + log1p(jnp.exp(-jnp.abs(log_rest - log_shifted)))
    whole = u - (q - 1.0) * jnp.expm1(jnp.minimum(-u, 700.0))  # u, and its derivative in q at q = 1
    value = jnp.where(near, log1p(jnp.where(near, small, 0.0)), jnp.where(sampled, far, whole))
    return value, jnp.where(sampled, jax.nn.sigmoid(log_shifted - log_rest), 1.0)


def _exponent(pair: Any, theta: Array) -> Array:
    return jnp.where(pair.reverse > 0.5, -theta, 1.0 + theta)


def _cells(pair: Any, beta: Array, digits: Array) -> tuple[Array, Array, Array, Array]:
    """Edges of cells over all that can matter, the loss and the log integrand there, and its bound on each cell.

    The log integrand's slope is -t + beta mu slope(t) with slope in (0, 1) increasing. So beyond
    max(beta mu, 0) + reach, and below -reach - max(-beta, 0) mu slope(0), it falls faster than a normal density
    does ``reach`` standard deviations out.
    """
    mu = 1.0 / pair.noise
    reach = jnp.sqrt(2.0 * digits) + 1.0
    _, slope = _log_ratio(pair.rate, -0.5 * mu * mu)
    low = jnp.minimum(beta * mu * slope, 0.0) - reach
    high = jnp.maximum(beta * mu, 0.0) + reach
    near = jnp.minimum(high - low, _NEAR)
    far = low + near + (high - low - near) * ((1.2 ** np.arange(1, _FAR_CELLS + 1) - 1.0) / (1.2**_FAR_CELLS - 1.0))
    t = jnp.concatenate([low + near * (np.arange(_NEAR_CELLS + 1) / _NEAR_CELLS), far])
    psi, _ = _log_ratio(pair.rate, mu * t - 0.5 * mu * mu)
    square = jnp.where((t[1:] > 0) & (t[:-1] < 0), 0.0, jnp.minimum(t[1:] ** 2, t[:-1] ** 2))
    most = -0.5 * square + jnp.maximum(beta * psi[1:], beta * psi[:-1])
    return t, psi, -0.5 * t**2 + beta * psi, most


def rough_cumulants(pair: Any, theta: Array) -> tuple[Array, Array, Array]:
    """K, K', K'' of the loss at tilt theta, certified by nothing: to choose by. inf where the cells are too wide."""
    t, psi, log_weight, _ = _cells(pair, _exponent(pair, theta), jnp.asarray(32.0))
    loss = jnp.where(pair.reverse > 0.5, -psi, psi)
    top = log_weight.max()
    widths = t[1:] - t[:-1]
    weights = jnp.exp(log_weight - top) * 0.5 * (jnp.pad(widths, (0, 1)) + jnp.pad(widths, (1, 0)))
    total = weights.sum()
    mean = (weights * loss).sum() / total
    variance = (weights * (loss - mean) ** 2).sum() / total
    lost = weights[_NEAR_CELLS + 1 :].sum() > 1e-3 * total
    log_total = top + jnp.log(total) - _HALF_LOG_2PI
    return jnp.where(lost, jnp.inf, log_total), jnp.where(lost, jnp.inf, mean), variance


def _points(pair: Any, beta: Array, size: int, digits: Array):
    """Equally spaced points where the integrand matters, exact float64 numbers, and a bound on what lies outside."""
    edges, _, at_edges, most = _cells(pair, beta, digits)
    kept = most > jnp.max(at_edges) - digits
    low = jnp.min(jnp.where(kept, edges[:-1], jnp.inf))
    high = jnp.max(jnp.where(kept, edges[1:], -jnp.inf))
    # A step of 24 bits, and whole multiples of it: the points carry no rounding error.
    step = (high - low) / (size - 2)
    step = (step * (1.0 + 2.0**-23)).astype(jnp.float32).astype(jnp.float64)
    first = jnp.floor(low / step)
    t = (first + jnp.arange(size)) * step
    inside = (edges[:-1] >= t[0]) & (edges[1:] <= t[-1])
    outside = jax.nn.logsumexp(jnp.where(inside, -jnp.inf, most + jnp.log(edges[1:] - edges[:-1] + step)))
    # Beyond the cells the log integrand falls at least as fast as a normal density's from where it stands:
    # see _cells. A sum over points of step exp(-x^2 / 2), x > 0, is at most 1.26 + step.
    beyond = jnp.logaddexp(at_edges[0], at_edges[-1]) + jnp.log(1.26 + step)
    return t, step, jnp.logaddexp(outside, beyond) - _HALF_LOG_2PI


def _strip(pair: Any, beta: Array, step: Array) -> tuple[Array, Array]:
    """Log of the trapezoid rule's relative error at frequency 0, and its growth per unit, for each height."""
    mu = 1.0 / pair.noise
    v = jnp.asarray(_HEIGHTS) * jnp.pi
    height = jnp.minimum(v / mu, 2.0 * jnp.pi / step)
    v = height * mu
    log_error = 0.5 * height**2 + jnp.minimum(beta, 0.0) * jnp.log(jnp.cos(0.5 * v)) - 2.0 * jnp.pi * height / step
    # log(2 / (e^x - 1)) = log 2 - x - log(1 - e^-x); x >= 1 or the bound is useless anyway.
    return log_error + jnp.where(2.0 * jnp.pi * height > step, 1.2, jnp.inf), v


def _weighed(pair: Any, beta: Array, size: int, digits: Array):
    mu, q = 1.0 / pair.noise, pair.rate
    # Where the points lie changes no integral, so derivatives need not know how they were chosen.
    t, step, log_outside = jax.lax.stop_gradient(_points(pair, beta, size, digits))
    u = mu * t - 0.5 * mu * mu
    psi, slope = _log_ratio(q, u)
    log_weight = -0.5 * t**2 + beta * psi
    top = log_weight.max()
    weights = jnp.exp(log_weight - top)
    total = weights.sum()
    log_total = top + jnp.log(total) + jnp.log(step) - _HALF_LOG_2PI
    weights = weights / total
    # Rounding: psi is off by a few units of itself and by what u's rounding, damped by the slope, makes of it.
    off = 16.0 * UNIT * (jnp.abs(psi) + slope * (1.0 + jnp.abs(jnp.log(q)) + jnp.abs(mu * t) + mu * mu))
    rounding = (weights * (UNIT * (24.0 + 4.0 * t**2 + 4.0 * jnp.abs(beta * psi)) + jnp.abs(beta) * off)).sum()
    rounding += UNIT * (2.0 * size + 32.0 + 8.0 * jnp.abs(top - log_total))
    relative = rounding + 2.0 * jnp.exp(jnp.minimum(log_outside - log_total, 700.0))
    return t, step, psi, slope, weights, log_total, off, relative


def log_moment(pair: Any, theta: Array, size: int, digits: Array) -> Array:
    """An upper bound of K(theta) = log E_P[exp(theta L)]."""
    beta = _exponent(pair, theta)
    _, step, _, _, _, log_total, _, relative = _weighed(pair, beta, size, digits)
    strip, _ = _strip(pair, beta, step)
    error = relative + jnp.exp(jnp.minimum(strip.min(), 700.0))
    # The rule's sum is at least (1 - error) of the integral.
    return jnp.where(error < 0.5, log_total + 2.0 * error, jnp.inf)


def quadrature(pair: Any, theta: Array, size: int, digits: Array) -> Quadrature:
    """The tilted loss on ``size`` points.

    Args:
        pair: a GaussianPair.
        theta: tilt.
        size: number of points, static.
        digits: how many e-foldings below its peak the integrand is still looked at.
    """
    mu = 1.0 / pair.noise
    beta = _exponent(pair, theta)
    t, step, psi, slope, weights, log_total, off, relative = _weighed(pair, beta, size, digits)
    strip, growth = _strip(pair, beta, step)
    base = jnp.exp(jnp.minimum(strip.min(), 700.0))
    loss = jnp.where(pair.reverse > 0.5, -psi, psi)
    mean = (weights * loss).sum()
    centred = loss - mean
    # Weights are those of the computed total: its own error counts a second time.
    fixed = 2.0 * relative + base
    phase = (weights * (off + 8.0 * UNIT * (jnp.abs(loss) + jnp.abs(mean)))).sum()
    masses, lengths = _layers(t, step, mu, beta * psi, slope, log_total + 2.0 * (relative + base))
    return Quadrature(log_total, weights, centred, mean, fixed, phase, strip + 0.7, growth, masses, lengths)


def _layers(t: Array, step: Array, mu: Array, power: Array, slope: Array, log_total: Array) -> tuple[Array, Array]:
    """Uniform pieces under the density of the tilted loss: masses and lengths.

    On a cell the normal density and the power are least at an end; d loss / dt = mu slope is largest at the
    right end, and integrates to at least step mu times the geometric mean of its ends (it is log-concave).
    """
    square = jnp.maximum(t[1:] ** 2, t[:-1] ** 2)
    least = -0.5 * square + jnp.minimum(power[1:], power[:-1]) - log_total - _HALF_LOG_2PI
    lengths = step * mu * jnp.sqrt(slope[1:] * slope[:-1]) * (1.0 - 1e-9)
    density = jnp.where(lengths > 1e-280, least - jnp.log(mu * slope[1:]) - 1e-9, -jnp.inf)
    hill = _hill(density)
    rest = density + log1p(-jnp.exp(hill - density))
    rest = jnp.where(jnp.isfinite(density) & (rest > -700.0), rest, -jnp.inf)
    # A tilted law often has two modes; what the hill around the higher one leaves is a second hill.
    first, second = _cake(hill, lengths), _cake(_hill(rest), lengths)
    return jnp.concatenate([first[0], second[0]]), jnp.concatenate([first[1], second[1]])


def _hill(density: Array) -> Array:
    """The largest unimodal step function below ``density`` with its peak where that one has it, in logarithms."""
    index = jnp.arange(density.shape[0], dtype=jnp.int32)
    at = first_least(-density)
    left = jax.lax.cummin(jnp.where(index <= at, density, jnp.inf), reverse=True)
    right = jax.lax.cummin(jnp.where(index >= at, density, jnp.inf))
    return jnp.where(index <= at, left, right)


def _cake(hill: Array, lengths: Array) -> tuple[Array, Array]:
    """Layers of a unimodal step function: masses and lengths."""
    peak = hill.max()
    rungs = peak - _RUNG * jnp.arange(_LADDER) - 1e-9  # which makes good for the rounding of `drop`
    # The first rung that a step reaches; what is too low goes to a place that is dropped.
    drop = jnp.where(jnp.isfinite(hill), (peak - hill) / _RUNG, _LADDER)
    first = jnp.ceil(jnp.clip(drop, 0.0, _LADDER)).astype(jnp.int32)
    inside = jnp.cumsum(jnp.zeros(_LADDER + 1).at[first].add(lengths)[:-1]) * (1.0 - 1e-9)
    masses = jnp.exp(rungs) * (1.0 - jnp.exp(-_RUNG)) * inside * (1.0 - 1e-9)
    good = jnp.isfinite(peak)
    return jnp.where(good, masses, 0.0), jnp.where(good, inside, 0.0)


def decay(masses: Array, lengths: Array, frequency: Array) -> Array:
    """A lower bound of 1 - |phi(w)| that holds for all |w| >= ``frequency``; frequency of any shape."""
    x = 0.5 * frequency[..., None] * lengths
    share = jnp.maximum(jnp.minimum(x * x / 8.0, 0.7), 1.0 - 1.0 / jnp.maximum(x, 1e-3))
    return (masses * jnp.maximum(share, 0.0)).sum(-1) * (1.0 - 1e-9)
