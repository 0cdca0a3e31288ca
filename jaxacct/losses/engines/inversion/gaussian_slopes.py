"""Derivatives of delta(epsilon) with respect to epsilon and every parameter of a composition of Gaussians.

delta is an integral along a contour that may be put anywhere, so with the contour and the points of every quadrature
held fixed the integrand may be differentiated under the sums. With beta = 1 + z (`remove`) or -z (`add`), R(t) as in
:mod:`jaxacct.losses.engines.lines.normal_line`, and E the expectation under the law tilted by z,

    d log E[R^beta] / dx = beta E[d log R / dx],
    d log R / d rate = (e^u - 1) / R,        d log R / d noise = -(rate e^u / R) (t - mu) / noise^2:

one more transform of the same losses, with other weights, for each. One run has closed forms: its best event
{L > epsilon} may be held fixed, because moving its edge changes nothing to first order.

Formulas run in NumPy and under ``jit``. A derivative that cannot be trusted is NaN. That is judged by the last
terms and not proven: rare losses of a few steps have transforms that hardly decay.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct.losses.engines.inversion.composed_transform import log_modulus_of
from jaxacct.losses.engines.inversion.integrand import Integrand, plain_integrand
from jaxacct.losses.engines.inversion.inversion_bounds import Prepared, Size, prepare
from jaxacct.losses.engines.inversion.read_off import aliases
from jaxacct.losses.engines.inversion.tilt_plan import tilt_plan
from jaxacct.losses.engines.inversion.transform import transform
from jaxacct.losses.engines.lines.normal_line import NormalLine
from jaxacct.losses.engines.lines.normal_losses import exponent_at
from jaxacct.losses.engines.lines.normal_points import Points
from jaxacct.mechanisms.pairs.gaussian import GaussianPair, normal_tails
from jaxacct.mechanisms.pairs.sampled_loss import inner_loss

_SIZES = (Size(256, 256), Size(512, 1024), Size(1024, 16384))  # tried in turn
_WORK = 2**20  # frequencies of all parts worked on at once
_TRUSTED = 1e-6  # relative error of a derivative, roughly, that is still given out
_LAST = 0.85  # of the terms that are kept: what follows has died down
_LEAST = 8  # terms
_REACH = 7.0  # standard deviations of the damping, at its smallest, where the terms end
_STEPS = np.array([1.0, 2.0, 4.0, 8.0])  # h, in units of the smallest
_ROUGHER = np.array([8.0, -6.0, 1.0, 0.0]) / 3.0  # the limit h -> 0 of a quadratic polynomial
_LIMIT = np.array([64.0, -56.0, 14.0, -1.0]) / 21.0  # of a cubic one


class Slopes(NamedTuple):
    """Derivatives of delta, NaN where they are not to be trusted.

    Attributes:
        value: delta itself, shape ``(B,)``.
        epsilon: in epsilon, shape ``(B,)``.
        noise, rate: in the noise multiplier and the rate of every part, shape ``(B, K)``.
        counts: in how often every part runs, shape ``(B, K)``.
    """

    value: Array
    epsilon: Array
    noise: Array
    rate: Array
    counts: Array


def unknown(settings: int, parts: int) -> Slopes:
    """No derivatives, in NumPy."""
    return Slopes._make(np.full(shape, np.nan) for shape in (*2 * [(settings,)], *3 * [(settings, parts)]))


def composition_slopes(pairs: GaussianPair, counts: Array, epsilon: Array) -> Slopes:
    """Derivatives of delta(epsilon) of composed GaussianPairs, in NumPy; leaves and counts of shape ``(B, K)``."""
    found = unknown(*counts.shape)
    open_, leaves = np.arange(epsilon.size), (pairs.noise, pairs.rate, pairs.reverse, pairs.rest)
    for size in _SIZES:
        rows = max(1, _WORK // (size.nodes * counts.shape[1]))
        for some in np.array_split(open_, -(-open_.size // rows)):
            query = GaussianPair(*(x[some] for x in leaves)), counts[some], epsilon[some]
            with np.errstate(all="ignore"):
                new = _contour_slopes(size, *query)
            for old, value in zip(found, new, strict=True):
                old[some] = np.where(np.isnan(value), old[some], value)
        open_ = np.flatnonzero(np.isnan(np.concatenate([x.reshape(epsilon.size, -1) for x in found], 1)).any(1))
        if not open_.size:
            break
    return found


def _contour_slopes(size: Size, pairs: GaussianPair, counts: Array, epsilon: Array) -> Slopes:
    prepared = prepare("delta", size, tilt_plan("delta", (pairs,), counts, epsilon), (pairs,), counts)
    return slopes_on(prepared, pairs, counts, epsilon)


def slopes_on(prepared: Prepared, pairs: GaussianPair, counts: Array, epsilon: Array) -> Slopes:
    """The same on a contour that was put for epsilons nearby."""
    ((parts, found, _),), spacing = prepared.transforms, prepared.spacing
    line = cast(NormalLine, prepared.above[0][0])
    terms = plain_integrand(prepared.sides, prepared.plan, spacing, prepared.tilts, prepared.moments)
    xp, nodes = array_module(spacing), found.real.shape[-1]
    frequencies = np.arange(nodes) * spacing[:, None]
    turned = xp.exp(-1j * frequencies * (epsilon - terms.mean[0])[:, None])
    each = ((terms.real[0] + 1j * terms.imag[0]) * turned)[:, None]
    z = (prepared.plan.theta[:, None] + 1j * frequencies)[:, None]
    sums = _Sums(terms, epsilon, each)

    real, imag = found.real, found.imag
    logs = log_modulus_of(real, imag) + 1j * (
        xp.arctan2(imag, 1.0 + real) + frequencies[:, None] * parts.mean[..., None]
    )
    logs = parts.log_total[..., None] + logs

    def moved(slope: Array) -> Array:
        """The slope in a number by which log R changes at this rate on the points."""
        change = transform(parts.losses, parts.weights * slope, spacing, nodes)
        ratio = (1.0 + change.real + 1j * change.imag) / (1.0 + real + 1j * imag)
        return sums.total(counts[..., None] * exponent_at(pairs.reverse[..., None], z) * ratio)

    by_rate, by_noise = _log_ratio_slopes(line.points, pairs)
    return Slopes(
        sums.total(xp.ones_like(z))[:, 0], sums.total(-z)[:, 0], moved(by_noise), moved(by_rate), sums.total(logs)
    )


class _Sums:
    """Sums over the frequencies, and whether what was cut off and what is aliased can matter.

    Where the terms do not die down they are damped by exp(-h w^2 / 2). That convolves e^(theta x) delta(x) with a
    normal density of variance h; the limit h -> 0 is extrapolated from several h, which delta allows where it is
    smooth: away from spikes in the law of the loss, whose terms are those that do not die down.
    """

    def __init__(self, terms: Integrand, epsilon: Array, each: Array) -> None:
        """``each`` has the terms of delta, shape ``(B, 1, nodes)``."""
        xp = array_module(terms.real)
        kept = xp.asarray((each[:, 0] != 0).sum(-1), np.float64)
        index = np.arange(each.shape[-1])
        self.xp, self.each, self.kept = xp, each, kept[:, None]
        self.last = index >= _LAST * kept[:, None, None] - 1.0
        self.damping = xp.exp(-0.5 * (_REACH * index[:, None] / kept[:, None, None]) ** 2 * _STEPS)
        self.scale = xp.exp(terms.log_total[0] - terms.theta * epsilon)[:, None]
        self.aliased = aliases(terms, epsilon)[:, None]
        self.good = ((terms.log_error[0] < _TRUSTED) & (kept > _LEAST))[:, None]

    def total(self, factor: Array) -> Array:
        """The sum with every term times ``factor``, shape ``(B, K, nodes)``."""
        xp = self.xp
        terms = xp.where(self.each != 0, self.each * factor, 0.0)
        sizes = xp.abs(terms)
        # What is aliased grows with a number about as fast as the terms themselves.
        aliased = self.aliased * sizes.sum(-1) / xp.abs(self.each).sum(-1)

        plain = self.scale * terms.real.sum(-1)
        cut_off = self.scale * xp.where(self.last, sizes, 0.0).max(-1) * self.kept
        damped = self.scale[..., None] * xp.matmul(terms.real, self.damping)
        rough, limit = damped @ _ROUGHER, damped @ _LIMIT
        trusted = lambda value, wrong: self.good & (wrong + aliased <= _TRUSTED * xp.abs(value))  # noqa: E731
        found = xp.where(trusted(limit, xp.abs(limit - rough)), limit, np.nan)
        return xp.where(trusted(plain, cut_off), plain, found)


def _log_ratio_slopes(points: Points, pairs: GaussianPair) -> tuple[Array, Array]:
    """Derivatives of log R in the rate and in the noise, on the points of the quadrature, shape ``(B, K, S)``."""
    xp = array_module(points.t)
    rate, mu = pairs.rate[..., None], 1.0 / pairs.noise[..., None]
    u = mu * points.t - 0.5 * mu * mu
    inverse = xp.exp(-points.psi)
    near = xp.abs(u) < 1.0
    by_rate = xp.where(near, xp.expm1(xp.where(near, u, 0.0)) * inverse, points.slope / rate - inverse)
    return by_rate, -points.slope * (points.t - mu) * mu * mu


def run_slopes(pair: GaussianPair, counts: Array, epsilon: Array) -> Slopes:
    """Derivatives of delta(epsilon) of one run each, but none in how often; shapes as those of a composition."""
    xp = array_module(epsilon, pair.noise)
    noise, rate, add, rest = pair.noise[:, 0], pair.rate[:, 0], pair.reverse[:, 0] > 0.5, pair.rest[:, 0]
    losses = xp.where(add, -epsilon, epsilon)
    x = 0.5 + noise**2 * inner_loss(losses, rate, rest)
    z0, z1 = x / noise, (x - 1.0) / noise
    (base_above, base_below), (shift_above, shift_below) = normal_tails(z0), normal_tails(z1)
    mixed = rest * base_below + rate * shift_below
    growth = xp.exp(epsilon)
    density = xp.exp(-0.5 * z1 * z1) / np.sqrt(2.0 * np.pi)
    value = xp.where(add, base_below, rest * base_above + rate * shift_above)
    by_epsilon = -growth * xp.where(add, mixed, base_above)
    by_rate = xp.where(add, growth * (base_below - shift_below), shift_above - base_above)
    by_noise = -xp.where(add, growth, 1.0) * rate * density / noise**2
    return Slopes(value + by_epsilon, by_epsilon, by_noise[:, None], by_rate[:, None], xp.full_like(counts, np.nan))
