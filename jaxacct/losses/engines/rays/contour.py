"""The mean hockey stick of the losses that stay below their thresholds, by an integral over a hyperbola.

With S the sum of W over the runs and M(z) = E_Q[g(W) e^(z W)], E_Q[prod g (e^(S - B) - 1)^+] (`remove`) or
E_Q[prod g (1 - e^(S - B))^+] (`add`) is 1 / (2 pi i) times the integral of e^(-z B) M(z)^T / (z (z - 1)) over a contour
that passes 1 on the right or 0 on the left. On the hyperbola z = c + lambda (sin(alpha + i xi) - sin(alpha)) it falls
off as fast as e^(-B Re z), and M(z) is an integral over a ray W = rho e^(i beta). Both are trapezoid sums, with errors
bounded over strips: docs/proofs/rays.md. NumPy only, one composition at a time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import UNIT
from jaxacct.losses.engines.rays.moment import last_v, moment_bound, moment_error, moment_on
from jaxacct.losses.engines.rays.ray import Ray, Run, ray, settled
from jaxacct.losses.engines.rays.threshold import Threshold

_DIGITS = 23.0  # e-foldings between the sum and what its strip is charged
_MORE = 31.0  # and between M at the vertex and its own
_FAR, _EDGE_FAR = 26.0, 2.0  # e-foldings below the sum at which it ends, and bounds on a strip
_TRIED = 13  # vertices, three times
_LEAST = -650.0  # log of M^T at the vertex, below which terms that matter might underflow
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
        z: frequencies; ``terms`` without e^(-z B); ``off`` of each, absolute; ``units`` of each, in units of itself.
        strips: for either edge of the strip Re z at the lower ends of cells, factors of e^(-B Re z), and the tail.
        end: of the terms that are left out.
    """

    z: Array
    terms: Array
    off: Array
    units: Array
    strips: list[tuple[Array, Array, _Tail]]
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
        strips = max(
            float((each * np.exp(np.abs(low) * off - low * away)).sum()) + tail.at(away, off)
            for low, each, tail in self.strips
        )
        return (float((falls * own).sum()) + strips + self.end.at(away, off)) * (1.0 + 1e-9)


class _Hyperbola(NamedTuple):
    """z = vertex + stretch (sin(angle + i xi) - sin(alpha)); alpha is the angle of the middle one."""

    vertex: float
    stretch: float
    angle: float

    def points(self, xi: Array, alpha: float) -> tuple[Array, Array]:
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

    def at(self, away: float, off: float) -> float:
        """At every B that is within ``off`` of ``away``."""
        stretch, angle, last = self.curve.stretch, self.curve.angle, self.last
        z, _ = self.curve.points(np.array([last]), self.alpha)
        steep = (away - off) * stretch * math.sin(angle) * math.sinh(last)
        kernel = math.cosh(last) / (stretch * math.cos(angle) ** 2 * math.sinh(last) ** 2)
        return self.factor * math.exp(abs(float(z[0].real)) * off - away * float(z[0].real)) * kernel / steep


def saddle(run: Run, threshold: Threshold, away: float) -> Saddle:
    """On the real line, by sums that nothing certifies."""
    top = math.log(3.0 * threshold.n / threshold.scale / run.scale)
    v = np.arange(min(-14.0 * run.mu, top - 8.0), top, min(0.1, 0.3 * run.mu))
    at = ray(run, 0.0, v, 1.0)
    weight = at.cells * np.diff(v) * np.minimum(kept_rough(threshold, at.size[1:]), 1.0)
    loss = at.size[1:]
    low, high = (
        (math.log(0.02), math.log(3000.0)) if run.add else (math.log(0.02), math.log(0.9 * threshold.scale * away))
    )
    for _ in range(2):
        size = _sizes(run, away, _vertices(run, low, high, away), weight, loss)[0]
        best = int(np.argmin(np.where(np.isnan(size), np.inf, size)))
        step = (high - low) / (_TRIED - 1)
        low, high = low + (best - 1) * step, low + (best + 1) * step
    vertex = _vertices(run, low, high, away)
    size, log_moment, mass = _sizes(run, away, vertex, weight, loss)
    best = int(np.argmin(np.where(np.isnan(size), np.inf, size)))
    mean = (mass[best] * loss).sum()
    variance = (mass[best] * (loss - mean) ** 2).sum()
    c = float(vertex[best])
    curvature = run.runs * variance + c**-2 + (c - 1.0) ** -2
    value = float(size[best]) - 0.5 * math.log(2.0 * math.pi * curvature)
    return Saddle(c, float(log_moment[best]), float(size[best]), value)


def _vertices(run: Run, low: float, high: float, away: float) -> Array:
    """Below 0 or above 1, by as much as logarithms of multiples of 1 / B say."""
    tried = np.exp(np.linspace(low, high, _TRIED)) / away
    return -tried if run.add else 1.0 + tried


