"""A random threshold that a run's loss must not exceed: a sum of n exponential variables, the same under P and Q.

g(W) = P(threshold > W) = P(Poisson(s W) < n) = exp(-s W) sum_(k < n) (s W)^k / k!, an entire function. On a ray of
angle beta at most e^(s rho (1 - cos beta)) times what it is at rho, and so is 1 - g: docs/proofs/rays.md, lemma 3.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import UNIT
from jaxacct.losses.engines.rays.ray import Ray, Run, ray, settled, slack_of_t
from jaxacct.mechanisms.pairs.gaussian import normal_tails
from jaxacct.mechanisms.parameters import RATE_UNITS

_TAILS = 60.0  # e-foldings below its peak at which the threshold's density is left
_STEPS = 0.17  # of the rule for it, in standard deviations
_STRIP = 0.3
_LARGE = 600.0  # exponents


class Threshold(NamedTuple):
    """``n`` exponential variables of mean 1 / ``scale``."""

    n: int
    scale: float


class Dropped(NamedTuple):
    """Bounds of P(E) - Q(E) and of Q(E), E the event that some run's loss exceeds its threshold."""

    difference: tuple[float, float]
    base: tuple[float, float]

    def excess(self, epsilon: float) -> tuple[float, float]:
        """Bounds of P(E) - e^eps Q(E)."""
        scale = math.expm1(epsilon)
        less, more = self.base if scale >= 0.0 else self.base[::-1]
        low = self.difference[0] - scale * more
        high = self.difference[1] - scale * less
        room = 20.0 * UNIT * (self.difference[1] + abs(scale) * self.base[1])
        return low - room, high + room


def kept(threshold: Threshold, loss: Array) -> Array:
    """g(W); real or complex."""
    x, n = threshold.scale * loss, threshold.n
    total = np.ones_like(x)
    near = np.where(np.abs(x) < _LARGE, x, 0.0)
    for k in range(n - 1, 0, -1):
        total *= near
        total /= k
        total += 1.0
    found = np.exp(-near) * total
    far = np.abs(x) >= _LARGE
    if far.any():  # from the largest power down
        x = x[far]
        total = np.ones_like(x)
        for k in range(1, n):
            total *= k / x
            total += 1.0
        found[far] = np.exp((n - 1) * np.log(x) - x - math.lgamma(n)) * total
    return found


def beyond(threshold: Threshold, size: Array) -> Array:
    """An upper bound of 1 - g at real W: (s W)^n e^(-s W) / n! over 1 - s W / (n + 1), at most 1."""
    x = threshold.scale * size
    share = 1.0 - np.minimum(x / (threshold.n + 1.0), 1.0)
    log = threshold.n * np.log(x) - x - math.lgamma(threshold.n + 1.0) - np.log(np.maximum(share, 1e-300))
    return np.exp(np.minimum(log + 1e-9, 0.0))


def below(threshold: Threshold, size: Array) -> Array:
    """An upper bound of g at real W: n (s W)^(n - 1) e^(-s W) / (n - 1)! where s W >= n - 1, at most 1."""
    x, n = threshold.scale * size, threshold.n
    log = np.log(n) + (n - 1.0) * np.log(x) - x - math.lgamma(n)
    return np.where(x >= n - 1.0, np.exp(np.minimum(log + 1e-9, 0.0)), 1.0)


def kept_bounds(threshold: Threshold, at: Ray) -> Array:
    """Bounds of |g| between neighbouring points of a ray."""
    turned = threshold.scale * (1.0 - math.cos(at.beta)) * (1.0 + 1e-12)
    growth = np.exp(turned * at.size[1:])
    return np.minimum(growth * below(threshold, at.size[:-1]), 1.0 + growth * beyond(threshold, at.size[1:]))


def kept_error(threshold: Threshold, at: Ray, loss_units: float) -> Array:
    """What :func:`kept` may be off by on a ray, rounding of W included."""
    x, n = threshold.scale * at.size, threshold.n
    growth = np.exp(x * (1.0 - math.cos(at.beta)) * (1.0 + 1e-12))
    return UNIT * growth * (4.0 * n + 40.0 + 2.0 * x + n * loss_units) * below(threshold, at.size)


