"""The pair whose curve is that of one pair at losses from 0 on, and that of another one below."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored, rest_at_zero


@mechanism
class HalvesPair(Pair):
    """The pair whose hockey stick is that of ``above`` at losses >= 0 and that of ``below`` at losses < 0.

    On a sample of fixed size ``above`` is ((1 - q) Q + q P, Q) and ``below`` is (P, (1 - q) P + q Q) for a symmetric
    pair (P, Q). Where the curves meet at loss 0 there may be a kink, which is an atom.

    Attributes:
        above, below: pairs.
        reverse: 1 exchanges P and Q of the whole; a leaf, see ``GaussianPair``.
    """

    above: Any
    below: Any
    reverse: Array

    def whole(self) -> tuple[Pair, Array | bool]:
        """That of the first half, which a symmetric pair without sampling is itself."""
        return self.above.whole()

    def tails(self, losses: Edges) -> Tails:
        back = column(self.reverse) > 0.5
        at = xp.where(back, -losses, losses)
        upper = xp.where(back, losses < 0.0, losses >= 0.0)
        both = zip(self.above.tails(at), self.below.tails(at), strict=True)
        return mirrored(Tails(*(xp.where(upper, high, low) for high, low in both)), back)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; what the two leave out lies at 0."""
        back = column(self.reverse) > 0.5
        above, below = self.above.survey(), self.below.survey()
        losses = xp.concatenate([above.losses, below.losses], -1)
        kept = xp.concatenate([above.losses > 0.0, below.losses < 0.0], -1)
        log_masses = xp.where(kept, xp.concatenate([above.log_masses, below.log_masses], -1), -np.inf)
        log_masses = xp.where(back & kept, log_masses - losses, log_masses)
        return rest_at_zero(xp.where(back, -losses, losses), log_masses)

    def max_loss(self) -> PerSetting:
        return xp.where(self.reverse > 0.5, np.inf, self.above.max_loss())

    def loss_error(self) -> PerSetting:
        return xp.maximum(self.above.loss_error(), self.below.loss_error())

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], rounded up: its excess is at most that of both halves together."""
        above, below = self.above.log_moment(order), self.below.log_moment(order)
        both = xp.where(above + below > 1.0, xp.logaddexp(above, below), log1p(xp.expm1(above) + xp.expm1(below)))
        return (1.0 + 1e-12) * both

    def infinity(self) -> PerSetting:
        return self.above.infinity()

    def _zero(self) -> Array:
        return 0.0 * self.above.infinity()
