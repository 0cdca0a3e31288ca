"""One run of a Poisson-sampled Gaussian, its loss above the least one on a ray W = rho e^(i beta); NumPy only.

With w = q / (1 - q), V = e^(mu t - mu^2 / 2) and t ~ N(0, 1) under Q, the loss is log(1 - q) + W, W = log(1 + w V). As
a function of W, y = log(expm1(W) / w) and t = (y + mu^2 / 2) / mu are analytic in |arg W| < pi / 2 and real on the
half-line. Points lie at W = w e^(v + i beta) with v real: those of tiny losses are as close, in proportion, as others.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs.sampled_loss import log_rest
from jaxacct.mechanisms.parameters import NOISE_UNITS, RATE_UNITS

LOSS_UNITS = 2.0 * RATE_UNITS + 16.0
"""What W may be off by at a given v, in units."""

_CELL = 1e-9  # what rounding makes of a bound on a cell, relative


class Run(NamedTuple):
    """What the runs of a composition share.

    Attributes:
        mu: 1 / noise.
        scale: w = q / (1 - q).
        lowest: -log(1 - q): no loss of a run is below minus that.
        rate, rest: q and 1 - q.
        runs: how many.
        add: the direction, which changes the sign of losses.
    """

    mu: float
    scale: float
    lowest: float
    rate: float
    rest: float
    runs: int
    add: bool


class Ray(NamedTuple):
    """A ray at neighbouring v.

    Attributes:
        beta: its angle.
        v: a whole multiple of the spacing.
        size: rho.
        t: the output, complex.
        rate: dt / dv.
        cells: bounds of |phi(t) dt / dv| between neighbours, phi the normal density.
        spacing: distance of v.
    """

    beta: float
    v: Array
    size: Array
    t: Array
    rate: Array
    cells: Array
    spacing: float

    def points(self) -> Array:
        """W."""
        return self.size * complex(np.cos(self.beta), np.sin(self.beta))


def run_of(noise: float, rate: float, rest: float, add: bool, count: int) -> Run:
    """From the leaves of a pair."""
    lowest = -float(log_rest(np.float64(rate), np.float64(rest)))
    return Run(1.0 / noise, rate / rest, lowest, rate, rest, count, add)


def ray(run: Run, beta: float, v: Array, spacing: float) -> Ray:
    """The ray of angle ``beta`` in [0, pi / 4] at ``v``."""
    size = run.scale * np.exp(v)
    loss = size * complex(np.cos(beta), np.sin(beta))
    # log(expm1(W) / W), by what cancels nowhere; no logarithm leaves its branch, as Re W > 0.
    real, imag = np.minimum(loss.real, 2.0), loss.imag
    near = np.expm1(real) * np.cos(imag) - 2.0 * np.sin(0.5 * imag) ** 2 + 1j * np.exp(real) * np.sin(imag)
    fallen = np.exp(-loss)
    log_quotient = np.where(size < 1.0, np.log(near / loss), loss + np.log(1.0 - fallen) - np.log(loss))
    t = (v + 1j * beta + log_quotient) / run.mu + 0.5 * run.mu
    change = np.where(size < 1.0, np.exp(loss - log_quotient), loss / (1.0 - fallen)) / run.mu
    # Re t and Im t increase with v, and |dt / dv| <= (1 + 1.21 rho) / mu: docs/proofs/rays.md, lemma 1.
    left, right = t.real[:-1], t.real[1:]
    nearest = np.where(left * right < 0.0, 0.0, np.minimum(left**2, right**2))
    cells = np.exp(0.5 * (t.imag[1:] ** 2 - nearest)) * grown(run, size[1:]) * (1.0 + _CELL)
    return Ray(beta, v, size, t, change, cells, spacing)


def grown(run: Run, size: Array) -> Array:
    """A bound of |dt / dv| times the normal density's constant."""
    return (1.0 + 1.21 * size) * (0.39894228040143273 / run.mu)


def slack_of_t(run: Run, at: Ray) -> Array:
    """What t may be off by: the logarithm, the quotient and the parameters."""
    y = np.abs(at.v) + 1.0 + at.beta + at.size
    return UNIT * (NOISE_UNITS + 40.0) * (inflated(y, 1e-9) / run.mu + run.mu + np.abs(at.t)) + (
        UNIT * LOSS_UNITS * at.size / run.mu
    )


def settled(run: Run, beta: float, size: float, margin: float = 0.0) -> bool:
    """Whether Re t - ``margin`` / mu >= Im t from rho = ``size`` on (docs/proofs/rays.md, lemma 1)."""
    cos, sin = math.cos(beta), math.sin(beta)
    ahead = size * (cos - sin) + math.log(-math.expm1(-size * cos)) - math.log(run.scale) + 0.5 * run.mu**2
    return ahead >= 0.5 * math.pi + margin + 1e-9
