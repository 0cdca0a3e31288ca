"""The tilted loss of a normal output as some hundred weighted points, with certified errors: `NormalLine`.

The loss is log R(t) (`remove`) or -log R(t) (`add`), :mod:`jaxacct.losses.engines.lines.normal_losses`, and
E_P[exp(z L)] = A(b) = E_{t ~ N(0,1)}[g R^b] with b = 1 + z or b = -z, and for `remove` a taper g
(:mod:`jaxacct.losses.engines.lines.taper`). For z = theta + i w, beta = Re b.

The integral is a trapezoid rule of step h. On a strip |Im t| = y, with v = k y for the largest slope k of log R, and
p = (log R)' / k at Re t, the integrand's modulus is at most exp(c y^2 / 2 + |w| |arg R|) times
(1 - 4 p (1 - p) sin(v / 2)^2)^(min(beta, 0) / 2) times the real one. Its integral is bounded cell by cell, as is what
lies outside the points. Every constant: docs/proofs/quadrature.md, and docs/proofs/transforms.md, section 5.

Arrays have any leading axes, the same for a loss's parameters, theta and cut; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp, product, shared, stopped, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct._types import Float64
from jaxacct.losses.engines.lines.line import Moments, Quadrature, Tilts, Totals, centred
from jaxacct.losses.engines.lines.normal_losses import NormalLoss, exponent_at
from jaxacct.losses.engines.lines.normal_points import Points, cell_bounds, placed
from jaxacct.losses.engines.lines.taper import CURVATURE, HALF_LOG_2PI, left_out, placed_cut, steepened
from jaxacct.losses.engines.lines.uniform_layers import layers_of
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.mixture import MixturePair

_HEIGHTS = np.array([0.08, 0.2, 0.4, 0.7, 1.0])  # of the strip, of the highest that may be of use


class NormalLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.line.Line`; leaves of shape ``(B, K)``, and more axes of their own."""

    loss: NormalLoss
    theta: Array
    cut: Array
    points: Points

    @classmethod
    def of(cls, pair: GaussianPair | MixturePair, theta: Array, log_share: Array, points: int) -> NormalLine:
        """On so many points; at most about exp(``log_share``) is left out."""
        loss = NormalLoss.of(pair)
        cut = placed_cut(loss, log_share)
        return cls(loss, theta, cut, placed(loss, theta, points, cut))

    def totals(self) -> Totals:
        """All but what the taper leaves out; the largest loss is the pair's."""
        left = left_out(self.loss, self.cut)
        return Totals(0.0, 0.0, left, log1p(-left) - 4.0 * UNIT, self.loss.largest)

    def log_moments(self, tilts: Tilts) -> Moments:
        """See the protocol."""
        wide = xp.broadcast_to(tilts[..., None], (*tilts.shape, self.theta.shape[-1]))
        return log_moments(self.loss, wide, self.cut, self.points)

    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """See the protocol."""
        wide = xp.broadcast_to(spacing[:, None], self.theta.shape)
        return quadrature(self.loss, self.theta, self.cut, self.points, wide, nodes)


@shared
def _beyond(loss: NormalLoss, beta: Array, cut: Array, points: Points) -> Array:
    """Logs of bounds on the integral, and on the rule's sum, below the cells and above them, on one more axis.

    The log integrand falls there at least as fast as a normal density's from where it stands, a standard deviation
    out or more: see ``normal_points``. A sum over points of step exp(-x - x^2 / 2), x > 0, is at most 1.26 + step. At a
    tilt for which the cells were not made they may be too short.
    """
    most = beta * loss.steepest
    enough = points.high >= steepened(xp.maximum(most, 0.0) + 1.0, cut)
    enough &= points.low <= xp.minimum(most * points.slope_at_0, 0.0) - 1.0
    base, psi = (x[..., :: x.shape[-1] - 1] for x in (points.edge_base, points.edge_psi))
    ends = base + beta[..., None] * psi + xp.log(1.26 + points.step)[..., None]
    return xp.where(enough[..., None], ends, np.inf)


def _outside(loss: NormalLoss, beta: Array, cut: Array, points: Points) -> tuple[Array, Array]:
    """Log of a bound on the integral, and on the rule's sum, outside the points, for any ``beta``; and `_beyond`."""
    some = slice(None)
    if array_module(beta) is np:  # what points cover everywhere counts for nothing, and takes half the time
        some = np.flatnonzero(~(points.uncovered == -np.inf).all(tuple(range(points.uncovered.ndim - 1))))
    psi, beyond = points.edge_psi, _beyond(loss, beta, cut, points)
    bounds = psi[..., :-1], psi[..., 1:], points.edge_base[..., :-1], points.cell_base, points.tangent
    cells = cell_bounds(beta, *(x[..., some] for x in bounds)) + points.uncovered[..., some]
    return logsumexp(xp.concatenate([cells, beyond], -1)) - HALF_LOG_2PI, beyond


