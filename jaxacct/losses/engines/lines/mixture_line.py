"""The transform of the loss of a Gaussian whose sensitivity is random.

With t the output in units of the noise, k_i a sensitivity in these units and v_i its probability,
R(t) = sum_i v_i exp(k_i t - k_i^2 / 2), and b = 1 + z (`remove`) or b = -z (`add`), E_P[exp(z L)] is the mean of R^b
under N(0, 1): as in :mod:`jaxacct.losses.engines.lines.gaussian_quadrature`, which has two sensitivities, one of them
0. The taper, the trapezoid rule and what lies outside its points are as there; the integrand on the strip:
docs/proofs/transforms.md, section 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp, shared
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct._types import Float64
from jaxacct.losses.engines.lines.gaussian_points import bases_of, cell_bounds, exponent_at, multiples
from jaxacct.losses.engines.lines.line import Moments, Quadrature, Tilts, Totals, centred, octaves
from jaxacct.losses.engines.lines.taper import (
    CURVATURE,
    HALF_LOG_2PI,
    HIDDEN,
    log_taper,
    log_taper_above,
    reach_of,
    steepened,
    tail_left_out,
)
from jaxacct.losses.engines.lines.uniform_layers import layers_of
from jaxacct.mechanisms.pairs.mixture import MixturePair

_CELLS = 192
_DIGITS = 42.0  # e-foldings below its peak at which the integrand is left
_REACH = 11.0  # standard deviations beyond what can matter
_FARTHER = 2.0  # times the tilt that cells are made for
_HEIGHTS = np.array([0.08, 0.2, 0.4, 0.7, 1.0])  # of the strip, of the highest that may be of use


class _Loss(NamedTuple):
    """log R at some t, its derivative, and a bound on the error of the former."""

    psi: Array
    slope: Array
    off: Array


class MixtureLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.base.Line`; arrays of shape ``(B, K)``, components on one more axis.

    Attributes:
        shifts, weights: k_i and v_i, of total 1.
        reverse: 0 is the direction `remove`, 1 is `add`.
        most: no loss is above.
        theta: the tilt.
        cut: where the taper falls off; inf for none.
        edges: of cells over all that can matter, shape ``(B, K, cells + 1)``.
        at_edges: the loss there.
        points: equally spaced, on which the integrand is summed; ``step`` is their distance.
        at_points: the loss there.
        base: log of the normal density times the taper there, without the density's constant.
    """

    shifts: Array
    weights: Array
    reverse: Array
    most: Array
    theta: Array
    cut: Array
    edges: Array
    at_edges: _Loss
    points: Array
    step: Array
    at_points: _Loss
    base: Array

    @classmethod
    def of(cls, pair: MixturePair, theta: Array, log_share: Array, size: int) -> MixtureLine:
        """On ``size`` points; at most about exp(``log_share``) is left out."""
        xp = array_module(*pair.sensitivities, *pair.weights, theta)
        shifts, weights = (xp.stack(xp.broadcast_arrays(*x), -1) for x in (pair.sensitivities, pair.weights))
        shifts, weights = shifts / pair.noise[..., None], weights / weights.sum(-1, keepdims=True)
        reverse = pair.reverse
        add = reverse > 0.5
        log_weights = xp.where(weights > 0, xp.log(xp.where(weights > 0, weights, 1.0)), -np.inf)
        far = xp.where(weights > 0, shifts + reach_of(log_share[..., None] - log_weights), 0.0).max(-1)
        cut = xp.where(add | ~(far < np.inf), np.inf, far)
        most = shifts.max(-1)
        ends = (1.0 + _FARTHER * theta) * most
        low = xp.where(add, -ends, 0.0) - _REACH
        high = steepened(xp.where(add, 0.0, ends) + _REACH, cut)
        edges = low[..., None] + (high - low)[..., None] * np.linspace(0.0, 1.0, _CELLS + 1)
        loss = _loss(shifts, weights, edges)
        line = cls(shifts, weights, reverse, pair.max_loss(), theta, cut, edges, loss, edges, high, loss, edges)
        # Points where the integrand is more than a share of its peak.
        bounds, peak = line._cells(exponent_at(line.reverse, theta))
        kept = bounds > peak[..., None] - _DIGITS
        first = xp.where(kept, edges[..., :-1], np.inf).min(-1)
        last = xp.where(kept, edges[..., 1:], -np.inf).max(-1)
        t, step = multiples(first, last, size)
        base = -0.5 * t**2 + log_taper(t, cut[..., None])
        return line._replace(points=t, step=step, at_points=_loss(shifts, weights, t), base=base)

    def totals(self) -> Totals:
        """All but what the taper leaves out; the largest loss is the pair's."""
        xp = array_module(self.cut)
        mass = (self.weights * tail_left_out(self.cut[..., None], self.shifts)).sum(-1)
        left = xp.where(self.cut < np.inf, inflated(mass, 1e-12) + HIDDEN * self.shifts.shape[-1], 0.0)
        return Totals(0.0, 0.0, left, log1p(-left) - 4.0 * UNIT, self.most)

    def _cells(self, exponent: Array) -> tuple[Array, Array]:
        """Log of a bound of the integrand on each cell, without the density's constant, and its value at a peak."""
        psi = self.at_edges.psi
        base, cell_base, tangent = bases_of(self.edges, log_taper_above(self.edges, self.cut[..., None]), self.cut)
        found = cell_bounds(exponent, psi[..., :-1], psi[..., 1:], base[..., :-1], cell_base, tangent) + 1e-9
        return found, (base + exponent[..., None] * psi).max(-1)

    def _masses(self, exponent: Array) -> Array:
        """Logs of bounds on the integral below the edges, on every cell, and above, without the density's constant.

        A standard deviation out, the integrand falls at least as exp(-x - x^2 / 2), whose sum over points of a step
        is at most 1.26 + step.
        """
        xp = array_module(exponent)
        most = self.shifts.max(-1)
        low, high = self.edges[..., 0], self.edges[..., -1]
        enough = high >= steepened(xp.maximum(exponent, 0.0) * most + 1.0, self.cut)
        enough &= low <= xp.minimum(exponent, 0.0) * most - 1.0
        ends, psi = (x[..., :: x.shape[-1] - 1] for x in (self.edges, self.at_edges.psi))
        tails = -0.5 * ends**2 + log_taper_above(ends, self.cut[..., None]) + exponent[..., None] * psi
        tails = xp.where(enough[..., None], tails + xp.log(1.26 + self.step)[..., None] + 1e-9, np.inf)
        cells = self._cells(exponent)[0] + xp.log(self.edges[..., 1:] - self.edges[..., :-1])
        cells = xp.broadcast_to(cells, (*tails.shape[:-1], cells.shape[-1]))
        return xp.concatenate([tails[..., :1], cells, tails[..., 1:]], -1)

    def _strip(self, exponent: Array, masses: Array, frequencies: Array) -> Array:
        """Log of the trapezoid rule's error at ``frequencies`` ``(B, K, n)``, without the density's constant."""
        xp = array_module(exponent)
        most, step = self.shifts.max(-1)[..., None], self.step[..., None]
        curvature = xp.where(self.cut < np.inf, CURVATURE, 1.0)[..., None]
        y = _HEIGHTS * xp.minimum(0.49 * np.pi / most, 2.0 * np.pi / (step * curvature))
        turns = 2.0 * np.pi * y / step
        # log 2 - x - log(1 - e^-x) <= 1.2 - x for x >= 1; otherwise the bound is useless anyway.
        log_error = xp.where(turns > 1.0, 1.2 - turns + 0.5 * curvature * y * y, np.inf)
        log_error = log_error + xp.minimum(exponent, 0.0)[..., None] * xp.log(xp.cos(0.5 * most * y))
        slope = inflated(self.at_edges.slope, 1e-9)
        slope = xp.concatenate([slope, most + 0.0 * slope[..., :1]], -1)  # the largest below, on each cell, above
        # Axes: heights, frequencies, cells.
        turn = xp.minimum(most[..., None], slope[..., None, :] / xp.cos(most * y)[..., None]) * y[..., None]
        turned = inflated(turn, 1e-9)[..., None, :] * frequencies[..., None, :, None]
        found = logsumexp(masses[..., None, None, :] + turned) + log_error[..., None]
        return xp.where(xp.isnan(found), np.inf, found).min(-2)

    @shared(static=("step",))
    def _weighed(self, exponent: Array, step: int) -> tuple[Array, Array, Array, Array, _Loss]:
        """Weights on every ``step``-th point, the log of their total, and relative errors but for the strip's.

        The first error is of rounding and of what lies outside the points; the second, logs of bounds on cells.
        """
        xp = array_module(exponent)
        t, base = self.points[..., ::step], self.base[..., ::step]
        loss = _Loss(*(x[..., ::step] for x in self.at_points))
        logs = base + exponent[..., None] * loss.psi
        top = logs.max(-1)
        weights = xp.exp(logs - top[..., None])
        total = weights.sum(-1)
        log_sum = top + xp.log(total)
        weights = weights / total[..., None]
        units = 24.0 + 4.0 * t * t + 16.0 * xp.abs(base + 0.5 * t * t) + 4.0 * xp.abs(exponent[..., None] * loss.psi)
        rounding = (weights * (UNIT * units + xp.abs(exponent)[..., None] * loss.off)).sum(-1)
        rounding = rounding + UNIT * (2.0 * t.shape[-1] + 32.0 + 8.0 * (xp.abs(top) + xp.abs(log_sum)))
        # The integral outside the points, and the sum there over all multiples of the step.
        masses = self._masses(exponent)
        width = step * self.step[..., None]
        left, right = self.edges[..., :-1], self.edges[..., 1:]
        covered = (left >= t[..., :1]) & (right <= t[..., -1:])
        wider = masses[..., 1:-1] + log1p(2.0 * width / (right - left))
        inner = xp.where(covered, -np.inf, wider)
        outside = logsumexp(xp.concatenate([masses[..., :1], inner, masses[..., -1:]], -1))
        log_integral = log_sum + xp.log(width[..., 0])
        outside = xp.exp(xp.minimum(outside - log_integral, 700.0))
        return weights, log_integral, rounding + 2.0 * outside, masses, loss

    def log_moments(self, tilts: Tilts) -> Moments:
        """See the protocol. In NumPy from the rule of twice the step; a program has one for this and `quadrature`."""
        xp = array_module(tilts)
        exponent = exponent_at(self.reverse, tilts[..., None] + 0.0 * self.theta)
        every = 2 if xp is np else 1
        coarse = self._replace(step=every * self.step)
        _, log_integral, relative, masses, _ = self._weighed(exponent, every)
        strip = coarse._strip(exponent, masses, xp.zeros_like(exponent)[..., None])[..., 0]
        error = relative + xp.exp(xp.minimum(strip - log_integral, 700.0))
        # The rule's sum is at least (1 - error) of the integral.
        return xp.where(error < 0.5, log_integral - HALF_LOG_2PI + 2.0 * error, np.inf)

    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """See the protocol."""
        xp = array_module(spacing)
        exponent = exponent_at(self.reverse, self.theta)
        weights, log_integral, relative, masses, found = self._weighed(exponent, 1)
        losses, mean, phase = centred(self.reverse, found.psi, found.off, weights)
        ends, blocks = octaves(nodes)
        ends = xp.broadcast_to(ends * spacing[:, None, None], (*exponent.shape, ends.size))
        strip = xp.exp(xp.minimum(self._strip(exponent, masses, ends) - log_integral[..., None], 700.0))
        frequencies = np.arange(nodes) * spacing[:, None, None]
        error = 2.0 * (strip[..., blocks] + 2.0 * strip[..., :1] + 2.0 * relative[..., None])
        log_total = log_integral - HALF_LOG_2PI
        layers = self._layers(exponent, found, log_integral + 2.0 * (strip[..., 0] + relative))
        return Quadrature(log_total, weights, losses, mean, error + frequencies * phase[..., None], *layers)

    def _layers(self, exponent: Array, found: _Loss, log_integral: Array) -> tuple[Array, Array]:
        """Uniform pieces under the density of the tilted loss: between points its factors are least at an end."""
        xp = array_module(exponent)
        base, power = self.base, exponent[..., None] * found.psi
        lower = lambda x: xp.minimum(x[..., 1:], x[..., :-1])  # noqa: E731
        # What logarithms are off by, however large they are: as docs/proofs/quadrature.md, lemma 6.
        most = self.shifts.max(-1)[..., None]
        size = (xp.abs(base) + xp.abs(power)).max(-1, keepdims=True)
        off = 32.0 + most * (xp.abs(self.points).max(-1, keepdims=True) + most)
        room = 1e-9 + 64.0 * UNIT * (size + (1.0 + xp.abs(exponent[..., None])) * off)
        least = lower(base) + lower(power) - log_integral[..., None] - room
        lengths = deflated(self.step[..., None] * found.slope[..., :-1], room)
        return layers_of(least - xp.log(found.slope[..., 1:]) - room, lengths)


def _loss(shifts: Array, weights: Array, t: Array) -> _Loss:
    """At ``t`` of shape ``(B, K, n)``."""
    k, v = shifts[..., None, :], weights[..., None, :]
    xp = array_module(t, k, v)
    y = xp.where(v > 0, k * (t[..., None] - 0.5 * k), 0.0)
    logs = xp.where(v > 0, y + xp.log(xp.where(v > 0, v, 1.0)), -np.inf)
    far = logsumexp(logs)
    small = (v * xp.expm1(xp.minimum(y, 40.0))).sum(-1)
    near = xp.abs(small) < 0.5
    psi = xp.where(near, log1p(xp.where(near, small, 0.0)), far)
    share = xp.exp(logs - far[..., None])
    size = (share * (1.0 + xp.abs(k * t[..., None]) + k * k)).sum(-1)
    return _Loss(psi, (share * k).sum(-1), UNIT * (16.0 + 4.0 * k.shape[-1]) * (xp.abs(psi) + size))
