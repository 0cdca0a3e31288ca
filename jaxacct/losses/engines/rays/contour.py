"""The mean hockey stick of the losses that stay below their thresholds, by an integral over a hyperbola.

With S the sum of W over the runs and M(z) = E_Q[g(W) e^(z W)], for any contour that passes 1 on the right (`remove`) or
0 on the left (`add`),

    E_Q[prod g (e^(S - B) - 1)^+]  or  E_Q[prod g (1 - e^(S - B))^+]  =  1 / (2 pi i) integral of e^(-z B) M(z)^T / (z (z - 1)).

On the hyperbola z = c + lambda (sin(alpha + i xi) - sin(alpha)) the integrand falls off as fast as e^(-B Re z), and M(z) is
an integral over a ray W = rho e^(i beta) on which e^(z W) does not grow. Both are trapezoid sums, and each errs by at
most 2 / (e^(2 pi a / h) - 1) times an integral over the edges of a strip, which is bounded cell by cell. The proof, with
every constant: docs/proofs/rays.md. NumPy only, one composition at a time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.rounding import UNIT
from jaxacct.losses.engines.rays.ray import LOSS_UNITS, Ray, Run, grown, ray, settled, slack_of_t
from jaxacct.losses.engines.rays.threshold import Threshold, kept, kept_bounds, kept_error

__all__ = ["Contour", "Saddle", "contour", "rough", "saddle"]

_DIGITS = 23.0  # e-foldings between the sum and what its strip is charged
_MORE = 31.0  # and between M at the vertex and its own
_FAR, _EDGE_FAR = 26.0, 2.0  # e-foldings below the sum at which it ends, and bounds on a strip
_TRIED = 13  # vertices, three times
_ROWS = 32  # frequencies at once
_CELL, _WIDE = 0.08, 0.05  # cells of the hyperbola and of rays, for bounds


class Saddle(NamedTuple):
    """Where the integrand is least on the real line: a guess.

    Attributes:
        vertex: c.
        log_moment: log M(c).
        log_size: log of the integrand there, without 1 / (2 pi).
        log_value: log of the integral.
    """

    vertex: float
    log_moment: float
    log_size: float
    log_value: float


class Contour(NamedTuple):
    """The terms of the sum and what it may be off by; ``B`` may move.

    Attributes:
        z: frequencies; ``terms`` without e^(-z B); ``off`` of each, absolute; ``units`` in units of itself.
        strips: for either edge of the strip Re z at the lower ends of cells, factors of e^(-B Re z), and the tail.
        end: of the terms that are left out.
    """

    z: np.ndarray
    terms: np.ndarray
    off: np.ndarray
    units: float
    strips: list[tuple[np.ndarray, np.ndarray, _Tail]]
    end: _Tail

    def value(self, away: float) -> tuple[float, float]:
        """The sum at B = ``away`` and its derivative."""
        each = self.terms * np.exp(-self.z * away)
        return float(each.imag.sum()), float((-self.z * each).imag.sum())

    def error(self, away: float, off: float) -> float:
        """What the sum may be off by at a B that is off by ``off``."""
        falls = np.exp(-self.z.real * away)
        size = np.abs(self.z)
        own = self.off + np.abs(self.terms) * (UNIT * (self.units + 24.0 * size * away) + 1.01 * size * off)
        strips = max(float((each * np.exp(-low * away)).sum()) + tail.at(away) for low, each, tail in self.strips)
        return (float((falls * own).sum()) + strips + self.end.at(away)) * (1.0 + 1e-9)


class _Hyperbola(NamedTuple):
    """z = vertex + stretch (sin(angle + i xi) - sin(alpha)); alpha is the angle of the middle one."""

    vertex: float
    stretch: float
    angle: float

    def points(self, xi: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """z and its derivative in xi."""
        sin, cos = math.sin(self.angle), math.cos(self.angle)
        real = self.vertex + self.stretch * (sin * np.cosh(xi) - math.sin(alpha))
        z = real + 1j * (self.stretch * cos * np.sinh(xi))
        return z, self.stretch * (sin * np.sinh(xi) + 1j * cos * np.cosh(xi))

    def until(self, rise: float, alpha: float, beta: float) -> float:
        """A xi at which Re z has risen by so much, and from which on arg z >= pi / 2 - beta."""
        turned = self.stretch * math.sin(beta - self.angle) / math.cos(beta)
        start = max(self.vertex - self.stretch * math.sin(alpha), 0.0)
        last = math.acosh(1.0 + rise / (self.stretch * math.sin(self.angle)))
        return max(last, math.log(1.0 + 2.2 * start / turned) + 0.2)


class _Tail(NamedTuple):
    """A bound of factor * integral of e^(-B Re z) |dz / (z (z - 1))| from xi = ``last`` on."""

    factor: float
    curve: _Hyperbola
    alpha: float
    last: float

    def at(self, away: float) -> float:
        stretch, angle, last = self.curve.stretch, self.curve.angle, self.last
        z, _ = self.curve.points(np.array([last]), self.alpha)
        steep = away * stretch * math.sin(angle) * math.sinh(last)
        kernel = math.cosh(last) / (stretch * math.cos(angle) ** 2 * math.sinh(last) ** 2)
        return self.factor * math.exp(-away * float(z[0].real)) * kernel / steep


def saddle(run: Run, threshold: Threshold, away: float) -> Saddle:
    """On the real line, by sums that nothing certifies."""
    top = math.log(3.0 * threshold.n / threshold.scale / run.scale)
    v = np.arange(min(-14.0 * run.mu, top - 8.0), top, min(0.1, 0.3 * run.mu))
    at = ray(run, 0.0, v, 1.0)
    weight = at.cells * np.diff(v) * np.minimum(kept_rough(threshold, at.size[1:]), 1.0)
    loss = at.size[1:]
    low, high = (math.log(0.02), math.log(3000.0)) if run.add else (math.log(0.02), math.log(0.9 * threshold.scale * away))
    for _ in range(3):
        tried = np.exp(np.linspace(low, high, _TRIED)) / away
        vertex = -tried if run.add else 1.0 + tried
        exponents = np.multiply.outer(vertex, loss)
        peak = exponents.max(1)
        mass = weight * np.exp(exponents - peak[:, None])
        total = mass.sum(1)
        log_moment = peak + np.log(total)
        size = run.count * log_moment - vertex * away - np.log(np.abs(vertex * (vertex - 1.0)))
        best = int(np.argmin(np.where(np.isnan(size), np.inf, size)))
        step = (high - low) / (_TRIED - 1)
        low, high = low + (best - 1) * step, low + (best + 1) * step
    mean = (mass[best] * loss).sum() / total[best]
    variance = (mass[best] * (loss - mean) ** 2).sum() / total[best]
    c = float(vertex[best])
    curvature = run.count * variance + c**-2 + (c - 1.0) ** -2
    value = float(size[best]) - 0.5 * math.log(2.0 * math.pi * curvature)
    return Saddle(c, float(log_moment[best]), float(size[best]), value)


def kept_rough(threshold: Threshold, size: np.ndarray) -> np.ndarray:
    """About g."""
    from scipy.special import gammaincc

    return gammaincc(threshold.n, threshold.scale * size)


def rough(run: Run, threshold: Threshold, away: float, at: Saddle) -> float:
    """The integral to a few digits that nothing certifies."""
    place = _placed(run, threshold, at, 12.0)
    curve, alpha, width = place.curve, place.alpha, 2.0 * math.pi * place.width
    h = width / (12.0 + max(at.log_size - at.log_value, 0.0))
    z, dz = curve.points(h * np.arange(math.ceil(curve.until(14.0 / away, alpha, place.beta) / h) + 1), alpha)
    spacing = 2.0 * math.pi * place.strip / (14.0 + 0.5 * place.turned**2)
    moment, *_ = _moment(run, threshold, z, ray(run, place.beta, _multiples(place.low, place.high, spacing), spacing))
    each = (np.exp(-z * away) * moment**run.count / (z * (z - 1.0)) * dz).imag
    return h / math.pi * float(each.sum() - 0.5 * each[0])


def contour(run: Run, threshold: Threshold, away: float, at: Saddle) -> Contour | None:
    """Around B = ``away``; None where the bounds of this page do not hold."""
    place = _placed(run, threshold, at, _MORE)
    curve, alpha, beta, strip, width = place.curve, place.alpha, place.beta, place.strip, place.width
    v = _multiples(place.low, place.high, _WIDE)
    wide = [ray(run, angle, v, _WIDE) for angle in (beta, beta - strip, beta + strip)]
    if not all(settled(run, one.beta, float(one.size[-1])) for one in wide):
        return None
    base = wide[0]

    # The strip of the hyperbola, which says how fine the sum is to be.
    factor = float(_swept(run, threshold, base, np.zeros(1), np.zeros(1))[0]) ** run.count
    depth = max(math.log(factor) - at.log_value - math.log(curve.stretch) - away * curve.vertex, 0.0)
    rise = (depth + _EDGE_FAR) / away
    edges = [_edge(run, threshold, base, curve._replace(angle=a), alpha, rise, factor) for a in (alpha - width, alpha + width)]
    if any(one is None for one in edges):
        return None
    most = max(float((mass * np.exp(-x * away)).sum()) for x, mass, _ in edges)
    digits = math.log(most) - at.log_value + _DIGITS
    if not digits < 120.0:
        return None
    h = 2.0 * math.pi * width / max(digits, _DIGITS)
    scale = 2.0 / math.pi / math.expm1(2.0 * math.pi * width / h)
    strips = [(x, scale * mass, tail._replace(factor=scale * tail.factor)) for x, mass, tail in edges]

    xi = h * np.arange(math.ceil(curve.until((depth + _FAR) / away, alpha, beta) / h) + 1)
    z, dz = curve.points(xi, alpha)
    if not z[-1].real <= math.tan(beta) * z[-1].imag:
        return None
    spacing = float(np.float32(2.0 * math.pi * strip / (place.share + 0.5 * place.turned**2)))
    middle = ray(run, beta, _multiples(place.low, place.high, spacing), spacing)
    moment, size = _moment(run, threshold, z, middle)
    cells = _CELL * np.arange(math.ceil(xi[-1] / _CELL) + 1)
    wrong = _wrong(run, threshold, curve.points(cells, alpha)[0], middle, size, wide[1:], 2.0 / math.expm1(2.0 * math.pi * strip / spacing))
    wrong = wrong[np.minimum((xi / _CELL).astype(int), wrong.size - 1)]

    count = run.count
    kernel = 1.0 / (z * (z - 1.0))
    terms = (h / math.pi) * moment**count * kernel * dz
    terms[0] *= 0.5
    growth = -np.expm1(-count * np.log1p(wrong / np.abs(moment)))
    off = (h / math.pi) * np.abs(kernel * dz) * (np.abs(moment) + wrong) ** count * growth
    units = 64.0 + 16.0 * count + xi.size
    return Contour(z, terms, off, units, strips, _Tail(factor / math.pi, curve, alpha, float(xi[-1])))


class _Place(NamedTuple):
    """The hyperbola, the rays' angle ``beta``, half widths of strips, and where points of a ray begin and end."""

    curve: _Hyperbola
    alpha: float
    beta: float
    strip: float
    width: float
    low: float
    high: float
    share: float
    turned: float


