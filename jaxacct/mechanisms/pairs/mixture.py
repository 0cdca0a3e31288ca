"""The pair of a Gaussian whose sensitivity is random."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, column, logsumexp, shared, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored
from jaxacct.mechanisms.pairs.gaussian import LOG_STEP, LOG_WEIGHT, REACH, Z, normal_tails
from jaxacct.mechanisms.pairs.mixture_loss import flat, log_ratio, mixture_tails, outcome_of, survey_points
from jaxacct.mechanisms.pairs.sampled_loss import inner_loss, log_rest, mixed_loss
from jaxacct.mechanisms.parameters import RATE_UNITS, Rate

_ACCEPTED = 64.0  # roundoffs of the terms' size by which a solved loss may be off


@mechanism
class MixturePair(Pair):
    """P = sum_i w_i N(s_i, s^2) against Q = N(0, s^2), or the reverse; all s_i >= 0.

    The components of sensitivity 0 are a mixture of P with Q, that is sampling (see ``SampledPair``). What is left
    has the loss M(x) = log sum_i v_i exp(y_i), y_i = (s_i x - s_i^2 / 2) / s^2, v_i = w_i / rate: convex and strictly
    increasing.

    Attributes:
        noise: s; float64.
        sensitivities: k values s_i >= 0, not all 0.
        weights: k values w_i >= 0 whose sum is 1.
        reverse: 0 is the direction `remove` (P is the mixture), 1 is `add`; a leaf, see ``GaussianPair``.
    """

    noise: Array
    sensitivities: Row
    weights: Row
    reverse: Array

    @shared
    def _components(self) -> tuple[Array, Array, Rate]:
        """Sensitivities and weights v_i of the moving components, shape ``(..., k)``, and their total weight.

        Sums of k weights and their quotients: each is off by 2 k + 2 units.
        """
        s, w = self.sensitivities.values, self.weights.values
        moving = xp.where(s > 0, w, 0.0)
        total, still = moving.sum(-1), xp.where(s > 0, 0.0, w).sum(-1)
        return s, moving / total[..., None], Rate(total / (total + still), still / (total + still))

    def _units(self) -> float:
        """By how many units the numbers of :meth:`_components` may be off, at least ``RATE_UNITS``."""
        return max(2.0 * self.weights.size + 2.0, RATE_UNITS)

    def _outcome(self, losses: Array, s: Array, v: Array, rate: Rate) -> Array:
        """The x at which the loss of the mixture against the base is ``losses``; -inf below its range."""
        noise = column(self.noise)
        m = inner_loss(losses, column(rate.value), column(rate.rest))
        x = outcome_of(log_ratio, xp.where(xp.isfinite(m), m, 0.0), (s, v, noise), _ACCEPTED)
        return xp.where(m == -np.inf, -np.inf, x)

    def tails(self, losses: Edges) -> Tails:
        noise, add = column(self.noise), column(self.reverse) > 0.5
        s, v, rate = self._components()
        x = self._outcome(xp.where(add, -losses, losses), s, v, rate)
        z0 = x / noise
        base, moved = normal_tails(z0), mixture_tails(x, s, v, noise)
        share, rest, largest = column(rate.value), column(rate.rest), s.max(-1)[..., None]
        above, below = (rest * one + share * other for one, other in zip(base, moved, strict=True))
        # As in GaussianPair; the sum of k terms adds a roundoff a term, and weights are off as well.
        larger = xp.minimum(xp.maximum(xp.abs(z0), xp.abs((x - largest) / noise)), REACH + 2.0)
        error = UNIT * (24.0 + 4.0 * s.shape[-1] + 2.0 * self._units() + 8.0 * larger**2)
        return mirrored(Tails(above, below, *base, error), add)

    def survey(self) -> Survey:
        noise, add = column(self.noise), column(self.reverse) > 0.5
        s, v, rate = self._components()
        xp = array_module(noise, add, s, v)
        if xp is np:
            # One grid over all components, where that is shorter than one for each.
            farthest = (s / noise).max(initial=0.0)
            number = Z.size + np.ceil((farthest if farthest < np.inf else 0.0) / (Z[1] - Z[0]))
            if number < Z.size * (s.shape[-1] + 1):
                outcomes = noise * (Z[0] + (Z[1] - Z[0]) * np.arange(number))
                loss = self._loss_at(outcomes)
                base = LOG_STEP - 0.5 * (outcomes / noise) ** 2
                return Survey(np.where(add, -loss, loss), base + np.where(add, 0.0, loss))
        # The base is a component that does not move; points of one component follow one another.
        shifts = xp.concatenate([xp.zeros_like(s[..., :1]), s], -1)
        weights = xp.concatenate([column(log_rest(*rate)), xp.log(column(rate.value) * v)], -1)
        only = np.where(np.arange(s.shape[-1] + 1) == 0, 0.0, -np.inf)
        masses = xp.where(add[..., None], only[:, None] + LOG_WEIGHT, weights[..., None] + LOG_WEIGHT)
        loss = self._loss_at(survey_points(shifts, noise))
        return Survey(xp.where(add, -loss, loss), flat(masses))

    def _loss_at(self, outcomes: Array) -> Array:
        """log dP/dQ, or of the reverse its negative."""
        s, v, rate = self._components()
        return mixed_loss(log_ratio(outcomes, s, v, column(self.noise))[0], column(rate.value), column(rate.rest))

    def max_loss(self) -> PerSetting:
        """-log of the weight of sensitivity 0, rounded up, in the direction `add`, where P is the base; or none."""
        least = log_rest(*self._components()[2])
        largest = inflated(-least, (16.0 + 2.0 * self._units()) * UNIT)
        return xp.where(self.reverse > 0.5, largest, np.inf)

    def loss_error(self) -> PerSetting:
        """The residual that ``_outcome`` accepts, at outcomes that float64 can weigh, and the weights'."""
        largest = self._components()[0].max(-1)
        size = largest * (REACH * self.noise + 2.0 * largest) / self.noise**2
        return UNIT * (128.0 + 3.0 * self._units() + 3.0 * _ACCEPTED * (1.0 + size))

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], which is convex in the pair; rounded up."""
        s, v, rate = self._components()
        whole = 0.5 * (order * (order - 1.0))[..., None] * (s / self.noise[..., None]) ** 2
        moved = logsumexp(xp.where(v > 0, xp.log(v) + whole, -np.inf))
        return (1.0 + 1e-12) * xp.logaddexp(log_rest(*rate), xp.log(rate.value) + moved) + 1e-14