def _sizes(run: Run, away: float, vertex: Array, weight: Array, loss: Array) -> tuple[Array, Array, Array]:
    """Logs of the integrand at real z and of M(z), and the tilted laws."""
    exponents = np.multiply.outer(vertex, loss) + np.log(weight)
    peak = exponents.max(1)
    mass = np.exp(exponents - peak[:, None])
    total = mass.sum(1)
    log_moment = peak + np.log(total)
    size = run.runs * log_moment - vertex * away - np.log(np.abs(vertex * (vertex - 1.0)))
    return size, log_moment, mass / total[:, None]


def kept_rough(threshold: Threshold, size: Array) -> Array:
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
    moment, *_ = moment_on(run, threshold, z, ray(run, place.beta, _multiples(place.low, place.high, spacing), spacing))
    each = (np.exp(-z * away) * moment**run.runs / (z * (z - 1.0)) * dz).imag
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
    factor = float(moment_bound(run, threshold, base, np.zeros(1), np.zeros(1))[0]) ** run.runs
    depth = max(math.log(factor) - at.log_value - math.log(curve.stretch) - away * curve.vertex, 0.0)
    rise = (depth + _EDGE_FAR) / away
    edges = [
        _edge(run, threshold, base, curve._replace(angle=a), alpha, rise, factor)
        for a in (alpha - width, alpha + width)
    ]
    edges = [one for one in edges if one is not None]
    if len(edges) < 2:
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
    if not settled(run, beta, float(middle.size[-1])):
        return None
    moment, size = moment_on(run, threshold, z, middle)
    if not run.runs * math.log(abs(moment[0])) >= _LEAST:
        return None
    cells = _CELL * np.arange(math.ceil(xi[-1] / _CELL) + 1)
    wrong = moment_error(
        run,
        threshold,
        curve.points(cells, alpha)[0],
        middle,
        size,
        wide[1:],
        2.0 / math.expm1(2.0 * math.pi * strip / spacing),
    )
    wrong = wrong[np.minimum((xi / _CELL).astype(int), wrong.size - 1)]

    count = run.runs
    kernel = 1.0 / (z * (z - 1.0))
    terms = (h / math.pi) * moment**count * kernel * dz
    terms[0] *= 0.5
    growth = -np.expm1(-count * np.log1p(wrong / np.abs(moment)))
    off = (h / math.pi) * np.abs(kernel * dz) * (np.abs(moment) + wrong) ** count * growth
    units = 96.0 + 16.0 * count + xi.size + 32.0 / np.abs(z - 1.0)
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
    most = run.mu * min(2.1, (12.0 / run.runs) ** 0.5)
    beta = min(math.acos(1.0 - 4.0 / threshold.n), most, 0.7 * 0.25 * math.pi)
    whole = beta / 0.7  # of which parts are: the hyperbola's angle, the rays' strip, the hyperbola's strip
    alpha, strip, width = 0.3 * whole, 0.3 * whole, 0.25 * whole
    share, turned = digits + max(-at.log_moment, 0.0), whole / run.mu
    low = run.mu * (-((2.0 * share + 2.0 * turned**2) ** 0.5) - 0.5 * run.mu)
    high = last_v(run, threshold, 1.25 * max(at.vertex, 0.0), -share - 8.0, whole)
    curve = _Hyperbola(at.vertex, 0.5 * (-at.vertex if run.add else at.vertex - 1.0), alpha)
    return _Place(curve, alpha, beta, strip, width, low, high, share, turned)


def _multiples(low: float, high: float, spacing: float) -> Array:
    return spacing * np.arange(math.floor(low / spacing), math.ceil(high / spacing) + 1)


def _edge(
    run: Run, threshold: Threshold, at: Ray, curve: _Hyperbola, alpha: float, rise: float, factor: float
) -> tuple[Array, Array, _Tail] | None:
    """The integral of the integrand's modulus over one edge of the hyperbola's strip: Re z and masses of its cells."""
    xi = _CELL * np.arange(math.ceil(curve.until(rise, alpha, at.beta) / _CELL) + 1)
    z, _ = curve.points(xi, alpha)
    x, y = z.real, z.imag
    if not (x[0] < 0.0 if run.add else x[0] > 1.0) or not x[-1] <= math.tan(at.beta) * y[-1]:
        return None
    moment = moment_bound(run, threshold, at, x[1:] * math.cos(at.beta), y[:-1] * math.sin(at.beta))
    kernel = 1.0 / (np.hypot(_nearest(x), y[:-1]) * np.hypot(_nearest(x - 1.0), y[:-1]))
    mass = _CELL * moment**run.runs * kernel * curve.stretch * np.cosh(xi[1:]) * (1.0 + 1e-6)
    return x[:-1], mass, _Tail(factor, curve, alpha, float(xi[-1]))


def _nearest(x: Array) -> Array:
    """The least modulus between neighbours."""
    return np.where(x[1:] * x[:-1] < 0.0, 0.0, np.minimum(np.abs(x[1:]), np.abs(x[:-1])))
