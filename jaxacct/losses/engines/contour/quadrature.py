"""The tilted loss of a (Poisson-sampled) Gaussian as some hundred weighted points, with certified errors.

With t the output in units of the noise, mu = 1 / s, u = mu t - mu^2 / 2 and R(t) = 1 - q + q e^u, the loss is
log R (`remove`) or -log R (`add`), and E_P[exp(z L)] = A(b) = E_{t ~ N(0,1)}[R^b] with b = 1 + z or b = -z.
For z = theta + i w, beta = Re b:

*The taper* (:mod:`jaxacct.losses.engines.contour.taper`). For `remove`, a smooth weight 0 < g(t) <= 1 that falls off
beyond ``cut`` stands beside the normal density: large and unlikely losses, which a tilt may turn into a second mode
far out, are left out of the law, and their probability is charged instead.

*The trapezoid rule* of step h over all multiples of h. R has no zero in the strip |Im t| < pi / mu. On Im t = y,
with v = mu y < pi and the derivative p = q e^u / R of log R in u at Re t,

    |R|^2 = R(Re t)^2 (1 - 4 p (1 - p) sin(v / 2)^2),    |arg R| <= p v where p <= 1/2, and <= v everywhere:

the derivative of arg R in v is (r cos v + r^2) / (1 + 2 r cos v + r^2) with r = p / (1 - p), which for r <= 1 is
largest at v = 0. So the integrand's modulus there is at most

    exp(k y^2 / 2 + |w| |arg R|) (1 - 4 p (1 - p) sin(v / 2)^2)^(min(beta, 0) / 2)

times the real integrand, with k = 1, and more with a taper. Its integral is bounded cell by cell, and the rule errs
by at most 2 / (exp(2 pi y / h) - 1) times that (Trefethen and Weideman 2014, Theorem 5.1), for every such y.

*Truncation.* Outside the points the integrand is bounded on cells: t^2 / 2 is convex, log R is increasing and convex,
log g is decreasing and below a concave function.

*Decay.* |E exp(i w L)| under the tilted law is needed for every large w at once. A law that contains, as a
mixture, uniform laws of masses m_k on intervals of lengths l_k has |phi(w)| <= 1 - sum_k m_k s(w l_k / 2) with
s(x) <= 1 - |sin x / x| increasing. The uniform pieces are the layers under a step function below the loss's density
("layer cake"): for a normal law they give 1 - 0.375 w^2 sigma^2, where the truth is 1 - 0.5 w^2 sigma^2.

The proof, with every constant: docs/proofs/quadrature.md.

Arrays have any leading axes, the same for a pair's leaves, theta and cut; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import array_module, histogram, logsumexp, product, running_least, stopped
from jaxacct._numerics.least import first_least
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.losses.engines.contour.taper import CURVATURE, log_taper, log_taper_above, log_taper_slope, steepened
from jaxacct.mechanisms.pairs.sampled_loss import log_rest

__all__ = [
    "Points",
    "Quadrature",
    "decay",
    "layers_of",
    "log_moments",
    "placed",
    "quadrature",
    "rough_cumulants",
    "rough_log_moment",
]

Array = Any  # NumPy's or JAX's

_NEAR = 48.0  # standard deviations that equal cells cover at most; others are wider from one to the next
_CELLS, _ROUGH_CELLS = (96, 24), (32, 8)  # numbers of both
_REST = 60.0  # standard deviations beyond what can matter, for what a strip multiplies
_LADDER = 48
_RUNG = 0.35  # log ratio of neighbouring layers
_TINY_LAYER = 1e-6  # the mass of one that the decay may do without
_HALF_LOG_2PI = 0.9189385332046728
_HEIGHTS = np.array([0.08, 0.2, 0.4, 0.7, 1.0])  # of the strip, of the highest that may be of use


class Points(NamedTuple):
    """Where a quadrature looks at the integrand: shape ``(..., S)`` for points, ``(..., C)`` for cells.

    Attributes:
        t: equally spaced points, exact float64 numbers; ``step`` is their distance, shape ``(...)``.
        psi: log R there, within ``off``; ``slope`` is its derivative in u.
        log_base: log of the normal density times the taper, without the density's constant.
        off: bound on the rounding error of psi.
        edge_psi: log R at the edges of cells over all that can matter, shape ``(..., C + 1)``.
        edge_base: upper bounds of ``log_base`` at the edges.
        cell_base: upper bounds of ``log_base`` on the cells.
        tangent: that of ``edge_base``, a concave function, at a cell's left end, taken at its right end.
        edge_slope: p at the edges.
        cells: log of the widths of the cells.
        uncovered: the same, two steps more, of cells that the points do not cover; -inf for the others.
        low, high: the first edge and the last.
    """

    t: Array
    step: Array
    psi: Array
    slope: Array
    log_base: Array
    off: Array
    edge_psi: Array
    edge_base: Array
    cell_base: Array
    tangent: Array
    edge_slope: Array
    cells: Array
    uncovered: Array
    low: Array
    high: Array


class Quadrature(NamedTuple):
    """``|sum_i weights_i exp(i w losses_i) - phi(w)| <= error`` for the law tilted by theta at w = 0, d, 2 d, ...

    Attributes:
        log_total: log of E_P[exp(theta L)], within the first error of it.
        weights: shape ``(..., S)``, non-negative, total 1 up to rounding.
        losses: loss minus ``mean``, shape ``(..., S)``.
        mean: the tilted mean that was taken off; exactly the number that must be added back.
        error: shape ``(..., nodes)``.
        layer_masses, layer_lengths: uniform pieces of the law of the loss, shape ``(..., layers)``.
    """

    log_total: Array
    weights: Array
    losses: Array
    mean: Array
    error: Array
    layer_masses: Array
    layer_lengths: Array


def _log_ratio(q: Array, rest: Array, u: Array) -> tuple[Array, Array]:
    """log(1 - q + q e^u) and its derivative in u; ``rest`` is 1 - q."""
    xp = array_module(u)
    small = q * xp.expm1(xp.minimum(u, 40.0))
    near = xp.abs(small) < 0.5
    sampled = rest > 0.0  # a rate of 1 is kept away from log(0), whose derivative is none
    least, log_shifted = log_rest(xp.where(sampled, q, 0.5), xp.where(sampled, rest, 0.5)), xp.log(q) + u
    apart = log_shifted - least
    less = xp.exp(-xp.abs(apart))
    far = xp.maximum(least, log_shifted) + log1p(less)
    whole = u - (q - 1.0) * xp.expm1(xp.minimum(-u, 700.0))  # u, and its derivative in q at q = 1
    value = xp.where(near, log1p(xp.where(near, small, 0.0)), xp.where(sampled, far, whole))
    return value, xp.where(sampled, xp.where(apart > 0, 1.0, less) / (1.0 + less), 1.0)


def _slope_at_0(pair: Any, mu: Array) -> Array:
    """The derivative of log R in u at t = 0, within a few units."""
    xp = array_module(mu)
    sampled = pair.rate * xp.exp(-0.5 * mu * mu)
    return xp.where(pair.rest > 0.0, sampled / (xp.where(pair.rest > 0.0, pair.rest, 1.0) + sampled), 1.0)


def _exponent(pair: Any, theta: Array) -> Array:
    return array_module(theta).where(pair.reverse > 0.5, -theta, 1.0 + theta)


def _edges(pair: Any, beta: Array, cut: Array, digits: Array, cells: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Edges of cells over all that can matter, u there, and an upper bound of the log taper.

    The log integrand's slope is -t + beta mu slope(t) with slope in (0, 1) increasing. So beyond
    max(beta mu, 0) + reach, and below -reach - max(-beta, 0) mu slope(0), it falls faster than a normal density
    does ``reach`` standard deviations out. A taper makes it fall earlier, by its own smaller standard deviation.
    """
    xp = array_module(beta)
    mu = 1.0 / pair.noise
    reach = xp.sqrt(2.0 * digits) + 1.0
    slope = _slope_at_0(pair, mu)
    low = xp.minimum(beta * mu * slope, 0.0) - reach
    most = xp.maximum(beta * mu, 0.0)
    high = xp.minimum(most + reach, steepened(most + CURVATURE**0.5 * reach, cut))
    low = xp.minimum(low, high - 1.0)
    near = xp.minimum(high - low, _NEAR)[..., None]
    low, high = low[..., None], high[..., None]
    equal, wider = cells
    growth = 6.0 ** (4.0 / wider)
    shares = (growth ** np.arange(1, wider + 1) - 1.0) / (growth**wider - 1.0)
    far = low + near + (high - low - near + _REST) * shares
    t = xp.concatenate([low + near * (np.arange(equal + 1) / equal), far], -1)
    return t, mu[..., None] * t - (0.5 * mu * mu)[..., None], log_taper_above(t, cut[..., None])


