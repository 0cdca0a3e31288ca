"""Lines of losses made of others: drawn at random from two, where the output says which, or moved by a constant."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct._types import Float64
from jaxacct.losses.engines.lines.line import Line, Moments, Quadrature, Tilts, Totals


class RevealedLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.line.Line`, and ``RevealedPair`` for what is drawn.

    Its transform is the sum of those of both, each times its probability: their points side by side.

    Attributes:
        first, second: lines; without ``second`` everything is revealed in its place, an infinite loss.
        weight, rest, doubt: of the pair, shape ``(B, K)``.
    """

    first: Any
    second: Any
    weight: Array
    rest: Array
    doubt: Array

    def totals(self) -> Totals:
        """Means of both, and the larger loss."""
        first = self.first.totals()
        second = Totals(1.0, 1.0, 0.0, -np.inf, -np.inf) if self.second is None else self.second.totals()
        low, high, left = (self.rest * one + self.weight * two for one, two in zip(first[:3], second[:3], strict=True))
        units = self.doubt + 8.0 * UNIT
        log_mass = self._added(first.log_mass, second.log_mass)
        log_mass = log_mass - self.doubt - 8.0 * UNIT * (1.0 + xp.abs(log_mass))
        largest = xp.maximum(first.largest, second.largest)
        return Totals(deflated(low, units), inflated(high, units), inflated(left, units), log_mass, largest)

    def _logs(self) -> tuple[Array, Array]:
        log = lambda x: xp.where(x > 0, xp.log(xp.where(x > 0, x, 1.0)), -np.inf)  # noqa: E731
        return log(self.rest), log(self.weight)

    def _added(self, one: Array, other: Array | float) -> Array:
        """log of the mean of exp(one) and exp(other)."""
        log_rest, log_weight = self._logs()
        return xp.logaddexp(log_rest + one, xp.where(self.weight > 0, log_weight + other, -np.inf))

    @np.errstate(all="ignore")
    def log_moments(self, tilts: Tilts) -> Moments:
        """See the protocol."""
        second = -np.inf if self.second is None else self.second.log_moments(tilts)
        found = self._added(self.first.log_moments(tilts), second)
        return found + self.doubt + 8.0 * UNIT * (1.0 + xp.abs(found))

    @np.errstate(all="ignore")
    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """See the protocol.

        With totals A and B of the parts, each off by a share (its first error and the doubt), the shares A / (A + B)
        and B / (A + B) are off by their product times the sum of both.
        """
        one = self.first.quadrature(spacing, nodes)
        log_rest, log_weight = self._logs()
        log_first = log_rest + one.log_total
        if self.second is None:
            return one._replace(log_total=log_first, error=one.error + (self.doubt + 8.0 * UNIT)[..., None])
        other = self.second.quadrature(spacing, nodes)
        log_second = xp.where(self.weight > 0, log_weight + other.log_total, -np.inf)
        log_total = xp.logaddexp(log_first, log_second)
        a, b = xp.exp(log_first - log_total), xp.exp(log_second - log_total)
        mean = a * one.mean + b * other.mean
        parts = [(a, one), (b, other)]
        sizes = 1.0 + xp.abs(log_first) + xp.where(b > 0, xp.abs(log_second), 0.0)
        off = sum(1.5 * part.error[..., 0] for _, part in parts) + 2.0 * self.doubt + 16.0 * UNIT * sizes
        error = sum(column(share) * part.error for share, part in parts)
        error = error + column(2.0 * a * b * off + self.doubt + 32.0 * UNIT * sizes)
        far = sum(
            share * (xp.abs(part.mean) + xp.abs(mean) + (part.weights * xp.abs(part.losses)).sum(-1))
            for share, part in parts
        )
        error = error + np.arange(nodes) * spacing[:, None, None] * column(8.0 * UNIT * far)
        joined = lambda each: xp.concatenate(list(each), -1)  # noqa: E731
        return Quadrature(
            log_total,
            joined(column(share) * part.weights for share, part in parts),
            joined(part.losses + column(part.mean - mean) for _, part in parts),
            mean,
            error,
            joined(part.layer_masses * column(deflated(share, xp.minimum(off, 1.0))) for share, part in parts),
            joined(part.layer_lengths for _, part in parts),
        )


class RescaledLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.line.Line`, and ``RescaledPair``.

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
        room = 4.0 * UNIT * (1.0 + xp.abs(self.offset))
        return whole._replace(largest=whole.largest + self.offset + self.doubt + room)

    @np.errstate(all="ignore")
    def log_moments(self, tilts: Array) -> Array:
        """See the protocol."""
        moved = tilts[..., None] * self.offset
        room = xp.abs(tilts[..., None]) * self.doubt + 4.0 * UNIT * (1.0 + xp.abs(moved))
        return self.line.log_moments(tilts) + moved + room

    @np.errstate(all="ignore")
    def quadrature(self, spacing: Array, nodes: int) -> Quadrature:
        """See the protocol; only the total and the mean move, and what is not known of the offset is error."""
        found = self.line.quadrature(spacing, nodes)
        moved = self.theta * self.offset
        total = xp.abs(self.theta) * self.doubt + 8.0 * UNIT * (1.0 + xp.abs(moved) + xp.abs(found.log_total))
        phase = self.doubt + 4.0 * UNIT * (xp.abs(self.offset) + xp.abs(found.mean))
        error = found.error + total[..., None] + np.arange(nodes) * spacing[:, None, None] * phase[..., None]
        return found._replace(log_total=found.log_total + moved, mean=found.mean + self.offset, error=error)
