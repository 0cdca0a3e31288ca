"""The transform of a loss plus a constant."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.rounding import UNIT
from jaxacct._types import Float64
from jaxacct.losses.engines.lines.line import Line, Moments, Quadrature, Tilts, Totals


class RescaledLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.base.Line`, and ``RescaledPair``.

    Attributes:
        line: of the loss itself.
        offset, doubt, theta: shape ``(B, K)``.
    """

    line: Line
    offset: Array
    doubt: Array
    theta: Array

    def totals(self) -> Totals:
        """Those of the loss itself, but for the largest; rounded up."""
        whole = self.line.totals()
        room = 4.0 * UNIT * (1.0 + array_module(self.offset).abs(self.offset))
        return whole._replace(largest=whole.largest + self.offset + self.doubt + room)

    @np.errstate(all="ignore")
    def log_moments(self, tilts: Tilts) -> Moments:
        """See the protocol."""
        xp = array_module(tilts, self.offset)
        moved = tilts[..., None] * self.offset
        room = xp.abs(tilts[..., None]) * self.doubt + 4.0 * UNIT * (1.0 + xp.abs(moved))
        return self.line.log_moments(tilts) + moved + room

    @np.errstate(all="ignore")
    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """See the protocol; only the total and the mean move, and what is not known of the offset is error."""
        found = self.line.quadrature(spacing, nodes)
        xp = array_module(found.mean, self.offset)
        moved = self.theta * self.offset
        total = xp.abs(self.theta) * self.doubt + 8.0 * UNIT * (1.0 + xp.abs(moved) + xp.abs(found.log_total))
        phase = self.doubt + 4.0 * UNIT * (xp.abs(self.offset) + xp.abs(found.mean))
        error = found.error + total[..., None] + np.arange(nodes) * spacing[:, None, None] * phase[..., None]
        return found._replace(log_total=found.log_total + moved, mean=found.mean + self.offset, error=error)