def rough_log_moment(pair: Any, theta: Array, cut: Array) -> Array:
    """K of the loss at tilt theta, certified by nothing: to choose by. inf where the cells are too wide."""
    return _rough_law(pair, theta, cut)[0]


def rough_cumulants(pair: Any, theta: Array, cut: Array) -> tuple[Array, Array, Array]:
    """K, K' and K'', as :func:`rough_log_moment`."""
    xp = array_module(theta)
    log_total, weights, loss, lost = _rough_law(pair, theta, cut)
    mean = (weights * loss).sum(-1)
    variance = (weights * (loss - mean[..., None]) ** 2).sum(-1)
    return log_total, xp.where(lost, np.inf, mean), variance


def _rough_law(pair: Any, theta: Array, cut: Array) -> tuple[Array, Array, Array, Array]:
    """K, the tilted law's weights and losses, and where the cells are too wide."""
    xp = array_module(theta)
    beta = _exponent(pair, theta)
    t, u, taper = _edges(pair, beta, cut, xp.full_like(beta, 32.0), _ROUGH_CELLS)
    q = pair.rate[..., None]
    small = q * (xp.exp(xp.minimum(u, 40.0)) - 1.0)  # expm1 and log1p would take most of the time
    series = small * (1.0 - small * (0.5 - small / 3.0))
    psi = xp.where(u > 40.0, xp.log(q) + u, xp.where(xp.abs(small) < 1e-3, series, xp.log(1.0 + small)))
    log_weight = -0.5 * t**2 + taper + beta[..., None] * psi
    top = log_weight.max(-1)
    widths = t[..., 1:] - t[..., :-1]
    none = xp.zeros_like(widths[..., :1])
    spans = 0.5 * (xp.concatenate([widths, none], -1) + xp.concatenate([none, widths], -1))
    weights = xp.exp(log_weight - top[..., None]) * spans
    total = weights.sum(-1)
    lost = weights[..., _ROUGH_CELLS[0] + 1 :].sum(-1) > 1e-3 * total
    log_total = xp.where(lost, np.inf, top + xp.log(total) - _HALF_LOG_2PI)
    loss = xp.where(pair.reverse[..., None] > 0.5, -psi, psi)
    return log_total, weights / total[..., None], loss, lost