def _placed(run: Run, threshold: Threshold, at: Saddle, digits: float) -> _Place:
    # The normal density grows on a ray, once a run; so does g.
    most = run.mu * min(2.1, (12.0 / run.count) ** 0.5)
    beta = min(math.acos(1.0 - 4.0 / threshold.n), most, 0.7 * 0.25 * math.pi)
    whole = beta / 0.7  # of which parts are: the hyperbola's angle, the rays' strip, the hyperbola's strip
    alpha, strip, width = 0.3 * whole, 0.3 * whole, 0.25 * whole
    share, turned = digits + max(-at.log_moment, 0.0), whole / run.mu
    low = run.mu * (-((2.0 * share + 2.0 * turned**2) ** 0.5) - 0.5 * run.mu)
    high = _last(run, threshold, 1.25 * max(at.vertex, 0.0), -share - 8.0, whole)
    curve = _Hyperbola(at.vertex, 0.5 * (-at.vertex if run.add else at.vertex - 1.0), alpha)
    return _Place(curve, alpha, beta, strip, width, low, high, share, turned)


def _moment(run: Run, threshold: Threshold, z: np.ndarray, at: Ray) -> tuple[np.ndarray, np.ndarray]:
    """M at ``z`` by the trapezoid rule on a ray, and moduli of its weights without g."""
    loss = at.points()
    weights = (0.39894228040143273 * at.spacing) * np.exp(-0.5 * at.t**2) * at.rate
    terms, found = weights * kept(threshold, loss), np.empty(z.size, np.complex128)
    for first in range(0, z.size, _ROWS):  # tables that stay in a core's cache
        some = slice(first, first + _ROWS)
        table = np.multiply.outer(z[some], loss)
        np.exp(table, out=table)
        found[some] = np.einsum("ij,j->i", table, terms)  # no threads of its own
    return found, np.abs(weights)


