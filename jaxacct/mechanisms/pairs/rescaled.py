"""`RescaledPair`: a pair whose second law is multiplied by a number."""

from __future__ import annotations

from typing import Any

from jaxacct._numerics.arrays import Array, array_module, column
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Pair, Survey, Tails


@mechanism
class RescaledPair(Pair):
    """(P, exp(-offset) Q): every loss is ``offset`` larger, and the second law's total is exp(-offset).

    A part of a :class:`jaxacct.mechanisms.pairs.revealed.RevealedPair` that the two laws give different probabilities:
    ``weight`` there is P's, and ``offset`` the logarithm of P's over Q's.

    Attributes:
        pair: (P, Q).
        offset: any finite number; float64.
        doubt: how far it may be off.
    """

    pair: Any
    offset: Array
    doubt: Array

    def tails(self, losses: Array) -> Tails:
        inner = self.pair.tails(losses - column(self.offset))
        xp = array_module(inner.error, self.offset)
        scale = column(xp.exp(-self.offset))
        error = inner.error + column(self.doubt + 4.0 * UNIT * (1.0 + xp.abs(self.offset)))
        return Tails(inner.p_above, inner.p_below, scale * inner.q_above, scale * inner.q_below, error)

    def survey(self) -> Survey:
        losses, log_masses = self.pair.survey()
        return Survey(losses + column(self.offset), log_masses)

    def max_loss(self) -> Array:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; rounded up."""
        found = self.pair.max_loss() + self.offset + self.doubt
        return found + 4.0 * UNIT * (1.0 + array_module(self.offset).abs(self.offset))

    def log_moment(self, order: Array) -> Array:
        """A bound of log E_Q[(P / Q)^order], rounded up."""
        xp = array_module(order, self.offset)
        moved, room = (order - 1.0) * self.offset, xp.abs(order - 1.0) * self.doubt
        return self.pair.log_moment(order) + moved + room + 4.0 * UNIT * (1.0 + xp.abs(moved))

    def loss_error(self) -> Array:
        """That of the pair and of the offset, and what subtracting it loses of a loss of its size."""
        offset = array_module(self.offset).abs(self.offset)
        return self.pair.loss_error() + self.doubt + 16.0 * UNIT * (1.0 + offset)

    def infinity(self) -> Array:
        """That of the pair."""
        return self.pair.infinity() + 0.0 * self.offset

    def anchor(self) -> Array:
        return self.pair.anchor() + self.offset