def placed(pair: Any, theta: Array, size: int, digits: Array, cut: Array) -> Points:
    """Equally spaced points where the integrand of tilt theta matters, and bounds on what lies outside.

    Args:
        pair: a GaussianPair.
        theta: tilt.
        size: number of points, static.
        digits: how many e-foldings below its peak the integrand is still looked at.
        cut: where the taper falls off; inf for none.
    """
    xp = array_module(theta)
    beta = _exponent(pair, theta)
    # Where the points lie changes no integral, so derivatives need not know how they were chosen.
    edges, edge_u, edge_taper = _edges(*stopped((pair, beta, cut, digits)), cells=_CELLS)
    edge_psi, edge_slope = _log_ratio(*(x[..., None] for x in stopped((pair.rate, pair.rest))), edge_u)  # pyright: ignore[reportCallIssue]
    edge_base = -0.5 * edges**2 + edge_taper
    left, right = edges[..., :-1], edges[..., 1:]
    square = xp.where((right > 0) & (left < 0), 0.0, xp.minimum(right**2, left**2))
    cell_base = -0.5 * square + edge_taper[..., :-1]
    tangent = edge_base[..., :-1] + (log_taper_slope(left, cut[..., None]) - left) * (right - left)
    power = stopped(beta)[..., None] * edge_psi
    bounds = edge_psi[..., :-1], edge_psi[..., 1:], edge_base[..., :-1], cell_base, tangent
    most = _cell_bounds(stopped(beta), *bounds)
    kept = most > (edge_base + power).max(-1, keepdims=True) - digits[..., None]
    low = xp.where(kept, left, np.inf).min(-1)
    high = xp.where(kept, right, -np.inf).max(-1)
    # A step of 24 bits, and whole multiples of it: the points carry no rounding error.
    step = (high - low) / (size - 2)
    step = (inflated(step, 2.0**-23)).astype(np.float32).astype(np.float64)
    first = xp.floor(low / step)
    t = (first[..., None] + np.arange(size)) * step[..., None]
    covered = (left >= t[..., :1]) & (right <= t[..., -1:])
    uncovered = xp.where(covered, -np.inf, xp.log(right - left + 2.0 * step[..., None]))

    mu, q = 1.0 / pair.noise[..., None], pair.rate[..., None]
    u = mu * t - 0.5 * mu * mu
    psi, slope = _log_ratio(q, pair.rest[..., None], u)
    # psi is off by units of itself, the rate's among them, and by what u's rounding and the noise's, damped by the
    # slope, make of it: docs/proofs/parameters.md, lemma 6.
    sure = xp.where(pair.rest == 0.0, 16.0, 48.0)[..., None] * xp.abs(psi)
    off = UNIT * (sure + 16.0 * slope * (1.0 + xp.abs(xp.log(q)) + xp.abs(mu * t) + mu * mu))
    log_base = -0.5 * t**2 + log_taper(t, cut[..., None])
    cells = edge_psi, edge_base, cell_base, tangent, edge_slope, xp.log(right - left), uncovered
    return Points(t, step, psi, slope, log_base, off, *cells, left[..., 0], right[..., -1])


