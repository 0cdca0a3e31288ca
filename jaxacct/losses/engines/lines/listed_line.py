"""The transform of a law that is a list of losses: a finite sum, exact up to rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, logsumexp, shared, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct._types import Float64
from jaxacct.losses.engines.laws.cells import Law
from jaxacct.losses.engines.lines.line import Moments, Quadrature, Tilts, Totals, normalized
from jaxacct.mechanisms.pairs.table import LEAST, Atoms


class ListedLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.line.Line`; finite losses on one more axis, ``(B, K, S)``.

    Attributes:
        losses, log_masses: of the listed law. A true loss is off by ``off``, a true mass by a share ``error`` and by
            exp(``log_hidden``).
        theta: the tilt.
        whole: the law's totals.
    """

    losses: Array
    log_masses: Array
    off: Array | float
    error: Array | float
    log_hidden: float
    theta: Array
    whole: Totals

    @classmethod
    def of_law(cls, law: Law, theta: Array) -> ListedLine:
        """A law, exactly as it stands; the largest loss is NaN where it is none."""
        losses, masses, infinite = law
        total = masses.sum(-1)
        log_mass = xp.log(deflated(total, UNIT * (2.0 + masses.shape[-1])))
        whole = Totals(infinite, infinite, 0.0 * infinite, log_mass, losses.max(-1) + 0.0 * total)
        positive = masses > 0
        log_masses = xp.where(positive, xp.log(xp.where(positive, masses, 1.0)), -np.inf)
        log_masses = log_masses + 0.0 * masses  # NaN stays NaN
        return cls(losses, log_masses, 0.0, 0.0, -np.inf, theta, whole)

    @classmethod
    def of_outcomes(cls, atoms: Atoms, rest: Array, theta: Array) -> ListedLine:
        """Outcomes of a pair, but for ``rest``; underflow may hide ``LEAST`` of a mass."""
        p = atoms.p
        finite = xp.isfinite(atoms.losses) & (p > 0)
        losses = xp.where(finite, atoms.losses, 0.0) + 0.0 * (p.sum(-1) + atoms.q.sum(-1))[..., None]
        log_masses = xp.where(finite, xp.log(xp.where(finite, p, 1.0)), -np.inf)
        off, error = (xp.broadcast_to(x, losses.shape) for x in (atoms.loss_error, atoms.error))
        off = xp.where(finite, off, 0.0)
        infinite = lambda masses: xp.where(atoms.losses == np.inf, masses, 0.0).sum(-1)  # noqa: E731
        size = UNIT * (4.0 + losses.shape[-1])
        low = deflated(infinite(xp.where(p > LEAST, deflated(p, atoms.error), 0.0)), size)
        high = inflated(infinite(xp.where(p > 0, inflated(p, atoms.error) + LEAST, 0.0)), size)
        largest = (xp.where(log_masses > -np.inf, losses + off, -np.inf) + 0.0 * losses).max(-1)
        whole = Totals(low, high, rest, log1p(-high - rest) - 4.0 * UNIT, largest)
        return cls(losses, log_masses, off, error, float(np.log(LEAST)), theta, whole)

    def totals(self) -> Totals:
        """See the protocol."""
        return self.whole

    def log_moments(self, tilts: Tilts) -> Moments:
        """See the protocol."""
        t, hidden = tilts[..., None, None], xp.where(self.log_masses > -np.inf, self.log_hidden, -np.inf)
        log_masses = xp.logaddexp(self.log_masses + log1p(self.error), hidden)
        found = logsumexp(t * self.losses + xp.abs(t) * self.off + log_masses)
        size = xp.abs(found) + xp.abs(tilts)[..., None] * xp.abs(self.losses).max(-1) + 700.0
        return found + UNIT * (16.0 + 2.0 * self.losses.shape[-1] + 8.0 * size)

    @shared(static=("nodes",))
    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """See the protocol. An error of a loss turns a term by w times that."""
        losses, log_masses, theta = self.losses, self.log_masses, self.theta[..., None]
        weights, log_total = normalized(log_masses + theta * losses)
        mean = (weights * losses).sum(-1)
        massive = log_masses > -np.inf
        hidden = xp.where(massive, self.log_hidden + theta * losses - log_total[..., None], -np.inf)
        size = xp.where(massive, xp.abs(log_masses), 0.0) + 2.0 * theta * xp.abs(losses)
        units = UNIT * (24.0 + 4.0 * size) + self.error + 1.01 * theta * self.off
        error = (weights * units).sum(-1) + xp.exp(hidden).sum(-1)
        error = error + UNIT * (2.0 * weights.shape[-1] + 32.0 + 8.0 * xp.abs(log_total))
        phase = (weights * (8.0 * UNIT * (xp.abs(losses) + xp.abs(mean)[..., None]) + 1.01 * self.off)).sum(-1)
        error = 4.0 * error[..., None] + np.arange(nodes) * spacing[:, None, None] * phase[..., None]
        none = xp.zeros_like(theta)  # there is no density
        return Quadrature(log_total, weights, losses - mean[..., None], mean, error, none, none)
