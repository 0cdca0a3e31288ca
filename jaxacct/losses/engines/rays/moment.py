"""M(z) = E_Q[g(W) e^(z W)] of one run on a ray, its error, and bounds of it that hold for many z; NumPy only."""

from __future__ import annotations

import math

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import UNIT
from jaxacct.losses.engines.rays.ray import LOSS_UNITS, Ray, Run, grown, settled, slack_of_t
from jaxacct.losses.engines.rays.threshold import Threshold, beyond, kept, kept_bounds, kept_error

_ROWS = 32  # frequencies at once
_MOST = 2**22  # frequencies times points


def moment_on(run: Run, threshold: Threshold, z: Array, at: Ray) -> tuple[Array, Array]:
    """M at ``z`` by the trapezoid rule on a ray, and moduli of its weights without g."""
    if z.size * at.v.size > _MOST:
        raise OverflowError(f"{z.size} frequencies and {at.v.size} points are too many")
    loss = at.points()
    weights = (0.39894228040143273 * at.spacing) * np.exp(-0.5 * at.t**2) * at.rate
    terms, found = weights * kept(threshold, loss), np.empty(z.size, np.complex128)
    for first in range(0, z.size, _ROWS):  # tables that stay in a core's cache
        some = slice(first, first + _ROWS)
        table = np.multiply.outer(z[some], loss)
        np.exp(table, out=table)
        found[some] = np.einsum("ij,j->i", table, terms)  # no threads of its own
    return found, np.abs(weights)


def moment_error(
    run: Run, threshold: Threshold, z: Array, at: Ray, weights: Array, edges: list[Ray], factor: float
) -> Array:
    """What M may be off by between neighbours of ``z``: the strip of rays, what lies outside the points, rounding."""
    ends = lambda angle: (z.real[1:] * math.cos(angle), z.imag[:-1] * math.sin(angle))  # noqa: E731
    wrong = factor * np.maximum(*(moment_bound(run, threshold, one, *ends(one.beta)) for one in edges))
    up, down = ends(at.beta)
    wrong = wrong + sum(_outside(run, threshold, at, up - down))
    t, bounds = np.abs(at.t), kept_bounds(threshold, at)
    bounds = np.append(bounds, bounds[-1:])  # of a cell, so of its ends
    each = bounds * (t * slack_of_t(run, at) + UNIT * (112.0 + 4.0 * t * t + at.v.size))
    units = np.stack([each + kept_error(threshold, at, LOSS_UNITS), bounds * at.size], -1)
    table = np.exp(np.multiply.outer(up - down, at.size))
    rounding = np.einsum("ij,jk->ik", table, weights[:, None] * units)
    return wrong + 1.01 * rounding[:, 0] + np.abs(z[1:]) * UNIT * (LOSS_UNITS + 24.0) * rounding[:, 1] * 1.01


def moment_bound(run: Run, threshold: Threshold, at: Ray, up: Array, down: Array) -> Array:
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


def _outside(run: Run, threshold: Threshold, at: Ray, up: Array) -> tuple[Array, Array]:
    """Bounds of the integral and of the sum beyond the first point and the last, where Re(z W) <= up rho."""
    first, last = float(at.size[0]), float(at.size[-1])
    t = at.t[0]
    start = 0.5 * math.exp(0.5 * t.imag**2 - 0.5 * min(t.real, 0.0) ** 2) * (1.0 + 1.21 * first)
    growth = math.exp(threshold.scale * first * (1.0 - math.cos(at.beta)))  # of 1 - g
    start *= (1.0 + growth * float(beyond(threshold, at.size[:1])[0])) * (1.0 + 1e-6)
    start = start * np.exp(np.maximum(up, 0.0) * first) if t.real <= 0.0 else np.inf + 0.0 * up
    log, slope = _far(run, threshold, at.beta, last, up)
    return start, np.where(slope <= -1.0, np.exp(np.minimum(log, 700.0)), np.inf)


def _far(run: Run, threshold: Threshold, beta: float, size: Array, up: Array) -> tuple[Array, Array]:
    """Log of a bound of the integrand beyond rho = ``size``, and its slope in v there."""
    n, x = threshold.n, threshold.scale * size
    falls = threshold.scale * math.cos(beta) - up
    log = math.log(n) + (n - 1) * np.log(x) - math.lgamma(n) - size * falls + np.log(grown(run, size))
    return log + 1e-9, np.where(x >= n - 1, n - size * falls, np.inf)


def last_v(run: Run, threshold: Threshold, up: float, log_share: float, whole: float) -> float:
    """A v from which on that bound is less than a share of 1, on all rays, if there is one."""
    sizes = threshold.n / threshold.scale * np.exp(0.04 * np.arange(1.0, 120.0))
    log, slope = _far(run, threshold, whole, sizes, up)
    good = (log <= log_share) & (slope <= -1.0)
    good &= [settled(run, whole, float(size)) for size in sizes] if good.any() else False
    return math.log(float(sizes[np.argmax(good)] if good.any() else sizes[-1]) / run.scale)