def _cell_bounds(beta: Array, left: Array, right: Array, base: Array, cell_base: Array, tangent: Array) -> Array:
    """Log of the largest integrand on each cell, without the density's constant; see :class:`Points`.

    ``left``, ``right`` are psi at the cells' ends, ``base`` is the rest at the left one. psi is increasing and convex
    in t. So for beta > 0 its chord and the tangent of the rest are an upper bound.
    """
    xp = array_module(beta)
    left, right = beta[..., None] * left, beta[..., None] * right
    growing = xp.maximum(base + left, tangent + right)
    return xp.where(beta[..., None] > 0, growing, cell_base + xp.maximum(left, right))


def _largest(beta: Array, points: Points, cells: Any = slice(None)) -> Array:
    ends = points.edge_psi[..., :-1], points.edge_psi[..., 1:], points.edge_base[..., :-1]
    return _cell_bounds(beta, *(x[..., cells] for x in (*ends, points.cell_base, points.tangent)))


def _beyond(pair: Any, beta: Array, cut: Array, points: Points) -> list[Array]:
    """Logs of bounds on the integral, and on the rule's sum, below the cells and above them, for any ``beta``.

    The log integrand falls there at least as fast as a normal density's from where it stands, a standard deviation
    out or more: see ``_edges``. A sum over points of step exp(-x - x^2 / 2), x > 0, is at most 1.26 + step. At a tilt
    for which the cells were not made they may be too short.
    """
    xp = array_module(beta)
    mu = 1.0 / pair.noise
    slope = _slope_at_0(pair, mu)
    enough = points.high >= steepened(xp.maximum(beta * mu, 0.0) + 1.0, cut)
    enough &= points.low <= xp.minimum(beta * mu * slope, 0.0) - 1.0
    ends = [points.edge_base[..., i] + beta * points.edge_psi[..., i] for i in (0, -1)]
    return [xp.where(enough, end + xp.log(1.26 + points.step), np.inf) for end in ends]


def _outside(pair: Any, beta: Array, cut: Array, points: Points) -> Array:
    """Log of a bound on the integral, and on the rule's sum, outside the points, for any ``beta``."""
    xp = array_module(beta)
    some = slice(None)
    if xp is np:  # what points cover everywhere counts for nothing, and takes half the time
        some = np.flatnonzero(~(points.uncovered == -np.inf).all(tuple(range(points.uncovered.ndim - 1))))
    cells = logsumexp(_largest(beta, points, some) + points.uncovered[..., some])
    return xp.logaddexp(cells, xp.logaddexp(*_beyond(pair, beta, cut, points))) - _HALF_LOG_2PI


