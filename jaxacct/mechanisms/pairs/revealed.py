"""A pair drawn at random from two, where the output says which."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, column
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, deflated
from jaxacct.mechanisms.pairs.base import Survey, Tails

__all__ = ["RevealedPair"]


@mechanism
class RevealedPair:
    """``second`` with probability ``weight``, otherwise ``first``; an adversary sees which.

    So its hockey stick is the mean of theirs, and that of whatever hides which of them it was is no larger.

    Attributes:
        first, second: pairs.
        weight: in [0, 1]; float64.
        rest: 1 - ``weight``, given by itself because it may be the smaller one.
        doubt: relative error of both.
    """

    first: Any
    second: Any
    weight: Any
    rest: Any
    doubt: Any

    @np.errstate(all="ignore")
    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`."""
        first, second = self.first.tails(losses), self.second.tails(losses)
        weight, rest = column(self.weight), column(self.rest)
        xp = array_module(first.error, second.error)
        mixed = (rest * one + weight * other for one, other in zip(first[:4], second[:4], strict=True))
        return Tails(*mixed, xp.maximum(first.error, second.error) + column(self.doubt) + 4.0 * UNIT)

    @np.errstate(all="ignore")
    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`."""
        found = []
        for pair, share in ((self.first, self.rest), (self.second, self.weight)):
            losses, log_masses = pair.survey()
            xp = array_module(losses, share)
            log_masses = log_masses + xp.log(column(share))
            found.append((losses, log_masses))
        shape = np.broadcast_shapes(*(x.shape[:-1] for both in found for x in both))
        wide = [[xp.broadcast_to(x, (*shape, x.shape[-1])) for x in side] for side in zip(*found, strict=True)]
        return Survey(*(xp.concatenate(side, -1) for side in wide))

    def max_loss(self) -> Array:
        """The larger one."""
        first, second = self.first.max_loss(), self.second.max_loss()
        return array_module(first, second).maximum(first, second) + 0.0 * self.weight

    def gaussian_mu(self) -> Array:
        """Where Gaussians dominate both, the larger one dominates the mean; inf where none is known."""
        if not (hasattr(self.first, "gaussian_mu") and hasattr(self.second, "gaussian_mu")):
            return np.inf + 0.0 * self.max_loss()
        first, second = self.first.gaussian_mu(), self.second.gaussian_mu()
        return array_module(first, second).maximum(first, second) + 0.0 * self.weight

    @np.errstate(all="ignore")
    def log_moment(self, order: Array) -> Array:
        """A bound of log E_Q[(P / Q)^order], rounded up."""
        first, second = self.first.log_moment(order), self.second.log_moment(order)
        xp = array_module(first, second)
        return (1.0 + 1e-12) * xp.logaddexp(log1p(-self.weight) + first, xp.log(self.weight) + second) + 1e-11

    def loss_error(self) -> Array:
        """The larger one, and what the doubt about probabilities moves a loss by."""
        first, second = self.first.loss_error(), self.second.loss_error()
        return array_module(first, second).maximum(first, second) + 2.0 * self.doubt + 0.0 * self.weight

    def infinity(self) -> Array:
        """The mean of both; rounded down."""
        mean = self.rest * self.first.infinity() + self.weight * self.second.infinity()
        return deflated(mean, self.doubt + 8.0 * UNIT)

    def anchor(self) -> Array:
        """That of the first."""
        return self.first.anchor() + 0.0 * self.weight