def _multiples(low: float, high: float, spacing: float) -> np.ndarray:
    return spacing * np.arange(math.floor(low / spacing), math.ceil(high / spacing) + 1)


def _edge(
    run: Run, threshold: Threshold, at: Ray, curve: _Hyperbola, alpha: float, rise: float, factor: float
) -> tuple[np.ndarray, np.ndarray, _Tail] | None:
    """The integral of the integrand's modulus over one edge of the hyperbola's strip: Re z and masses of its cells."""
    xi = _CELL * np.arange(math.ceil(curve.until(rise, alpha, at.beta) / _CELL) + 1)
    z, _ = curve.points(xi, alpha)
    x, y = z.real, z.imag
    if not (x[0] < 0.0 if run.add else x[0] > 1.0) or not x[-1] <= math.tan(at.beta) * y[-1]:
        return None
    moment = _swept(run, threshold, at, x[1:] * math.cos(at.beta), y[:-1] * math.sin(at.beta))
    kernel = 1.0 / (np.hypot(_nearest(x), y[:-1]) * np.hypot(_nearest(x - 1.0), y[:-1]))
    mass = _CELL * moment**run.count * kernel * curve.stretch * np.cosh(xi[1:]) * (1.0 + 1e-6)
    return x[:-1], mass, _Tail(factor, curve, alpha, float(xi[-1]))