def _heights(pair: Any, cut: Array, step: Array) -> tuple[Array, Array]:
    """v of strips, and log(2 / (exp(2 pi y / h) - 1)) + k y^2 / 2; shape ``(..., heights)``."""
    xp = array_module(step)
    mu, step = 1.0 / pair.noise[..., None], step[..., None]
    curvature = xp.where(cut < np.inf, CURVATURE, 1.0)[..., None]
    v = _HEIGHTS * xp.minimum(0.985 * np.pi, mu * (2.0 * np.pi) / (step * curvature))
    turns = 2.0 * np.pi * v / (mu * step)
    # log 2 - x - log(1 - e^-x) <= 1.2 - x for x >= 1; otherwise the bound is useless anyway.
    return v, xp.where(turns > 1.0, 1.2 - turns + 0.5 * curvature * (v / mu) ** 2, np.inf)


def _strip_at_0(pair: Any, beta: Array, cut: Array, step: Array) -> Array:
    """The trapezoid rule's relative error at frequency 0, with |R| >= R(Re t) cos(v / 2)."""
    xp = array_module(beta)
    v, log_error = _heights(pair, cut, step)
    log_error = log_error + xp.minimum(beta, 0.0)[..., None] * xp.log(xp.cos(0.5 * v))
    return xp.exp(xp.minimum(log_error.min(-1), 700.0))


def _room(pair: Any, beta: Array, points: Points) -> Array:
    """What log integrand and log slope are off by at a point or an edge: docs/proofs/quadrature.md, lemma 6."""
    xp = array_module(beta)
    mu = 1.0 / pair.noise
    size = (xp.abs(points.edge_base) + xp.abs(beta[..., None] * points.edge_psi)).max(-1)
    farthest = xp.maximum(xp.abs(points.low), xp.abs(points.high))
    off = 1.0 + xp.abs(xp.log(pair.rate)) + mu * (farthest + mu)
    return 1e-9 + 64.0 * UNIT * (size + (1.0 + xp.abs(beta)) * off)


def _strip(
    pair: Any, beta: Array, cut: Array, points: Points, log_total: Array, spacing: Array, nodes: int, room: Array
) -> Array:
    """The trapezoid rule's error at ``nodes`` multiples of ``spacing``, relative to A(beta)."""
    xp = array_module(beta)
    v, log_error = _heights(pair, cut, points.step)
    # What lies beyond the cells is two more cells, where p is between 0 and 1.
    one = xp.ones_like(points.edge_slope[..., :1])
    slopes = inflated(xp.concatenate([0.0 * one, points.edge_slope, one], -1), room[..., None])
    left, right = slopes[..., :-1], slopes[..., 1:]
    turned = xp.where(right < 0.5, right, 1.0)  # |arg R| / v
    bent = inflated(
        xp.maximum(left * (1.0 - left), right * (1.0 - right)), 8.0 * room[..., None]
    )  # p (1 - p), the largest on a cell
    bent = xp.where((left < 0.5) & (right > 0.5), 0.25, bent)
    below, above = (x[..., None] for x in _beyond(pair, beta, cut, points))
    masses = xp.concatenate([below, _largest(beta, points) + points.cells, above], -1)
    masses = masses - (log_total + _HALF_LOG_2PI)[..., None]

    # Axes: heights, frequencies that grow by factors of 4, cells.
    power = 0.5 * xp.minimum(beta, 0.0)[..., None, None]
    shrunk = power * log1p(-4.0 * bent[..., None, :] * xp.sin(0.5 * v)[..., None] ** 2)
    still = (masses[..., None, :] + shrunk)[..., None, :]
    per_frequency = (turned[..., None, :] * v[..., None])[..., None, :]
    edges = np.concatenate([[0.0], nodes / 4.0 ** np.arange(int(np.log2(nodes) / 2), -1, -1)])
    ends = (edges * spacing[..., None])[..., None, :, None]
    logs = log_error[..., None] + logsumexp(still + per_frequency * ends)
    # A sum of exponentials is log-convex in the frequency: below its chords.
    index = np.arange(nodes)
    block = np.searchsorted(edges, index, side="right") - 1
    share = (index - edges[block]) / (edges[block + 1] - edges[block])
    between = logs[..., block] * (1.0 - share) + logs[..., block + 1] * share
    between = xp.where(xp.isnan(between), np.inf, between).min(-2)
    return xp.exp(xp.minimum(between + 2.0 * room[..., None], 700.0))