@shared
def _heights(loss: NormalLoss, cut: Array, step: Array) -> tuple[Array, Array]:
    """v of strips, and log(2 / (exp(2 pi y / h) - 1)) + k y^2 / 2; shape ``(..., heights)``."""
    steepest, step = loss.steepest[..., None], step[..., None]
    curvature = xp.where(cut < np.inf, CURVATURE, 1.0)[..., None]
    v = _HEIGHTS * xp.minimum(loss.heights, steepest * (2.0 * np.pi) / (step * curvature))
    turns = 2.0 * np.pi * v / (steepest * step)
    # log 2 - x - log(1 - e^-x) <= 1.2 - x for x >= 1; otherwise the bound is useless anyway.
    return v, xp.where(turns > 1.0, 1.2 - turns + 0.5 * curvature * (v / steepest) ** 2, np.inf)


@shared
def _strip_at_0(loss: NormalLoss, beta: Array, cut: Array, step: Array) -> Array:
    """The trapezoid rule's relative error at frequency 0, with |R| >= R(Re t) cos(v / 2)."""
    v, log_error = _heights(loss, cut, step)
    log_error = log_error + xp.minimum(beta, 0.0)[..., None] * xp.log(xp.cos(0.5 * v))
    return xp.exp(xp.minimum(log_error.min(-1), 700.0))


def _room(loss: NormalLoss, beta: Array, points: Points) -> Array:
    """What log integrand and log slope are off by at a point or an edge: docs/proofs/quadrature.md, lemma 6."""
    size = (xp.abs(points.edge_base) + xp.abs(beta[..., None] * points.edge_psi)).max(-1)
    farthest = xp.maximum(xp.abs(points.low), xp.abs(points.high))
    off = loss.size() + loss.steepest * (farthest + loss.steepest)
    return 1e-9 + 64.0 * UNIT * (size + (1.0 + xp.abs(beta)) * off)


def _strip(
    loss: NormalLoss,
    beta: Array,
    cut: Array,
    points: Points,
    beyond: Array,
    log_total: Array,
    spacing: Array,
    nodes: int,
    room: Array,
) -> Array:
    """The trapezoid rule's error at ``nodes`` multiples of ``spacing``, relative to A(beta)."""
    v, log_error = _heights(loss, cut, points.step)
    # What lies beyond the cells is two more cells, where p is between 0 and 1.
    one = xp.ones_like(points.edge_slope[..., :1])
    slopes = inflated(xp.concatenate([0.0 * one, points.edge_slope, one], -1), room[..., None])
    left, right = slopes[..., :-1], slopes[..., 1:]
    bent = inflated(
        xp.maximum(left * (1.0 - left), right * (1.0 - right)), 8.0 * room[..., None]
    )  # p (1 - p), the largest on a cell
    bent = xp.where((left < 0.5) & (right > 0.5), 0.25, bent)
    masses = xp.concatenate([beyond[..., :1], points.most + points.cells, beyond[..., 1:]], -1)
    masses = masses - (log_total + HALF_LOG_2PI)[..., None]

    # Axes: heights, frequencies that grow by factors of 4, cells.
    power = 0.5 * xp.minimum(beta, 0.0)[..., None, None]
    shrunk = power * log1p(-4.0 * bent[..., None, :] * xp.sin(0.5 * v)[..., None] ** 2)
    still = (masses[..., None, :] + shrunk)[..., None, :]
    per_frequency = loss.turn(right[..., None, :], v[..., None])[..., None, :]
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


