"""The extremal pair of pure differential privacy: a loss of eps or of -eps."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxacct.mechanisms._pair import UNIT, Survey, Tails
from jaxacct.mechanisms._register import mechanism

__all__ = ["PurePair"]


@mechanism
class PurePair:
    """P = (e^eps, 1) / (1 + e^eps) against Q = (1, e^eps) / (1 + e^eps): randomized response on one bit.

    It dominates every eps-DP pair (Kairouz, Oh, Viswanath 2015), and is symmetric.

    Attributes:
        epsilon: eps; scalar float64.
    """

    epsilon: Any

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        truth, lie = 1.0 / (1.0 + jnp.exp(-self.epsilon)), 1.0 / (1.0 + jnp.exp(self.epsilon))
        under, over = losses < -self.epsilon, losses >= self.epsilon
        settle = lambda x, low, high: jnp.where(under, low, jnp.where(over, high, x))  # noqa: E731
        error = UNIT * (16.0 + 4.0 * jnp.minimum(self.epsilon, 800.0)) + 0.0 * losses
        return Tails(
            settle(truth, 1.0, 0.0), settle(lie, 0.0, 1.0), settle(lie, 1.0, 0.0), settle(truth, 0.0, 1.0), error
        )

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`: the two atoms."""
        losses = jnp.stack([-self.epsilon, self.epsilon])
        return Survey(losses, -jnp.logaddexp(0.0, -losses))

    def max_loss(self) -> Array:
        """eps."""
        return jnp.asarray(self.epsilon)

    def loss_error(self) -> Array:
        """None but a rounding of eps."""
        return 2.0 * UNIT * jnp.asarray(self.epsilon)

    def infinity(self) -> Array:
        """None."""
        return 0.0 * jnp.asarray(self.epsilon)

    def anchors(self) -> tuple[Array, Array]:
        """The atoms at eps and at -eps."""
        return jnp.asarray(self.epsilon), 2.0 * jnp.asarray(self.epsilon)
