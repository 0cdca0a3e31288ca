"""The transform of a discrete law along a vertical line, as `losses.engines.discrete_laws.bounds` composes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp
from jaxacct._numerics.rounding import UNIT, deflated
from jaxacct.losses.engines.discrete_laws.cells import Law
from jaxacct.losses.engines.lines.base import Quadrature, no_layers


class LawLine(NamedTuple):
    """A law, exactly as it stands; see :class:`jaxacct.losses.engines.lines.base.Line`."""

    law: Law
    theta: Array

    def infinite(self) -> tuple[Array, Array]:
        """The law's."""
        return self.law.infinite, self.law.infinite

    def left_out(self) -> Array:
        """Nothing."""
        return 0.0 * self.law.infinite

    def log_mass(self) -> Array:
        """That of the finite losses."""
        masses = self.law.masses
        xp = array_module(masses)
        return xp.log(deflated(masses.sum(-1), UNIT * (2.0 + masses.shape[-1])))

    def largest(self) -> Array:
        """The largest finite loss; NaN where the law is none."""
        return self.law.losses.max(-1) + 0.0 * self.law.masses.sum(-1)

    def _log_masses(self) -> Array:
        masses = self.law.masses
        xp = array_module(masses)
        positive = masses > 0
        return xp.where(positive, xp.log(xp.where(positive, masses, 1.0)), -np.inf) + 0.0 * masses  # NaN stays NaN

    def log_moments(self, tilts: Array) -> Array:
        """See the protocol."""
        xp = array_module(tilts)
        found = logsumexp(tilts[..., None, None] * self.law.losses + self._log_masses())
        size = xp.abs(found) + xp.abs(tilts)[..., None] * xp.abs(self.law.losses).max(-1) + 700.0
        return found + UNIT * (16.0 + 2.0 * self.law.losses.shape[-1] + 8.0 * size)

    def quadrature(self, spacing: Array, nodes: int) -> Quadrature:
        """See the protocol."""
        law, theta = self.law, self.theta[..., None]
        xp = array_module(theta)
        log_masses = self._log_masses()
        exponent = log_masses + theta * law.losses
        top = exponent.max(-1)
        weights = xp.exp(exponent - top[..., None])
        total = weights.sum(-1)
        log_total = top + xp.log(total)
        weights = weights / total[..., None]
        mean = (weights * law.losses).sum(-1)
        centred = law.losses - mean[..., None]
        size = xp.where(law.masses > 0, xp.abs(log_masses), 0.0) + 2.0 * theta * xp.abs(law.losses)
        error = (weights * UNIT * (24.0 + 4.0 * size)).sum(-1)
        error = error + UNIT * (2.0 * weights.shape[-1] + 32.0 + 8.0 * xp.abs(log_total))
        phase = 8.0 * UNIT * (weights * (xp.abs(law.losses) + xp.abs(mean)[..., None])).sum(-1)
        frequencies = np.arange(nodes) * spacing[:, None, None]
        found = 4.0 * error[..., None] + frequencies * phase[..., None]
        return Quadrature(log_total, weights, centred, mean, found, *no_layers(theta))
