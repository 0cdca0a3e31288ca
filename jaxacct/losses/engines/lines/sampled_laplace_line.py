"""The transform of the loss of a Laplace mechanism, on a Poisson sample or not.

With m the loss of the mechanism itself, R(m) = 1 - q + q e^m, and b = 1 + z (`remove`) or b = -z (`add`, after a
reflection), E_P[exp(z L)] is the mean of R(m)^b under Q: half of it lies at m = -eps, exp(-eps) / 2 at m = eps, and
between them it has the density exp(-(eps + m) / 2) / 4. That piece is a composite Gauss-Legendre rule, whose error is
bounded by the modulus of the integrand on ellipses around the panels (docs/proofs/transforms.md, section 4).
"""

from __future__ import annotations

import decimal
import functools
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp, shared, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct._types import Float64
from jaxacct.losses.engines.lines.line import Moments, Quadrature, Tilts, Totals, centred, normalized, octaves
from jaxacct.losses.engines.lines.normal_losses import exponent_at
from jaxacct.losses.engines.lines.uniform_layers import layers_of
from jaxacct.mechanisms.pairs.laplace import LaplacePair
from jaxacct.mechanisms.pairs.sampled import SampledPair
from jaxacct.mechanisms.pairs.sampled_loss import mixed_loss, mixed_loss_error

_NODES = 64  # of a panel
_PHASE = 45.0  # radians that half a panel turns by at most
_WIDTH = 8.0  # nats of m that a panel covers at most
_MOST = 32  # panels
_STEPS = 64  # of the density's step function
_DIGITS = 34
_RADII = np.array([1.15, 1.35, 1.7, 2.2, 3.0, 4.0, 6.0])  # of Bernstein ellipses

_HEIGHTS = 0.5 * (_RADII - 1.0 / _RADII), 0.5 * (_RADII + 1.0 / _RADII)  # half axes, across the interval and along it


class SampledLaplaceLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.line.Line`.

    Attributes:
        epsilon: sensitivity over scale, shape ``(B, K)`` as all; ``off`` bounds its error.
        rate, rest: sampling rate, 1 for none, and 1 - rate, each good to ``RATE_UNITS``.
        most: no loss is above.
        reverse: 0 is the direction `remove`, 1 is `add`.
        theta: the tilt.
        panels: of the composite rule, static; more where the frequencies ask for it and NumPy works.
    """

    epsilon: Array
    off: Array
    rate: Array
    rest: Array
    most: Array
    reverse: Array
    theta: Array
    panels: int

    @classmethod
    def of(cls, pair: LaplacePair | SampledPair, theta: Array, log_share: Array, points: int) -> SampledLaplaceLine:
        """Of a LaplacePair or a sample of one, on about so many points."""
        most = pair.max_loss() + 2.0 * pair.loss_error()
        panels = max(points // _NODES, 1)
        if isinstance(pair, SampledPair):
            inner = pair.inner
            return cls(inner.epsilon, inner.loss_error(), pair.rate, pair.rest, most, pair.reverse, theta, panels)
        none = 0.0 * pair.epsilon
        return cls(pair.epsilon, pair.loss_error(), none + 1.0, none, most, none, theta, panels)

    def totals(self) -> Totals:
        """Nothing is left out; the largest loss is the pair's."""
        return Totals(0.0, 0.0, 0.0, 0.0, self.most)

    @shared(static=("panels",))
    def _log_terms(self, exponent: Array, panels: int) -> tuple[Array, Array, Array, Array]:
        """Logs of the terms of E_Q[R^b] for ``exponent`` of shape ``(..., B, K)``, log R there, and two errors.

        The errors are the rule's, relative, and that of a term's logarithm.
        """
        eps, q, rest = (x[..., None] for x in (self.epsilon, self.rate, self.rest))
        nodes, log_weights = _composite(panels)
        m = xp.concatenate([-eps, eps * nodes, eps], -1)
        atoms = xp.concatenate([np.log(0.5) + 0.0 * eps, np.log(0.5) - eps], -1)
        inner = xp.log(0.25 * eps) - 0.5 * (eps + m[..., 1:-1]) + log_weights
        base = xp.concatenate([atoms[..., :1], inner, atoms[..., 1:]], -1)
        psi = mixed_loss(m, q, rest)
        off = mixed_loss_error(m, self.off[..., None] + 4.0 * UNIT * xp.abs(m), q, psi)
        logs = base + exponent[..., None] * psi
        error = UNIT * (64.0 + 8.0 * xp.abs(base) + 4.0 * xp.abs(exponent[..., None] * psi)) + 4.0 * self.off[..., None]
        return logs, psi, off, error + (1.0 + xp.abs(exponent[..., None])) * off

    def _rule_errors(self, exponent: Array, panels: int, frequencies: Array) -> Array:
        """Bounds on the rule's error at ``frequencies`` ``(..., n)``, for ``exponent`` ``(...)``; logarithms."""
        eps, q, rest = (x[..., None] for x in (self.epsilon, self.rate, self.rest))
        across, along = _HEIGHTS
        half = eps / panels
        y = half * across
        centres = -1.0 + (2.0 * np.arange(panels) + 1.0) / panels
        largest = []
        for end in (-1.0, 1.0):  # axes: panels, ellipses
            x = eps[..., None] * (centres[:, None] + end * along / panels)
            value = exponent[..., None, None] * mixed_loss(x, q[..., None], rest[..., None]) - 0.5 * x
            largest.append(value)
        modulus = logsumexp(xp.maximum(*largest).swapaxes(-1, -2))
        far = eps + half * (along - 1.0)
        steep = xp.exp(xp.log(q) + far - mixed_loss(far, q, rest))
        steep = inflated(xp.where(steep < 0.5, steep, 1.0), 1e-9)
        turn, bent = steep * y, xp.where(steep < 0.5, steep * (1.0 - steep), 0.25)
        shrunk = 0.5 * xp.minimum(exponent, 0.0)[..., None] * log1p(-4.0 * bent * xp.sin(0.5 * xp.minimum(y, 3.1)) ** 2)
        log_error = modulus + shrunk + _log_rule_error(_NODES) + xp.log(0.25 * half) - 0.5 * eps + 1e-9
        log_error = xp.where(y < 3.1, log_error, np.inf)
        return (log_error[..., None, :] + turn[..., None, :] * frequencies[..., None]).min(-1)

    def log_moments(self, tilts: Tilts) -> Moments:
        """See the protocol."""
        exponent = exponent_at(self.reverse, tilts[..., None])
        panels = self._panels(0.0)
        logs, _, _, off = self._log_terms(exponent, panels)
        value = logsumexp(logs + off) + UNIT * (2.0 * logs.shape[-1] + 32.0)
        error = self._rule_errors(exponent, panels, xp.zeros_like(exponent)[..., None])[..., 0]
        return xp.logaddexp(value, error) + 8.0 * UNIT * (2.0 + xp.abs(value))

    def _panels(self, frequency: Array | float) -> int:
        """Enough panels for all settings, up to ``frequency``, in NumPy; otherwise as many as were asked for."""
        if array_module(self.epsilon, frequency) is not np:
            return self.panels
        steep = np.exp(
            np.log(self.rate) + self.epsilon - mixed_loss(self.epsilon, self.rate, self.rest)
        )  # of log R in m
        wanted = np.maximum(self.epsilon / _WIDTH, frequency * steep * self.epsilon / _PHASE)
        wanted = np.nanmax(np.where(np.isfinite(wanted), wanted, 1.0), initial=1.0)
        return int(np.clip(2.0 ** np.ceil(np.log2(wanted)), 1.0, _MOST))

    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """See the protocol."""
        exponent = exponent_at(self.reverse, self.theta)
        panels = self._panels(nodes * spacing[:, None])
        logs, psi, off, units = self._log_terms(exponent, panels)
        weights, log_total = normalized(logs)
        losses, mean, phase = centred(self.reverse, psi, off, weights)
        rounding = (weights * units).sum(-1) + UNIT * (2.0 * logs.shape[-1] + 32.0 + 8.0 * xp.abs(log_total))
        ends, blocks = octaves(nodes)
        ends = xp.broadcast_to(ends * spacing[:, None, None], (*exponent.shape, ends.size))
        log_error = self._rule_errors(exponent, panels, ends)
        errors = xp.exp(xp.minimum(log_error - log_total[..., None], 700.0))
        # Neither the rule nor the truth is more than the smooth piece weighs.
        smooth = weights[..., 1:-1].sum(-1, keepdims=True) + 2.0 * errors[..., :1]
        errors = xp.minimum(errors, 2.0 * smooth)[..., blocks]
        frequencies = np.arange(nodes) * spacing[:, None, None]
        error = 2.0 * (errors + errors[..., :1] + 2.0 * rounding[..., None]) + frequencies * phase[..., None]
        layers = self.layers(exponent, log_total + 2.0 * error[..., 0])
        return Quadrature(log_total, weights, losses, mean, error, *layers)

    def layers(self, exponent: Array, log_total: Array) -> tuple[Array, Array]:
        """Uniform pieces under the density of the tilted loss: of m it is e^(-m / 2) R^b, and d L / d m = p rises."""
        eps, q, rest, b = (x[..., None] for x in (self.epsilon, self.rate, self.rest, exponent))
        edges = eps * np.linspace(-1.0, 1.0, _STEPS + 1)
        psi = mixed_loss(edges, q, rest)
        slope = xp.exp(xp.log(q) + edges - psi)
        power = xp.minimum(b * psi[..., 1:], b * psi[..., :-1])
        # What logarithms are off by, however large they are.
        size = xp.abs(b * psi).max(-1, keepdims=True) + (1.0 + xp.abs(b)) * (1.0 + eps - xp.log(q))
        room = 1e-9 + 128.0 * UNIT * size
        least = np.log(0.25) - 0.5 * (eps + edges[..., 1:]) + power - log_total[..., None] - room
        lengths = deflated(2.0 * eps / _STEPS * slope[..., :-1], room)
        return layers_of(least - xp.log(slope[..., 1:]) - room, lengths)


def _composite(panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [-1, 1] and logs of the weights of a rule on equal panels."""
    nodes, weights = _rule(_NODES)
    centres = -1.0 + (2.0 * np.arange(panels)[:, None] + 1.0) / panels
    log_weights = np.log(weights / panels) + 0.0 * centres
    return (centres + nodes / panels).ravel(), log_weights.ravel()


@functools.cache
def _rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [-1, 1] and weights, of an even number of nodes. NumPy's weights are off by thousands of units."""
    nodes, weights = [], []
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        one = decimal.Decimal(1)
        for start in np.polynomial.legendre.leggauss(count)[0][count // 2 :]:
            x, slope = decimal.Decimal(float(start)), one
            for _ in range(2):  # from 16 digits to all, and the derivative there
                before, value = one, x
                for k in range(2, count + 1):
                    before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
                slope = count * (before - x * value) / (one - x * x)
                x -= value / slope
            nodes.append(float(x))
            weights.append(float(2 / ((one - x * x) * slope * slope)))
    nodes, weights = np.array(nodes), np.array(weights)
    return np.concatenate([-nodes[::-1], nodes]), np.concatenate([weights[::-1], weights])


def _log_rule_error(count: int) -> np.ndarray:
    """Log of what the rule errs by at most for a function that is 1 or less in modulus on each of the ellipses.

    64/15 r^(2 - 2 n) / (1 - r^-2) for radius r (Trefethen 2019, Approximation Theory and Approximation Practice,
    Theorem 19.3).
    """
    return np.log(64.0 / 15.0) - (2 * count - 2) * np.log(_RADII) - np.log1p(-(_RADII**-2.0)) + 1e-9
