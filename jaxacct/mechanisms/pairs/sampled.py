"""The pair of a Poisson-sampled mechanism, from the tails of the mechanism's own pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, beyond_ends
from jaxacct.mechanisms.pairs.sampled_loss import (
    COMPLEMENT,
    Rated,
    Sample,
    all_records,
    inner_loss,
    log_rest,
    mixed_loss,
    mixed_loss_error,
    mixed_loss_up,
)
from jaxacct.mechanisms.pairs.table import LEAST, Atoms, Window, lists_outcomes
from jaxacct.mechanisms.parameters import RATE_UNITS

_FARTHEST = 1e300  # stands for losses beyond all others; tails are asked for at finite losses only


@mechanism
class SampledPair(Rated, Pair):
    """((1 - rate) Q + rate P, Q), or (P, (1 - rate) P + rate Q) if ``reverse``, for the pair (P, Q) ``inner``.

    Both losses are increasing functions of L = log dP/dQ: log(1 - rate + rate e^L), and
    -log(1 - rate + rate e^-L). So an event {loss > l} is an event {L > m} of the inner pair, strict inequality for
    strict inequality, atoms included.

    Attributes:
        inner: the pair of the mechanism for the same direction (Zhu, Dong, Wang 2022, on Poisson sampling).
        rate: sampling rate in (0, 1]; float64.
        reverse: 0 is the direction `remove`, 1 is `add`; a leaf, see ``GaussianPair``.
        rest: 1 - rate, see ``GaussianPair``.
    """

    inner: Any
    rate: Array
    reverse: Array
    rest: Array = COMPLEMENT

    def tails(self, losses: Edges) -> Tails:
        q, rest, add = column(self.rate), column(self.rest), column(self.reverse) > 0.5
        m = inner_loss(xp.where(add, -losses, losses), q, rest)
        m = xp.where(add, -m, m)
        inner = self.inner.tails(xp.clip(m, -_FARTHEST, _FARTHEST))
        # Out of range: below every loss (remove), where even L = -inf counts as above, or above every loss (add).
        p_above, p_below, q_above, q_below, error = beyond_ends(inner, m == -np.inf, m == np.inf)
        error = xp.where(xp.isinf(m), 0.0, error)  # 0 and 1 are exact
        mixed_above, mixed_below = q * p_above + rest * q_above, q * p_below + rest * q_below
        backwards_above, backwards_below = rest * p_above + q * q_above, rest * p_below + q * q_below
        return Tails(
            xp.where(add, p_above, mixed_above),
            xp.where(add, p_below, mixed_below),
            xp.where(add, backwards_above, q_above),
            xp.where(add, backwards_below, q_below),
            error + (8.0 + RATE_UNITS) * UNIT,
        )

    def sample(self) -> Sample:
        """What the pair is made of."""
        return Sample(self.inner, self.rate, self.rest, self.reverse)

    def whole(self) -> tuple[Pair, Array]:
        """The inner pair; see :class:`jaxacct.mechanisms.pairs.base.Pair`."""
        return self.inner, all_records(self)

    def lists_outcomes(self) -> bool:
        """Whether the inner pair does."""
        return lists_outcomes(self.inner)

    def atoms(self) -> Atoms:
        """Those of a tabulated ``inner``, unsorted where it has infinite losses.

        Sums of two masses of one sign are off by three units more than they, and as the rate is. An outer loss is off
        by what is left of the inner one's error, and its own rounding: each by what it is itself, as the largest one
        may be huge and the likeliest next to nothing.
        """
        return self._mixed(self.inner.atoms())

    def window(self, log_share: Array) -> Window:
        """That of the inner pair; see :class:`jaxacct.mechanisms.pairs.table.Window`."""
        inner = self.inner.window(log_share)
        rate, still, add = self.rate, self.rest, self.reverse > 0.5
        p, q = inner.rest_p, inner.rest_q
        mixed, backwards = rate * p + still * q, still * p + rate * q
        rest = (inflated(xp.where(add, x, y), (8.0 + 2.0 * RATE_UNITS) * UNIT) for x, y in ((p, mixed), (backwards, q)))
        return Window(self._mixed(inner.atoms), *rest)

    def _mixed(self, inner: Atoms) -> Atoms:
        """The atoms of the sample from those of the inner pair."""
        q, rest, add = column(self.rate), column(self.rest), column(self.reverse) > 0.5
        # What underflows stays something, too small to be taken at its word.
        least = xp.where(inner.p + inner.q > 0, LEAST, 0.0)
        mixed, backwards = q * inner.p + rest * inner.q, rest * inner.p + q * inner.q
        mixed, backwards = xp.maximum(mixed, least), xp.maximum(backwards, least)
        upwards = xp.where(add, -inner.losses, inner.losses)
        straight = mixed_loss(upwards, q, rest)
        return Atoms(
            xp.where(add, -straight, straight),
            xp.where(add, inner.p, mixed),
            xp.where(add, backwards, inner.q),
            inner.error + (8.0 + RATE_UNITS) * UNIT,
            mixed_loss_error(upwards, inner.loss_error, q, straight),
        )

    def _outer(self, loss: Array, rate: Array, rest: Array, add: Array) -> Array:
        """The loss on a sample where the inner one is ``loss``."""
        straight = mixed_loss(xp.where(add, -loss, loss), rate, rest)
        return xp.where(add, -straight, straight)

    def survey(self) -> Survey:
        q, rest, add = column(self.rate), column(self.rest), column(self.reverse) > 0.5
        inner = self.inner.survey()
        losses = self._outer(inner.losses, q, rest, add)
        # Q has exp(-L) times the mass of P; what the survey of P does not see of Q lies at the lowest loss.
        log_q = inner.log_masses - inner.losses
        unseen = xp.maximum(1.0 - xp.exp(xp.minimum(log_q, 0.0)).sum(-1, keepdims=True), 0.0)
        least = log_rest(q, rest)
        mixture = inner.log_masses + xp.log(q) + log1p(rest / q * xp.exp(xp.minimum(-inner.losses, 600.0)))
        masses = xp.where(add, inner.log_masses, mixture)
        lowest = xp.where(add | (rest == 0.0), losses.min(-1, keepdims=True), least)
        left = xp.where(add, -np.inf, xp.log(unseen) + least)
        return Survey(xp.concatenate([losses, lowest], -1), xp.concatenate([masses, left], -1))

    def max_loss(self) -> PerSetting:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; at most log(1 / (1 - rate)) in the direction `add`."""
        largest, add = self.inner.max_loss(), self.reverse > 0.5
        found = mixed_loss_up(xp.where(add, -largest, largest), self.rate, self.rest, add)
        return xp.where(add, -found, found)

    def log_moment(self, order: PerSetting) -> PerSetting:
        """log(1 + rate (A - 1)) of the inner A = E_Q[(P / Q)^order], which is convex in the pair; rounded up."""
        return self.mixed_moment(self.inner.log_moment(order))

    def mixed_moment(self, log_moment: PerSetting) -> PerSetting:
        """:meth:`log_moment` where that of the inner pair is ``log_moment``."""
        return (1.0 + 1e-12) * mixed_loss(log_moment, self.rate, self.rest)

    def loss_error(self) -> PerSetting:
        """That of the inner loss, which moves the outer one by no more, and that of ``inner_loss``."""
        return self.inner.loss_error() + 160.0 * UNIT

    def infinity(self) -> PerSetting:
        """``rate`` times the inner one for `remove`; none for `add`, where the numerator is in the mixture."""
        straight = deflated(self.rate * self.inner.infinity(), (2.0 + RATE_UNITS) * UNIT)
        return xp.where((self.reverse > 0.5) & (self.rest > 0.0), 0.0, straight)

    def anchor(self) -> PerSetting:
        """The image of the inner one."""
        return self._outer(self.inner.anchor(), self.rate, self.rest, self.reverse > 0.5)
