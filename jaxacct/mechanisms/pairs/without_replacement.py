"""The pair of a mechanism on a sample of fixed size."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, rest_at_zero


@mechanism
class WithoutReplacementPair(Pair):
    """The pair whose hockey stick is that of ``above`` at losses >= 0 and that of ``below`` at losses < 0.

    ``above`` is ((1 - q) Q + q P, Q) and ``below`` is (P, (1 - q) P + q Q) for a symmetric pair (P, Q). Their curves
    meet at loss 0 with a kink: an atom of (1 - q) (P(L > 0) - Q(L > 0)).

    Attributes:
        above, below: the Poisson-sampled pairs of the directions `remove` and `add`.
    """

    above: Any
    below: Any

    def whole(self) -> tuple[Pair, Array | bool]:
        """That of the first half, which a symmetric pair without sampling is itself."""
        return self.above.whole()

    def tails(self, losses: Edges) -> Tails:
        above, below = self.above.tails(losses), self.below.tails(losses)
        return Tails(*(xp.where(losses >= 0.0, high, low) for high, low in zip(above, below, strict=True)))

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; what the two leave out lies at 0."""
        above, below = self.above.survey(), self.below.survey()
        losses = xp.concatenate([above.losses, below.losses], -1)
        kept = xp.concatenate([above.losses > 0.0, below.losses < 0.0], -1)
        log_masses = xp.where(kept, xp.concatenate([above.log_masses, below.log_masses], -1), -np.inf)
        return rest_at_zero(losses, log_masses)

    def max_loss(self) -> PerSetting:
        return self.above.max_loss()

    def loss_error(self) -> PerSetting:
        above, below = self.above.loss_error(), self.below.loss_error()
        return xp.maximum(above, below)

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], rounded up: its excess is at most that of both halves together."""
        above, below = self.above.log_moment(order), self.below.log_moment(order)
        return (1.0 + 1e-12) * xp.logaddexp(above, below)

    def infinity(self) -> PerSetting:
        return self.above.infinity()

    def _zero(self) -> Array:
        return 0.0 * self.above.infinity()