@shared
def _weighed(loss: NormalLoss, beta: Array, cut: Array, points: Points) -> tuple[Array, ...]:
    """Weights and their total, the log of the integral, its relative error but for the strip's, and `_beyond`."""
    size = points.t.shape[-1]
    power = beta[..., None] * points.psi
    log_weight = points.log_base + power
    top = log_weight.max(-1)
    weights = xp.exp(log_weight - top[..., None])
    total = weights.sum(-1)
    log_total = top + xp.log(total) + xp.log(points.step) - HALF_LOG_2PI
    square = 0.5 * points.t**2
    # Two errors of a point's logarithm: one that the tilt does not change, and one that is in proportion to beta.
    fixed = UNIT * (24.0 + 8.0 * square + 16.0 * xp.abs(points.log_base + square))
    tilted = points.off + 4.0 * UNIT * xp.abs(points.psi)
    means = product(weights[..., None, :], xp.stack([fixed, tilted], -1))[..., 0, :] / total[..., None]
    rounding = means[..., 0] + xp.abs(beta) * means[..., 1]
    rounding = rounding + UNIT * (2.0 * size + 32.0 + 8.0 * xp.abs(top - log_total))
    outside, beyond = _outside(*stopped((loss, beta, cut, points)))
    return weights, total, log_total, rounding + 2.0 * xp.exp(xp.minimum(outside - log_total, 700.0)), beyond


def _thinned(points: Points) -> Points:
    """Every second point: the rule of twice the step."""
    half = {name: getattr(points, name)[..., ::2] for name in ("t", "psi", "slope", "log_base", "off")}
    return points._replace(step=2.0 * points.step, **half)


class _Tilted(NamedTuple):
    """What :func:`_weighed` says at a tilt, and the strip's relative error at frequency 0."""

    weights: Array
    total: Array
    log_total: Array
    relative: Array
    beyond: Array
    strip: Array


def _tilted(loss: NormalLoss, theta: Array, cut: Array, points: Points) -> _Tilted:
    beta = exponent_at(loss.reverse, theta)
    return _Tilted._make((*_weighed(loss, beta, cut, points), _strip_at_0(loss, beta, cut, points.step)))


def log_moments(loss: NormalLoss, tilts: Array, cut: Array, points: Points) -> Array:
    """Upper bounds of K(t) = log E_P[exp(t L)] at ``tilts``; inf where the points do not suit.

    In NumPy from every second point; a program has the same operations for this and for :func:`quadrature`.
    """
    return _log_moment(_tilted(loss, tilts, cut, _thinned(points) if array_module(tilts) is np else points))


def _log_moment(law: _Tilted) -> Array:
    error = law.relative + law.strip
    # The rule's sum is at least (1 - error) of the integral.
    return xp.where(error < 0.5, law.log_total + 2.0 * error, np.inf)


@shared(static=("nodes",))
def quadrature(loss: NormalLoss, theta: Array, cut: Array, points: Points, spacing: Array, nodes: int) -> Quadrature:
    """The law of the tapered loss, tilted by theta, on ``points``; errors at ``nodes`` multiples of ``spacing``.

    Every constant is counted in docs/proofs/quadrature.md.
    """
    beta = exponent_at(loss.reverse, theta)
    weights, total, log_total, relative, beyond, strip_at_0 = _tilted(loss, theta, cut, points)
    weights = weights / total[..., None]
    losses, mean, phase = centred(loss.reverse, points.psi, points.off, weights)
    still = stopped((loss, beta, cut, points))
    base = strip_at_0 + 2.0 * relative
    room = stopped(_room(loss, beta, points))
    strip = _strip(*still, *stopped((beyond, log_total)), spacing=spacing, nodes=nodes, room=room)
    frequencies = np.arange(nodes) * spacing[..., None]
    # Weights are those of the computed total, whose own error counts a second time; second-order terms are a fiftieth.
    wrong = xp.where((base < 0.01) & (room < 0.1), 2.0 * strip[..., 0] + 2.05 * relative, np.inf)[..., None]
    error = 2.0 * strip + wrong + frequencies * phase[..., None]
    layers = points, loss.steepest, beta[..., None] * points.psi, log_total + 2.0 * base, room
    return Quadrature(log_total, weights, losses, mean, error, *_layers(*stopped(layers)))


def _layers(points: Points, steepest: Array, power: Array, log_total: Array, room: Array) -> tuple[Array, Array]:
    """Uniform pieces under the density of the tilted loss: masses and lengths.

    On a cell the normal density, the taper and the power are least at an end, and d loss / dt is largest at the right
    one; its length is the difference of log R at both.
    """
    slope, room = steepest[..., None] * points.slope[..., 1:], room[..., None]
    # The density is unimodal: where it is least on a cell it is at an end as well, with the taper.
    base = xp.minimum(points.log_base[..., 1:], points.log_base[..., :-1])
    least = base + xp.minimum(power[..., 1:], power[..., :-1]) - log_total[..., None] - HALF_LOG_2PI
    lengths = xp.diff(points.psi) - points.off[..., 1:] - points.off[..., :-1]
    return layers_of(least - xp.log(slope) - 4.0 * room, deflated(xp.maximum(lengths, 0.0), 1e-9))
