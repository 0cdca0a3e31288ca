"""The transform of a pair that lists its outcomes: a finite sum, but for rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.losses.engines.contour.quadrature import Quadrature
from jaxacct.mechanisms.pairs.table import LEAST, Atoms


class OutcomesLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.base.Line`.

    A true loss is off by ``atoms.loss_error`` from the listed one, which turns a term by w times that; a true mass is
    off by a share ``atoms.error``, and by ``LEAST``, which underflow may hide.
    """

    atoms: Atoms
    rest: Array
    theta: Array

    def _parts(self) -> tuple[Array, Array, Array, Array]:
        """Losses and log masses of finite losses, bounds on the error of a loss and of a log mass but for LEAST."""
        atoms = self.atoms
        xp = array_module(atoms.p)
        finite = xp.isfinite(atoms.losses) & (atoms.p > 0)
        losses = xp.where(finite, atoms.losses, 0.0)
        log_masses = xp.where(finite, xp.log(xp.where(finite, atoms.p, 1.0)), -np.inf)
        off, error = (xp.broadcast_to(x, losses.shape) for x in (atoms.loss_error, atoms.error))
        poison = 0.0 * (atoms.p.sum(-1) + atoms.q.sum(-1))[..., None]
        return losses + poison, log_masses, xp.where(finite, off, 0.0), error

    def infinite(self) -> tuple[Array, Array]:
        """The sum of the masses without Q, rounded both ways."""
        atoms = self.atoms
        xp = array_module(atoms.p)
        side = lambda masses: xp.where(atoms.losses == np.inf, masses, 0.0).sum(-1)  # noqa: E731
        size = UNIT * (4.0 + atoms.losses.shape[-1])
        low = side(xp.where(atoms.p > LEAST, deflated(atoms.p, atoms.error), 0.0))
        high = side(xp.where(atoms.p > 0, inflated(atoms.p, atoms.error) + LEAST, 0.0))
        return deflated(low, size), inflated(high, size)

    def left_out(self) -> Array:
        """What other outcomes have."""
        return self.rest

    def log_mass(self) -> Array:
        """What is not infinite, and listed."""
        return log1p(-self.infinite()[1] - self.rest) - 4.0 * UNIT

    def largest(self) -> Array:
        """The largest loss that has any mass."""
        losses, log_masses, off, _ = self._parts()
        xp = array_module(losses)
        return (xp.where(log_masses > -np.inf, losses + off, -np.inf) + 0.0 * losses).max(-1)

    def log_moments(self, tilts: Array) -> Array:
        """See the protocol."""
        losses, log_masses, off, error = self._parts()
        xp = array_module(tilts)
        t = tilts[..., None, None]
        log_masses = xp.logaddexp(log_masses + log1p(error), xp.where(log_masses > -np.inf, np.log(LEAST), -np.inf))
        found = logsumexp(t * losses + xp.abs(t) * off + log_masses)
        size = xp.abs(found) + xp.abs(tilts)[..., None] * xp.abs(losses).max(-1) + 700.0
        return found + UNIT * (16.0 + 2.0 * losses.shape[-1] + 8.0 * size)

    def quadrature(self, spacing: Array, nodes: int) -> Quadrature:
        """See the protocol."""
        losses, log_masses, off, share = self._parts()
        theta = self.theta[..., None]
        xp = array_module(theta)
        exponent = log_masses + theta * losses
        top = exponent.max(-1)
        weights = xp.exp(exponent - top[..., None])
        total = weights.sum(-1)
        log_total = top + xp.log(total)
        weights = weights / total[..., None]
        mean = (weights * losses).sum(-1)
        centred = losses - mean[..., None]
        massive = log_masses > -np.inf
        hidden = xp.where(massive, np.log(LEAST) + theta * losses - log_total[..., None], -np.inf)
        size = xp.where(massive, xp.abs(log_masses), 0.0) + 2.0 * theta * xp.abs(losses)
        units = UNIT * (24.0 + 4.0 * size) + share + 1.01 * theta * off
        error = (weights * units).sum(-1) + xp.exp(hidden).sum(-1)
        error = error + UNIT * (2.0 * weights.shape[-1] + 32.0 + 8.0 * xp.abs(log_total))
        phase = 8.0 * UNIT * (xp.abs(losses) + xp.abs(mean)[..., None]) + 1.01 * off
        phase = (weights * phase).sum(-1)
        frequencies = np.arange(nodes) * spacing[:, None, None]
        none = xp.zeros_like(theta)
        return Quadrature(
            log_total, weights, centred, mean, 4.0 * error[..., None] + frequencies * phase[..., None], none, none
        )
