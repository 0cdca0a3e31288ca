"""The pair of a Poisson-sampled mechanism, from the tails of the mechanism's own pair."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxacct._log1p import log1p
from jaxacct._rounding import UNIT, deflated
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism
from jaxacct.mechanisms._sampled_loss import inner_loss, mixed_loss
from jaxacct.mechanisms._table_pair import LEAST, Atoms

__all__ = ["SampledPair"]

_FARTHEST = 1e300  # stands for losses beyond all others; tails are asked for at finite losses only


@mechanism
class SampledPair:
    """((1 - rate) Q + rate P, Q), or (P, (1 - rate) P + rate Q) if ``reverse``, for the pair (P, Q) ``inner``.

    Both losses are increasing functions of L = log dP/dQ: log(1 - rate + rate e^L), and
    -log(1 - rate + rate e^-L). So an event {loss > l} is an event {L > m} of the inner pair, strict inequality for
    strict inequality, atoms included.

    Attributes:
        inner: the pair of the mechanism for the same direction (Zhu, Dong, Wang 2022, on Poisson sampling).
        rate: sampling rate in (0, 1]; scalar float64.
        reverse: 0 is the direction `remove`, 1 is `add`; a leaf, see ``GaussianPair``.
    """

    inner: Any
    rate: Any
    reverse: Any

    def _add(self) -> Array:
        return jnp.asarray(self.reverse) > 0.5

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        add, q = self._add(), self.rate
        m = inner_loss(jnp.where(add, -losses, losses), q)
        m = jnp.where(add, -m, m)
        p_above, p_below, q_above, q_below, error = self.inner.tails(jnp.clip(m, -_FARTHEST, _FARTHEST))
        # Out of range: below every loss (remove), where even L = -inf counts as above, or above every loss (add).
        p_above, q_above = (jnp.where(m == -jnp.inf, 1.0, jnp.where(m == jnp.inf, 0.0, x)) for x in (p_above, q_above))
        p_below, q_below = (jnp.where(m == -jnp.inf, 0.0, jnp.where(m == jnp.inf, 1.0, x)) for x in (p_below, q_below))
        mixed_above, mixed_below = q * p_above + (1.0 - q) * q_above, q * p_below + (1.0 - q) * q_below
        backwards_above, backwards_below = (1.0 - q) * p_above + q * q_above, (1.0 - q) * p_below + q * q_below
        return Tails(
            jnp.where(add, p_above, mixed_above),
            jnp.where(add, p_below, mixed_below),
            jnp.where(add, backwards_above, q_above),
            jnp.where(add, backwards_below, q_below),
            error + 8.0 * UNIT,
        )

    def atoms(self) -> Atoms:
        """Those of a tabulated ``inner``, unsorted where it has infinite losses.

        Sums of two masses of one sign are off by three units more than they. An outer loss is off by no more than the
        inner one, and by what :meth:`loss_error` and the logarithm of a tiny rate say: each by what it is itself, as
        the largest one may be huge and the likeliest next to nothing.
        """
        add, q = self._add(), self.rate
        inner = self.inner.atoms()
        # A loss far below 0 is lost in log(1 - rate), which is at least -37.
        upwards = jnp.where(add, -inner.losses, inner.losses)
        size = jnp.where(jnp.isfinite(upwards), jnp.maximum(upwards, jnp.minimum(-upwards, 64.0)), 0.0) - jnp.log(q)
        losses = jnp.where(add, -mixed_loss(-inner.losses, q), mixed_loss(inner.losses, q))
        # What underflows stays something, too small to be taken at its word.
        least = jnp.where(inner.p + inner.q > 0, LEAST, 0.0)
        mixed, backwards = q * inner.p + (1.0 - q) * inner.q, (1.0 - q) * inner.p + q * inner.q
        mixed, backwards = jnp.maximum(mixed, least), jnp.maximum(backwards, least)
        return Atoms(
            losses,
            jnp.where(add, inner.p, mixed),
            jnp.where(add, backwards, inner.q),
            inner.error + 8.0 * UNIT,
            self.loss_error() + 8.0 * UNIT * size,
        )

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        add, q = self._add(), self.rate
        inner = self.inner.survey()
        losses = jnp.where(add, -mixed_loss(-inner.losses, q), mixed_loss(inner.losses, q))
        # Q has exp(-L) times the mass of P; what the survey of P does not see of Q lies at the lowest loss.
        log_q = inner.log_masses - inner.losses
        unseen = jnp.maximum(1.0 - jnp.exp(jnp.minimum(log_q, 0.0)).sum(), 0.0)
        log_rest = log1p(-q)
        masses = jnp.where(
            add,
            inner.log_masses,
            inner.log_masses + jnp.log(q) + log1p((1 - q) / q * jnp.exp(jnp.minimum(-inner.losses, 600.0))),
        )
        lowest = jnp.where(add | (q == 1.0), losses.min(), log_rest)
        return Survey(
            jnp.append(losses, lowest),
            jnp.append(masses, jnp.where(add, -jnp.inf, jnp.log(unseen) + log_rest)),
        )

    def max_loss(self) -> Array:
        """See :class:`jaxacct.mechanisms._pair.Pair`; at most log(1 / (1 - rate)) in the direction `add`."""
        largest = self.inner.max_loss()
        return jnp.where(self._add(), -mixed_loss(-largest, self.rate), mixed_loss(largest, self.rate))

    def loss_error(self) -> Array:
        """That of the inner loss, which moves the outer one by no more, and that of ``inner_loss``."""
        return self.inner.loss_error() + 128.0 * UNIT

    def infinity(self) -> Array:
        """``rate`` times the inner one for `remove`; none for `add`, where the numerator is in the mixture."""
        straight = deflated(self.rate * self.inner.infinity(), 2.0 * UNIT)
        return jnp.where(self._add() & (self.rate < 1.0), 0.0, straight)

    def anchors(self) -> tuple[Array, Array]:
        """The images of the inner origin and of its neighbour one period below."""
        add, q = self._add(), self.rate
        origin, period = self.inner.anchors()
        outer = lambda loss: jnp.where(add, -mixed_loss(-loss, q), mixed_loss(loss, q))  # noqa: E731
        return outer(origin), outer(origin) - outer(origin - period)
