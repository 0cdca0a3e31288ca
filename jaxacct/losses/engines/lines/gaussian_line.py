"""The line of a (Poisson-sampled) Gaussian; see :mod:`jaxacct.losses.engines.lines.gaussian_quadrature`."""

from __future__ import annotations

from typing import NamedTuple

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT
from jaxacct._types import Float64
from jaxacct.losses.engines.lines.gaussian_points import Points, placed
from jaxacct.losses.engines.lines.gaussian_quadrature import log_moments, quadrature
from jaxacct.losses.engines.lines.line import Moments, Quadrature, Tilts, Totals
from jaxacct.losses.engines.lines.taper import left_out, placed_cut
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

_DIGITS = 42.0  # e-foldings below its peak at which the integrand is left


class GaussianLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.base.Line`; leaves of shape ``(B, K)``."""

    pair: GaussianPair
    theta: Array
    cut: Array
    points: Points

    @classmethod
    def of(cls, pair: GaussianPair, theta: Array, log_share: Array, points: int) -> GaussianLine:
        """On so many points."""
        cut = placed_cut(pair, log_share)
        digits = array_module(theta).full_like(theta, _DIGITS)
        return cls(pair, theta, cut, placed(pair, theta, points, digits, cut))

    def totals(self) -> Totals:
        """All but what the taper leaves out; the largest loss is the pair's."""
        left = left_out(self.pair, self.cut)
        return Totals(0.0, 0.0, left, log1p(-left) - 4.0 * UNIT, self.pair.max_loss())

    def log_moments(self, tilts: Tilts) -> Moments:
        """See the protocol."""
        xp = array_module(tilts)
        wide = xp.broadcast_to(tilts[..., None], (*tilts.shape, self.theta.shape[-1]))
        return log_moments(self.pair, wide, self.cut, self.points)

    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """See the protocol."""
        wide = array_module(spacing).broadcast_to(spacing[:, None], self.theta.shape)
        return quadrature(self.pair, self.theta, self.cut, self.points, wide, nodes)