def _nearest(x: np.ndarray) -> np.ndarray:
    """The least modulus between neighbours."""
    return np.where(x[1:] * x[:-1] < 0.0, 0.0, np.minimum(np.abs(x[1:]), np.abs(x[:-1])))


def _wrong(
    run: Run, threshold: Threshold, z: np.ndarray, at: Ray, weights: np.ndarray, edges: list[Ray], factor: float
) -> np.ndarray:
    """What M may be off by between neighbours of ``z``: the strip of rays, what lies outside the points, rounding."""
    ends = lambda angle: (z.real[1:] * math.cos(angle), z.imag[:-1] * math.sin(angle))  # noqa: E731
    wrong = factor * np.maximum(*(_swept(run, threshold, one, *ends(one.beta)) for one in edges))
    up, down = ends(at.beta)
    wrong = wrong + sum(_outside(run, threshold, at, up - down))
    t, bounds = np.abs(at.t), kept_bounds(threshold, at)
    bounds = np.append(bounds, bounds[-1:])  # of a cell, so of its ends
    each = bounds * (t * slack_of_t(run, at) + UNIT * (80.0 + 4.0 * t * t + at.v.size))
    units = np.stack([each + kept_error(threshold, at, LOSS_UNITS), bounds * at.size], -1)
    table = np.exp(np.multiply.outer(up - down, at.size))
    rounding = np.einsum("ij,jk->ik", table, weights[:, None] * units)
    return wrong + 1.01 * rounding[:, 0] + np.abs(z[1:]) * UNIT * (LOSS_UNITS + 24.0) * rounding[:, 1] * 1.01


def _swept(run: Run, threshold: Threshold, at: Ray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """A bound of the integral of |phi(t) g(W) e^(z W) dt| over a ray where Re(z W) <= (up - down) rho.

    On a cell ``up`` counts at the end where it is larger, and ``down`` at the lower one.
    """
    left, right = at.size[:-1], at.size[1:]
    cells = at.spacing * at.cells * kept_bounds(threshold, at)
    positive = np.maximum(up, 0.0)
    negative = np.minimum(up, 0.0) - down
    exponents = np.multiply.outer(positive, right) + np.multiply.outer(negative, left)
    # A sum in logarithms: what a threshold makes tiny may be times a number that overflows.
    return np.exp(exponents + np.log(cells)).sum(-1) * (1.0 + 1e-6) + sum(_outside(run, threshold, at, up - down))


def _outside(run: Run, threshold: Threshold, at: Ray, up: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the integral and of the sum beyond the first point and the last, where Re(z W) <= up rho."""
    first, last = float(at.size[0]), float(at.size[-1])
    t = at.t[0]
    start = 0.5 * math.exp(0.5 * t.imag**2 - 0.5 * min(t.real, 0.0) ** 2) * (1.0 + 1.21 * first)
    start = start * (1.0 + 1e-6) * np.exp(np.maximum(up, 0.0) * first) if t.real <= 0.0 else np.inf + 0.0 * up
    log, slope = _far(run, threshold, at.beta, last, up)
    return 2.0 * start, np.where(slope <= -1.0, np.exp(np.minimum(log, 700.0)), np.inf)


def _far(run: Run, threshold: Threshold, beta: float, size: Any, up: Any) -> tuple[Any, Any]:
    """Log of a bound of the integrand beyond rho = ``size``, and its slope in v there."""
    n, x = threshold.n, threshold.scale * size
    falls = threshold.scale * math.cos(beta) - up
    log = math.log(n) + (n - 1) * np.log(x) - math.lgamma(n) - size * falls + np.log(grown(run, size))
    return log + 1e-9, np.where(x >= n - 1, n - size * falls, np.inf)


def _last(run: Run, threshold: Threshold, up: float, log_share: float, whole: float) -> float:
    """A v from which on that bound is less than a share of 1, on all rays, if there is one."""
    sizes = threshold.n / threshold.scale * np.exp(0.04 * np.arange(1.0, 120.0))
    log, slope = _far(run, threshold, whole, sizes, up)
    good = (log <= log_share) & (slope <= -1.0)
    good &= [settled(run, whole, float(size)) for size in sizes] if good.any() else False
    return math.log(float(sizes[np.argmax(good)] if good.any() else sizes[-1]) / run.scale)
