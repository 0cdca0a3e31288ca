"""The pair of the Laplace mechanism: losses in [-eps, eps] with an atom at either end."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct._rounding import UNIT
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism

__all__ = ["LaplacePair"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(128)
_REACH = 80.0  # the density of the loss falls by exp(-1/2) per nat below eps: what is deeper weighs nothing


@mechanism
class LaplacePair:
    """P = Lap(0, 1/eps) against Q = Lap(1, 1/eps), with x the output: L = eps (abs(x - 1) - abs(x)).

    Half of P lies below 0, where L = eps, and exp(-eps) / 2 above 1, where L = -eps; in between
    P(L <= l) = exp(-(eps - l) / 2) / 2. Exchanging P and Q reflects the line at 1/2: the pair is symmetric.

    Attributes:
        epsilon: sensitivity / scale; scalar float64.
    """

    epsilon: Any

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`; the formulas of the docstring, cancelled by hand nowhere."""
        inside = jnp.clip(losses, -self.epsilon, self.epsilon)
        p_below = 0.5 * jnp.exp(-0.5 * (self.epsilon - inside))
        q_above = 0.5 * jnp.exp(-0.5 * (self.epsilon + inside))
        under, over = losses < -self.epsilon, losses >= self.epsilon
        settle = lambda x, low, high: jnp.where(under, low, jnp.where(over, high, x))  # noqa: E731
        return Tails(
            settle(1.0 - p_below, 1.0, 0.0),
            settle(p_below, 0.0, 1.0),
            settle(q_above, 1.0, 0.0),
            settle(1.0 - q_above, 0.0, 1.0),
            # The exponent, at most eps, is off by a few roundoffs of its size; its sum is exact to one.
            UNIT * (16.0 + 4.0 * jnp.minimum(self.epsilon, 800.0)) + 0.0 * losses,
        )

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`: both atoms, and Gauss-Legendre nodes between them."""
        split = jnp.maximum(-self.epsilon, self.epsilon - _REACH)
        losses, logs = [], []
        for low, high in ((-self.epsilon, split), (split, self.epsilon)):
            half = 0.5 * (high - low)
            node = low + half * (1.0 + _NODES)
            losses.append(node)
            weight = jnp.log(jnp.maximum(half, 1e-300)) + np.log(_WEIGHTS)
            logs.append(math.log(0.25) - 0.5 * (self.epsilon - node) + weight)
        ends = jnp.stack([-self.epsilon, self.epsilon])
        end_logs = jnp.stack([-math.log(2.0) - self.epsilon, -math.log(2.0) + 0.0 * self.epsilon])
        return Survey(jnp.concatenate([*losses, ends]), jnp.concatenate([*logs, end_logs]))

    def max_loss(self) -> Array:
        """eps."""
        return jnp.asarray(self.epsilon)

    def loss_error(self) -> Array:
        """eps itself is a rounded quotient, and the exponent's rounding counts as one of the loss."""
        return 8.0 * UNIT * jnp.asarray(self.epsilon)

    def infinity(self) -> Array:
        """None."""
        return jnp.zeros_like(jnp.asarray(self.epsilon))

    def anchors(self) -> tuple[Array, Array]:
        """The atoms at eps and at -eps."""
        return jnp.asarray(self.epsilon), 2.0 * jnp.asarray(self.epsilon)