def _weighed(pair: Any, beta: Array, cut: Array, points: Points) -> tuple[Array, Array, Array, Array]:
    """Weights and their total, the log of the integral, and its relative error but for the strip's."""
    xp = array_module(beta)
    size = points.t.shape[-1]
    power = beta[..., None] * points.psi
    log_weight = points.log_base + power
    top = log_weight.max(-1)
    weights = xp.exp(log_weight - top[..., None])
    total = weights.sum(-1)
    log_total = top + xp.log(total) + xp.log(points.step) - _HALF_LOG_2PI
    square = 0.5 * points.t**2
    # Two errors of a point's logarithm: one that the tilt does not change, and one that is in proportion to beta.
    fixed = UNIT * (24.0 + 8.0 * square + 16.0 * xp.abs(points.log_base + square))
    tilted = points.off + 4.0 * UNIT * xp.abs(points.psi)
    means = product(weights[..., None, :], xp.stack([fixed, tilted], -1))[..., 0, :] / total[..., None]
    rounding = means[..., 0] + xp.abs(beta) * means[..., 1]
    rounding = rounding + UNIT * (2.0 * size + 32.0 + 8.0 * xp.abs(top - log_total))
    outside = _outside(*stopped((pair, beta, cut, points)))
    return weights, total, log_total, rounding + 2.0 * xp.exp(xp.minimum(outside - log_total, 700.0))


def _thinned(points: Points) -> Points:
    """Every second point: the rule of twice the step."""
    half = {name: getattr(points, name)[..., ::2] for name in ("t", "psi", "slope", "log_base", "off")}
    return points._replace(step=2.0 * points.step, **half)


def log_moments(pair: Any, tilts: Array, cut: Array, points: Points) -> Array:
    """Upper bounds of K(t) = log E_P[exp(t L)] at ``tilts`` of shape ``(N, ...)``; inf where the points do not suit."""
    xp = array_module(tilts)
    points = _thinned(points)
    beta = _exponent(pair, tilts)
    _, _, log_total, relative = _weighed(pair, beta, cut, points)
    error = relative + _strip_at_0(pair, beta, cut, points.step)
    # The rule's sum is at least (1 - error) of the integral.
    return xp.where(error < 0.5, log_total + 2.0 * error, np.inf)


def quadrature(pair: Any, theta: Array, cut: Array, points: Points, spacing: Array, nodes: int) -> Quadrature:
    """The law of the tapered loss, tilted by theta, on ``points``; errors at ``nodes`` multiples of ``spacing``.

    Every constant is counted in docs/proofs/quadrature.md.
    """
    xp = array_module(theta)
    mu = 1.0 / pair.noise
    beta = _exponent(pair, theta)
    psi = points.psi
    weights, total, log_total, relative = _weighed(pair, beta, cut, points)
    weights = weights / total[..., None]
    loss = xp.where(pair.reverse[..., None] > 0.5, -psi, psi)
    mean = (weights * loss).sum(-1)
    centred = loss - mean[..., None]
    phase = (weights * (points.off + 8.0 * UNIT * (xp.abs(loss) + xp.abs(mean)[..., None]))).sum(-1)
    still = stopped((pair, beta, cut, points))
    base = _strip_at_0(pair, beta, cut, points.step) + 2.0 * relative
    room = stopped(_room(pair, beta, points))
    strip = _strip(*still, log_total=stopped(log_total), spacing=spacing, nodes=nodes, room=room)
    frequencies = np.arange(nodes) * spacing[..., None]
    # Weights are those of the computed total, whose own error counts a second time; second-order terms are a fiftieth.
    wrong = xp.where((base < 0.01) & (room < 0.1), 2.0 * strip[..., 0] + 2.05 * relative, np.inf)[..., None]
    error = 2.0 * strip + wrong + frequencies * phase[..., None]
    masses, lengths = _layers(*stopped((points, mu, beta[..., None] * psi, log_total + 2.0 * base, room)))
    return Quadrature(log_total, weights, centred, mean, error, masses, lengths)


