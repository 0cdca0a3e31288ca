"""The pair of `replace` for a Laplace sum over a Poisson sample: old and new record are opposite."""

from __future__ import annotations

import math

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import (
    Edges,
    Pair,
    PerSetting,
    Survey,
    Tails,
    beyond_ends,
    legendre_rule,
    mirrored,
    quadrature,
)
from jaxacct.mechanisms.pairs.sampled_loss import COMPLEMENT, Rated, log_rest, mixed_loss

_NODES = 64  # of a survey, for each piece of the losses
_REACH = 40.0  # outcomes further from a centre than that, in units of the scale, weigh nothing


@mechanism
class AntipodalLaplacePair(Rated, Pair):
    """P = (1 - q) Lap(0, 1) + q Lap(eps, 1) against Q = (1 - q) Lap(0, 1) + q Lap(-eps, 1).

    With m(y) = log(1 - q + q e^y), the loss at an outcome t in [0, eps] is m(2 t - eps) - m(-eps). It is odd, and
    constant beyond eps: an atom at either end.

    Attributes:
        epsilon: eps, sensitivity / scale, within a unit and rounded up; float64.
        rate: q in (0, 1].
        rest: 1 - q, see ``GaussianPair``.
    """

    epsilon: Array
    rate: Array
    rest: Array = COMPLEMENT

    def _largest(self, eps: Array, q: Array, rest: Array) -> Array:
        return mixed_loss(eps, q, rest) - mixed_loss(-eps, q, rest)

    def _inner(self, loss: Array, eps: Array, q: Array, rest: Array) -> Array:
        """The y with m(y) - m(-eps) = loss >= 0: log(e^(loss - eps) + (e^loss - 1) (1 - q) / q)."""
        return xp.logaddexp(loss - eps, loss + xp.log(-xp.expm1(-loss)) + log_rest(q, rest) - xp.log(q))

    def tails(self, losses: Edges) -> Tails:
        eps, q, rest = column(self.epsilon), column(self.rate), column(self.rest)
        at = xp.abs(losses)
        t = xp.clip(0.5 * (eps + self._inner(at, eps, q, rest)), 0.0, eps)
        base, high, low = 0.5 * xp.exp(-t), 0.5 * xp.exp(t - eps), 0.5 * xp.exp(-eps - t)
        p_above, p_below = rest * base + q * (1.0 - high), rest * (1.0 - base) + q * high
        q_above, q_below = rest * base + q * low, rest * (1.0 - base) + q * (1.0 - low)
        # At the largest loss its atom is not above; below its negative there is nothing.
        negative, largest = losses < 0.0, self._largest(eps, q, rest)
        over = xp.where(negative, at > largest, at >= largest)
        error = UNIT * (48.0 + 8.0 * xp.minimum(eps, 800.0)) + 0.0 * (losses + q)
        return mirrored(beyond_ends(Tails(p_above, p_below, q_above, q_below, error), over & False, over), negative)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`: both atoms, and Gauss-Legendre nodes between them."""
        eps, q, rest = column(self.epsilon), column(self.rate), column(self.rest)
        near, far = xp.minimum(0.5 * eps, _REACH), xp.minimum(eps, _REACH)
        density = lambda t: xp.logaddexp(log_rest(q, rest) - xp.abs(t), xp.log(q) - xp.abs(t - eps)) - math.log(2.0)  # noqa: E731
        pieces = ((-far, 0.0 * eps), (0.0 * eps, near), (eps - near, eps))
        outcomes, logs = quadrature(pieces, legendre_rule(_NODES), density)
        # Beyond an end lies as much as the density there.
        ends = xp.concatenate([-eps, eps], -1)
        t = xp.concatenate([*outcomes, ends], -1)
        at = xp.abs(t)
        loss = mixed_loss(2.0 * at - eps, q, rest) - mixed_loss(-eps, q, rest)
        return Survey(xp.where(t < 0.0, -loss, loss), xp.concatenate([*logs, density(ends)], -1))

    def max_loss(self) -> PerSetting:
        """That of every outcome from eps on, rounded up."""
        return self._largest(self.epsilon, self.rate, self.rest) + self.loss_error()

    def loss_error(self) -> PerSetting:
        """A loss moves with y by no more than y does; eps is a rounded quotient."""
        return UNIT * (64.0 + 32.0 * self.epsilon - 16.0 * xp.log(self.rate))

    def anchor(self) -> PerSetting:
        """The atom at the largest loss."""
        return self._largest(self.epsilon, self.rate, self.rest)
