"""The transform of the loss of a Laplace mechanism in closed form.

With E(z) = exp(-(2 z + 1) eps),

    E_P[exp(z L)] = e^(z eps) (1/2 + E(z) / 2 + (1 - E(z)) / (4 (z + 1/2))):

atoms at eps and -eps, and the density exp(-(eps - l) / 2) / 4 between them. It is even in z + 1/2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.rounding import UNIT
from jaxacct.losses.engines.lines.base import Closed, Totals
from jaxacct.losses.engines.lines.sampled_laplace import SampledLaplaceLine
from jaxacct.mechanisms.pairs.laplace import LaplacePair


class LaplaceLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.base.Line`; sensitivity over scale, its error, and the tilt."""

    epsilon: Array
    off: Array
    theta: Array

    @classmethod
    def of(cls, pair: LaplacePair, theta: Array, log_share: Array, points: int) -> LaplaceLine:
        """Of a LaplacePair."""
        return cls(pair.epsilon, pair.loss_error(), theta)

    def totals(self) -> Totals:
        """Nothing is left out, and no loss is above eps."""
        none = 0.0 * self.epsilon
        return Totals(none, none, none, none, self.epsilon + self.off)

    def log_moments(self, tilts: Array) -> Array:
        """See the protocol."""
        xp = array_module(tilts, self.epsilon)
        t = tilts[..., None]
        t = xp.maximum(t, -1.0 - t)
        eps, k = self.epsilon, xp.maximum(t + 0.5, 1e-200)
        less = xp.exp(-2.0 * k * eps)
        value = t * eps + xp.log(0.5 + 0.5 * less - 0.25 * xp.expm1(-2.0 * k * eps) / k)
        return value + (2.0 + 4.0 * k) * self.off + UNIT * (64.0 + 16.0 * k * eps)

    def quadrature(self, spacing: Array, nodes: int) -> Closed:
        """See the protocol."""
        eps, theta = self.epsilon, self.theta
        xp = array_module(eps, spacing)
        k = theta + 0.5
        less, rest = xp.exp(-2.0 * k * eps), -xp.expm1(-2.0 * k * eps)
        total = 0.5 + 0.5 * less + 0.25 * rest / k
        log_total = theta * eps + xp.log(total)
        mean = eps + (eps * less * (0.5 / k - 1.0) - 0.25 * rest / k**2) / total

        w = np.arange(nodes) * spacing[:, None, None]
        away = (eps - mean)[..., None]
        edge = 0.25 / (k[..., None] + 1j * w)
        turned = less[..., None] * xp.exp(-2j * w * eps[..., None])
        found = xp.exp(1j * w * away) * (0.5 + edge + (0.5 - edge) * turned) / total[..., None]

        # Of the closed form, and of what an error of eps does to each of its terms.
        size = eps * (1.0 + theta)
        rounding = UNIT * (64.0 + 32.0 * size) + 4.0 * (1.0 + theta) * self.off
        phase = UNIT * 16.0 * (eps + xp.abs(mean)) + 2.0 * self.off
        error = 4.0 * rounding[..., None] + w * phase[..., None]
        none = 0.0 * eps
        density = SampledLaplaceLine(eps, self.off, none + 1.0, none, eps, none, theta, 1)
        layers = density.layers(1.0 + theta, log_total + 2.0 * error[..., 0])
        return Closed(log_total, found.real - 1.0, found.imag, mean, error, *layers)