def dropped(run: Run, threshold: Threshold) -> Dropped | None:
    """E's probabilities, by the trapezoid rule over the logarithm of the threshold; None where it is no rare event."""
    n, width = threshold.n, threshold.n**-0.5
    spacing = float(np.float32(_STEPS * width))
    middle = math.log(n / threshold.scale / run.scale)
    reach = (2.0 * _TAILS) ** 0.5 * width
    # Up to where the tails of the strip are small: `settled` with a margin for t - mu.
    high = max(middle + reach, 0.5 * math.pi + 0.5 * run.mu**2 + 0.1)
    v = np.arange(math.floor((middle - 1.4 * reach) / spacing), math.ceil(high / spacing) + 1) * spacing
    real, turned = ray(run, 0.0, v, spacing), ray(run, _STRIP, v, spacing)
    x = threshold.scale * real.size
    log_density = n * np.log(x) - x - math.lgamma(n)
    density = spacing * np.exp(log_density)
    t = real.t.real
    far, near = normal_tails(t)[0], normal_tails(t - run.mu)[0]
    moved = _tail_error(run, real)
    # A term's own error: the density, the sum; and what the threshold's tails leave out on either side.
    sizes = np.abs(n * np.log(x)) + x + math.lgamma(n)
    units = UNIT * (40.0 + 8.0 * sizes + 40.0 * np.abs(n - x) + v.size)
    first, last = np.exp(log_density[[0, -1]])
    outside = float(first) / max(n - float(x[0]), 1e-3) + float(last) / max(float(x[-1]) - n, 1e-3)
    # On the strip the density's integral is at most cos^-n of what it is, and a normal tail at most e^(tau^2 / 2).
    most = max(float(turned.t.imag[-1]), 0.0)
    strip = 2.1 * math.exp(-2.0 * math.pi * _STRIP / spacing - n * math.log(math.cos(_STRIP)) + 0.5 * most**2)
    if not settled(run, _STRIP, float(turned.size[-1]), run.mu**2):
        return None
    base = float((density * far).sum())
    base_off = float((density * far * (units + moved)).sum()) + strip + outside
    lift = float((density * (near - far)).sum())
    lift_off = float((density * (near + far) * (units + moved)).sum()) + 2.0 * strip + 2.0 * outside
    if not base + base_off < 0.5:
        return None
    rate_units = (RATE_UNITS + 2.0) * UNIT
    lows, highs = (max(base - base_off, 0.0), max(lift - lift_off, 0.0)), (base + base_off, lift + lift_off)

    def difference(stays: float, share: float, side: float) -> float:
        """From the other end of p and this end of d."""
        lift = run.rate * (1.0 + side * rate_units) * share / (1.0 - stays)
        rest = math.exp(run.runs * math.log1p(-stays))
        return -rest * math.expm1(run.runs * math.log1p(-min(lift, 1.0 - 1e-12))) * (1.0 + side * 1e-12)

    def either(p: float, side: float) -> float:
        return -math.expm1(run.runs * math.log1p(-p)) * (1.0 + side * 1e-12)

    return Dropped(
        (difference(highs[0], lows[1], -1.0), difference(lows[0], highs[1], 1.0)),
        (either(lows[0], -1.0), either(highs[0], 1.0)),
    )


def _tail_error(run: Run, real: Ray) -> Array:
    """Relative error of a normal tail at t and at t - mu."""
    size = np.abs(real.t.real) + run.mu
    return UNIT * (16.0 + 6.0 * size**2) + 2.0 * (size + 1.0) * (slack_of_t(run, real) + 16.0 * UNIT * run.mu)


def undecided(run: Run, threshold: Threshold, at: Ray, sum_of_losses: float) -> float:
    """A bound of what E takes beyond P(E) - e^eps Q(E) (`remove`), or of all that it takes (`add`).

    One run's loss is above its threshold, and below what decides alone.
    """
    left, right = at.size[:-1], at.size[1:]
    mass = at.spacing * at.cells * beyond(threshold, right)
    first = float(at.t.real[0])
    start = (0.5 * math.exp(-0.5 * first * first) if first < 0.0 else 1.0) * float(beyond(threshold, at.size[:1])[0])
    if run.add:
        short = -np.expm1(np.minimum(left - sum_of_losses, 0.0))
        found = float((mass * short).sum()) + start
    else:
        short = np.expm1(np.maximum(sum_of_losses - left, 0.0))
        found = float((mass * run.rest * np.exp(right) * short).sum()) + start * math.exp(left[0]) * math.expm1(
            sum_of_losses
        )
    return run.runs * found * (1.0 + 1e-9)
