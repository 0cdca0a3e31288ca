"""`RevealedPair`: a mixture of two pairs whose label is published; `RescaledPair`: a part whose weights differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, deflated
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails

_REVEALED = (1.0, 0.0, 0.0, 1.0, 0.0)  # tails where P's loss is infinite and Q's minus infinity


@mechanism
class RevealedPair(Pair):
    """``second`` with probability ``weight``, otherwise ``first``; an adversary sees which.

    So its hockey stick is the mean of theirs, and that of whatever hides which of them it was is no larger.

    Attributes:
        first, second: pairs; without ``second`` everything is revealed in its place.
        weight: in [0, 1]; float64.
        rest: 1 - ``weight``, given by itself because it may be the smaller one.
        doubt: relative error of both.
    """

    first: Any
    second: Any
    weight: Array
    rest: Array
    doubt: Array

    def tails(self, losses: Edges) -> Tails:
        first, weight, rest = self.first.tails(losses), column(self.weight), column(self.rest)
        second = _REVEALED if self.second is None else self.second.tails(losses)
        mixed = (rest * one + weight * other for one, other in zip(first[:4], second[:4], strict=True))
        return Tails(*mixed, error=xp.maximum(first.error, second[4]) + column(self.doubt) + 4.0 * UNIT)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; the finite losses."""
        parts = [(self.first, self.rest)] + [(self.second, self.weight)] * (self.second is not None)
        found = []
        for pair, share in parts:
            losses, log_masses = pair.survey()
            found.append((losses, log_masses + xp.log(column(share))))
        shape = np.broadcast_shapes(*(x.shape[:-1] for both in found for x in both))
        wide = [[xp.broadcast_to(x, (*shape, x.shape[-1])) for x in side] for side in zip(*found, strict=True)]
        return Survey(*(xp.concatenate(side, -1) for side in wide))

    def _larger(self, name: str) -> Array:
        first, second = getattr(self.first, name)(), getattr(self.second, name)()
        return xp.maximum(first, second) + 0.0 * self.weight

    def max_loss(self) -> PerSetting:
        """The larger one."""
        return self._larger("max_loss") if self.second is not None else np.inf + 0.0 * (self.weight + self.anchor())

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], rounded up."""
        if self.second is None:
            return np.inf + 0.0 * (order + self.weight)
        first, second = self.first.log_moment(order), self.second.log_moment(order)
        return (1.0 + 1e-12) * xp.logaddexp(log1p(-self.weight) + first, xp.log(self.weight) + second) + 1e-11

    def loss_error(self) -> PerSetting:
        """The larger one, and what the doubt about probabilities moves a loss by."""
        own = self.first.loss_error() if self.second is None else self._larger("loss_error")
        return own + 2.0 * self.doubt + 0.0 * self.weight

    def infinity(self) -> PerSetting:
        """The mean of both; rounded down."""
        second = 1.0 if self.second is None else self.second.infinity()
        return deflated(self.rest * self.first.infinity() + self.weight * second, self.doubt + 8.0 * UNIT)

    def anchor(self) -> PerSetting:
        """That of the first."""
        return self.first.anchor() + 0.0 * self.weight


@mechanism
class RescaledPair(Pair):
    """(P, exp(-offset) Q): every loss is ``offset`` larger, and the second law's total is exp(-offset).

    A part of a :class:`RevealedPair` that the two laws give different probabilities:
    ``weight`` there is P's, and ``offset`` the logarithm of P's over Q's.

    Attributes:
        pair: (P, Q).
        offset: any finite number; float64.
        doubt: how far it may be off.
    """

    pair: Any
    offset: Array
    doubt: Array

    def tails(self, losses: Edges) -> Tails:
        inner = self.pair.tails(losses - column(self.offset))
        scale = column(xp.exp(-self.offset))
        error = inner.error + column(self.doubt + 4.0 * UNIT * (1.0 + xp.abs(self.offset)))
        return Tails(inner.p_above, inner.p_below, scale * inner.q_above, scale * inner.q_below, error)

    def survey(self) -> Survey:
        losses, log_masses = self.pair.survey()
        return Survey(losses + column(self.offset), log_masses)

    def max_loss(self) -> PerSetting:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; rounded up."""
        found = self.pair.max_loss() + self.offset + self.doubt
        return found + 4.0 * UNIT * (1.0 + xp.abs(self.offset))

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], rounded up."""
        moved, room = (order - 1.0) * self.offset, xp.abs(order - 1.0) * self.doubt
        return self.pair.log_moment(order) + moved + room + 4.0 * UNIT * (1.0 + xp.abs(moved))

    def loss_error(self) -> PerSetting:
        """That of the pair and of the offset, and what subtracting it loses of a loss of its size."""
        offset = xp.abs(self.offset)
        return self.pair.loss_error() + self.doubt + 16.0 * UNIT * (1.0 + offset)

    def infinity(self) -> PerSetting:
        """That of the pair."""
        return self.pair.infinity() + 0.0 * self.offset

    def anchor(self) -> PerSetting:
        return self.pair.anchor() + self.offset
