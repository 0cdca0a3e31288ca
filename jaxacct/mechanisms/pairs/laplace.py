"""The pair of the Laplace mechanism: losses in [-eps, eps] with an atom at either end."""

from __future__ import annotations

import math

from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, beyond_ends, legendre_rule, quadrature
from jaxacct.mechanisms.renyi.closed import from_excess, guarded, log_rest

_NODES = 128  # of a survey, for each piece of the losses


class BoundedLoss(Pair):
    """A pair of losses in [-eps, eps], eps a rounded quotient, whose density falls by exp(-1/2) per nat below eps."""

    epsilon: Array

    def max_loss(self) -> PerSetting:
        """eps."""
        return xp.asarray(self.epsilon)

    def loss_error(self) -> PerSetting:
        """The rounding of eps, and those of eps - l and eps + l, which count as one of the loss."""
        return 8.0 * UNIT * self.max_loss()

    def divergence(self, order: ArrayLike) -> PerSetting:
        """The Rényi divergence, in closed form; rounded up, infinite for invalid numbers."""
        raise NotImplementedError

    def log_moment(self, order: PerSetting) -> PerSetting:
        """That of the divergence."""
        return (order - 1.0) * self.divergence(order)

    def _pieces(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Two intervals of losses for a survey; what is 80 nats below eps weighs nothing."""
        eps = column(self.epsilon)
        split = xp.maximum(-eps, eps - 80.0)
        return (-eps, split), (split, eps)


@mechanism
class LaplacePair(BoundedLoss):
    """P = Lap(0, 1/eps) against Q = Lap(1, 1/eps), with x the output: L = eps (abs(x - 1) - abs(x)).

    Half of P lies below 0, where L = eps, and exp(-eps) / 2 above 1, where L = -eps; in between
    P(L <= l) = exp(-(eps - l) / 2) / 2. Exchanging P and Q reflects the line at 1/2: the pair is symmetric.

    Attributes:
        epsilon: sensitivity / scale; float64.
    """

    epsilon: Array

    def tails(self, losses: Edges) -> Tails:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; the formulas of the docstring, cancelled by hand nowhere."""
        eps = column(self.epsilon)
        inside = xp.clip(losses, -eps, eps)
        p_below = 0.5 * xp.exp(-0.5 * (eps - inside))
        q_above = 0.5 * xp.exp(-0.5 * (eps + inside))
        # The exponent, at most eps, is off by a few roundoffs of its size; its sum is exact to one.
        error = UNIT * (16.0 + 4.0 * xp.minimum(eps, 800.0)) + 0.0 * losses
        return beyond_ends(Tails(1.0 - p_below, p_below, q_above, 1.0 - q_above, error), losses < -eps, losses >= eps)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`: both atoms, and Gauss-Legendre nodes between them."""
        eps = column(self.epsilon)
        losses, logs = quadrature(
            self._pieces(), legendre_rule(_NODES), lambda loss: math.log(0.25) - 0.5 * (eps - loss)
        )
        atoms, half = [-eps, eps], -math.log(2.0)
        return Survey(xp.concatenate([*losses, *atoms], -1), xp.concatenate([*logs, half - eps, half + 0.0 * eps], -1))

    def anchor(self) -> PerSetting:
        """The atom at eps."""
        return self.max_loss()

    def divergence(self, order: ArrayLike) -> PerSetting:
        """Mironov 2017, Proposition 6."""
        return _divergence(self.epsilon, order)


@hosted
def _divergence(epsilon: Array, order: Array) -> Array:
    """log(a e^((a-1) eps) / (2a-1) + (a-1) e^(-a eps) / (2a-1)) / (a-1)."""
    xp, a, eps = floats(order, epsilon)
    # a e^((a-1) eps) + (a-1) e^(-a eps) - (2a - 1): the linear terms of both exponentials cancel exactly.
    up = xp.log(a) + log_rest((a - 1.0) * eps)
    down = xp.log(a - 1.0) + log_rest(-a * eps)
    value = from_excess(xp.logaddexp(up, down) - xp.log(2.0 * a - 1.0), a, a * eps)
    return guarded(xp.minimum(value, eps), eps, a)
