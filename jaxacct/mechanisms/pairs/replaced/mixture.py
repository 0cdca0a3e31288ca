"""The pair of replaced records of a Gaussian whose sensitivity is random."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, column, logsumexp, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored
from jaxacct.mechanisms.pairs.gaussian import LOG_WEIGHT, REACH
from jaxacct.mechanisms.pairs.mixture_loss import flat, log_ratio, mixture_tails, outcome_of, survey_points
from jaxacct.mechanisms.parameters import RATE_UNITS

_ACCEPTED = 128.0  # roundoffs of the terms' size by which a solved loss may be off


@mechanism
class AntipodalMixturePair(Pair):
    """P = sum_i w_i N(s_i, s^2) against Q = sum_i w_i N(-s_i, s^2); all s_i >= 0.

    With M(x) = log sum_i w_i exp((s_i x - s_i^2 / 2) / s^2), increasing, the loss at an outcome x is M(x) - M(-x): odd
    and increasing.

    Attributes:
        noise: s; float64.
        sensitivities: k values s_i >= 0, not all 0.
        weights: k values w_i >= 0 whose sum is 1.
    """

    noise: Array
    sensitivities: Row
    weights: Row

    def _components(self) -> tuple[Array, Array]:
        """Sensitivities and weights, shape ``(..., k)``."""
        s, w = self.sensitivities.values, self.weights.values
        return s, w / w.sum(-1, keepdims=True)

    def tails(self, losses: Edges) -> Tails:
        noise = column(self.noise)
        s, w = self._components()
        x = outcome_of(_loss, xp.abs(losses) + 0.0 * noise, (s, w, noise), _ACCEPTED)
        sums = *mixture_tails(x, s, w, noise), *mixture_tails(x, -s, w, noise)
        largest = s.max(-1)[..., None]
        larger = xp.minimum((xp.abs(x) + largest) / noise, REACH + 2.0)
        error = UNIT * (48.0 + 8.0 * s.shape[-1] + 8.0 * larger**2)
        return mirrored(Tails(*sums, error=error), losses < 0.0)

    def survey(self) -> Survey:
        noise = column(self.noise)
        s, w = self._components()
        return Survey(_loss(survey_points(s, noise), s, w, noise)[0], flat(xp.log(w)[..., None] + LOG_WEIGHT))

    def log_moment(self, order: PerSetting) -> PerSetting:
        """As for ``AntipodalGaussianPair``; the base is what the components of sensitivity 0 make up."""
        s, w = self._components()
        once = 0.5 * (order * (order - 1.0))[..., None] * (s / self.noise[..., None]) ** 2
        base = (order - 1.0) * xp.log(xp.where(s == 0.0, w, 0.0).sum(-1))
        apart, from_base = logsumexp(xp.log(w) + 4.0 * once), logsumexp(xp.log(w) + once) - base
        return (1.0 + 1e-12) * xp.minimum(apart, xp.where(xp.isnan(from_base), np.inf, from_base)) + 1e-14

    def loss_error(self) -> PerSetting:
        """The residual that ``_outcome`` accepts, at outcomes that float64 can weigh."""
        largest = self._components()[0].max(-1)
        size = largest * (REACH * self.noise + 2.0 * largest) / self.noise**2
        # Weights, of both M(x) and M(-x), are off by the rate's units, and by 2 k + 4 of their sums.
        weights = 2.0 * (RATE_UNITS + 2.0 * self.weights.size + 4.0)
        return UNIT * (128.0 + weights + 3.0 * _ACCEPTED * (1.0 + size))


def _loss(x: Array, s: Array, w: Array, noise: Array) -> tuple[Array, Array]:
    """M(x) - M(-x) and its slope."""
    (up, rise), (down, fall) = log_ratio(x, s, w, noise), log_ratio(-x, s, w, noise)
    return up - down, rise + fall
