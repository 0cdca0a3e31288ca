"""The transform of a loss drawn at random from two, where the output says which."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.losses.engines.contour.quadrature import Quadrature


class RevealedLine(NamedTuple):
    """See :class:`jaxacct.losses.engines.lines.base.Line`, and ``RevealedPair`` for what is drawn.

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

    def infinite(self) -> tuple[Array, Array]:
        """The mean of both."""
        sides = zip(self.first.infinite(), (1.0, 1.0) if self.second is None else self.second.infinite(), strict=True)
        low, high = (self.rest * one + self.weight * other for one, other in sides)
        units = self.doubt + 8.0 * UNIT
        return deflated(low, units), inflated(high, units)

    def left_out(self) -> Array:
        """The mean of both."""
        left = self.rest * self.first.left_out()
        left = left if self.second is None else left + self.weight * self.second.left_out()
        return inflated(left, self.doubt + 8.0 * UNIT)

    def _logs(self) -> tuple[Array, Array]:
        xp = array_module(self.weight, self.rest)
        log = lambda x: xp.where(x > 0, xp.log(xp.where(x > 0, x, 1.0)), -np.inf)  # noqa: E731
        return log(self.rest), log(self.weight)

    def _added(self, one: Array, other: Any) -> Array:
        """log of the mean of exp(one) and exp(other); ``other`` counts where there is a second line."""
        log_rest, log_weight = self._logs()
        xp = array_module(one, log_rest)
        mean = log_rest + one
        return (
            mean if self.second is None else xp.logaddexp(mean, xp.where(self.weight > 0, log_weight + other, -np.inf))
        )

    def log_mass(self) -> Array:
        """Of the mean."""
        found = self._added(self.first.log_mass(), None if self.second is None else self.second.log_mass())
        return found - self.doubt - 8.0 * UNIT * (1.0 + array_module(found).abs(found))

    def largest(self) -> Array:
        """The larger one."""
        if self.second is None:
            return self.first.largest()
        first, second = self.first.largest(), self.second.largest()
        return array_module(first, second).maximum(first, second)

    @np.errstate(all="ignore")
    def log_moments(self, tilts: Array) -> Array:
        """See the protocol."""
        found = self._added(
            self.first.log_moments(tilts), None if self.second is None else self.second.log_moments(tilts)
        )
        return found + self.doubt + 8.0 * UNIT * (1.0 + array_module(found).abs(found))

    @np.errstate(all="ignore")
    def quadrature(self, spacing: Array, nodes: int) -> Quadrature:
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
        xp = array_module(one.log_total, other.log_total)
        log_second = xp.where(self.weight > 0, log_weight + other.log_total, -np.inf)
        log_total = xp.logaddexp(log_first, log_second)
        a, b = xp.exp(log_first - log_total), xp.exp(log_second - log_total)
        mean = a * one.mean + b * other.mean
        by = one.mean - mean, other.mean - mean
        shares, parts = (a, b), (one, other)
        column = lambda x: x[..., None]  # noqa: E731
        sizes = 1.0 + xp.abs(log_first) + xp.where(b > 0, xp.abs(log_second), 0.0)
        off = sum(1.5 * part.error[..., 0] for part in parts) + 2.0 * self.doubt + 16.0 * UNIT * sizes
        error = sum(column(share) * part.error for share, part in zip(shares, parts, strict=True))
        error = error + column(2.0 * a * b * off + self.doubt + 32.0 * UNIT * sizes)
        far = sum(
            share * (xp.abs(part.mean) + xp.abs(mean) + (part.weights * xp.abs(part.losses)).sum(-1))
            for share, part in zip(shares, parts, strict=True)
        )
        error = error + np.arange(nodes) * spacing[:, None, None] * column(8.0 * UNIT * far)
        losses = [part.losses + column(move) for part, move in zip(parts, by, strict=True)]
        weights = [column(share) * part.weights for share, part in zip(shares, parts, strict=True)]
        masses = [
            part.layer_masses * column(deflated(share, xp.minimum(off, 1.0)))
            for share, part in zip(shares, parts, strict=True)
        ]
        lengths = [part.layer_lengths for part in parts]
        joined = (xp.concatenate(xp_parts, -1) for xp_parts in (weights, losses, masses, lengths))
        weights, losses, masses, lengths = joined
        return Quadrature(log_total, weights, losses, mean, error, masses, lengths)