def _layers(points: Points, mu: Array, power: Array, log_total: Array, room: Array) -> tuple[Array, Array]:
    """Uniform pieces under the density of the tilted loss: masses and lengths.

    On a cell the normal density, the taper and the power are least at an end; d loss / dt = mu slope is largest at
    the right end, and integrates to at least step mu times the geometric mean of its ends (it is log-concave).
    """
    xp = array_module(power)
    mu, slope, room = mu[..., None], points.slope, room[..., None]
    # The density is unimodal: where it is least on a cell it is at an end as well, with the taper.
    base = xp.minimum(points.log_base[..., 1:], points.log_base[..., :-1])
    least = base + xp.minimum(power[..., 1:], power[..., :-1]) - log_total[..., None] - _HALF_LOG_2PI
    lengths = deflated(points.step[..., None] * mu * xp.sqrt(slope[..., 1:] * slope[..., :-1]), room)
    return layers_of(xp.where(lengths > 1e-280, least - xp.log(mu * slope[..., 1:]) - 4.0 * room, -np.inf), lengths)


def layers_of(density: Array, lengths: Array) -> tuple[Array, Array]:
    """Uniform pieces, masses and lengths, under a step function: log ``density`` on neighbouring ``lengths``."""
    xp = array_module(density)
    hill = _hill(density)
    rest = density + log1p(-xp.exp(hill - density))
    rest = xp.where(xp.isfinite(density) & (rest > -700.0), rest, -np.inf)
    # A tilted law often has two modes; what the hill around the higher one leaves is a second hill.
    first, second = _cake(hill, lengths), _cake(_hill(rest), lengths)
    return xp.concatenate([first[0], second[0]], -1), xp.concatenate([first[1], second[1]], -1)


def _hill(density: Array) -> Array:
    """The largest unimodal step function below ``density`` with its peak where that one has it, in logarithms."""
    xp = array_module(density)
    index = np.arange(density.shape[-1], dtype=np.int32)
    at = first_least(-density)[..., None]
    left = running_least(xp.where(index <= at, density, np.inf), reverse=True)
    right = running_least(xp.where(index >= at, density, np.inf))
    return xp.where(index <= at, left, right)


def _cake(hill: Array, lengths: Array) -> tuple[Array, Array]:
    """Layers of a unimodal step function: masses and lengths."""
    xp = array_module(hill)
    peak = hill.max(-1, keepdims=True)
    good = xp.isfinite(peak)
    peak = xp.where(good, peak, 0.0)
    rungs = peak - _RUNG * np.arange(_LADDER) - 1e-9  # which makes good for the rounding of `drop`
    # The first rung that a step reaches; what is too low goes to a place that is dropped.
    drop = xp.where(xp.isfinite(hill), (peak - hill) / _RUNG, _LADDER)
    first = xp.ceil(xp.clip(drop, 0.0, _LADDER)).astype(np.int32)
    inside = deflated(xp.cumsum(histogram(first, lengths, _LADDER + 1)[..., :-1], -1), 1e-9)
    masses = deflated(xp.exp(rungs) * (1.0 - np.exp(-_RUNG)) * inside, 1e-9)
    return xp.where(good, masses, 0.0), xp.where(good, inside, 0.0)


def decay(masses: Array, lengths: Array, frequency: Array) -> Array:
    """A lower bound of 1 - |phi(w)| for all |w| >= ``frequency`` (quadrature.md, lemma 7); frequencies on an axis."""
    xp = array_module(masses)
    masses = xp.where(masses <= _TINY_LAYER, 0.0, masses)  # a second hill mostly has no others
    if xp is np:
        some = np.flatnonzero(~(masses == 0.0).all(tuple(range(masses.ndim - 1))))
        masses, lengths = masses[..., some], lengths[..., some]
    # With x = w l / 2: x^2 / 8 and 0.7 where that is less, or 1 - 1 / x.
    squares = (frequency * frequency)[..., None] * (lengths * lengths / 32.0)[..., None, :]
    inverses = (2.0 / frequency)[..., None] * (1.0 / lengths)[..., None, :]
    share = xp.maximum(xp.minimum(squares, 0.7), 1.0 - inverses)
    return deflated(product(share, masses[..., None])[..., 0], 1e-9)
