"""The pair that dominates every mechanism of bounded range."""

from __future__ import annotations

import math

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs.base import Edges, PerSetting, Survey, Tails, quadrature
from jaxacct.mechanisms.pairs.laplace import BoundedLoss
from jaxacct.mechanisms.renyi.closed import ROUNDING, from_excess, guarded
from jaxacct.mechanisms.renyi.tails import log_power_excess

_CELLS = 128
# Clenshaw and Curtis: the largest loss is a node, because plans call what lies above all nodes infinite.
_ANGLES = np.pi * np.arange(_CELLS + 1) / _CELLS
_NODES = -np.cos(_ANGLES)
_EVEN = 2.0 * np.arange(1, _CELLS // 2 + 1)
_CORRECTION = np.cos(_EVEN * _ANGLES[:, None]) * np.where(_EVEN == _CELLS, 1.0, 2.0) / (_EVEN**2 - 1.0)
_WEIGHTS = np.where((_ANGLES == 0.0) | (np.pi == _ANGLES), 1.0, 2.0) / _CELLS * (1.0 - _CORRECTION.sum(-1))


@mechanism
class BoundedRangePair(BoundedLoss):
    """The pair whose hockey stick is the supremum over all pairs with a loss in [t - eps, t], 0 <= t <= eps.

    The pair is symmetric, without atoms (docs/proofs/families.md), and for abs(l) <= eps

        P(L > l) = expm1((l - eps) / 2) / expm1(-eps),     Q(L > l) = expm1((eps - l) / 2) / expm1(eps).

    Attributes:
        epsilon: eps, the range; float64.
    """

    epsilon: Array

    def tails(self, losses: Edges) -> Tails:
        eps = column(self.epsilon)
        inside = xp.clip(losses, -eps, eps)
        down, up = xp.expm1(0.5 * (inside - eps)), xp.expm1(-0.5 * (inside + eps))
        scale = -xp.expm1(-eps)
        # expm1((eps + l) / 2) / expm1(eps) without overflow: e^((l - eps) / 2) (1 - e^(-(eps + l) / 2)) / (1 - e^-eps).
        p_above, q_below = -down / scale, -up / scale
        p_below = xp.exp(0.5 * (inside - eps)) * -up / scale
        q_above = xp.exp(-0.5 * (inside + eps)) * -down / scale
        return Tails(p_above, p_below, q_above, q_below, UNIT * (32.0 + 4.0 * xp.minimum(eps, 800.0)) + 0.0 * losses)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`: Clenshaw-Curtis nodes."""
        eps = column(self.epsilon)
        log_density = lambda loss: math.log(0.5) - 0.5 * (eps - loss) - xp.log(-xp.expm1(-eps))  # noqa: E731
        losses, logs = quadrature(self._pieces(), (_NODES, _WEIGHTS), log_density)
        return Survey(xp.concatenate(losses, -1), xp.concatenate(logs, -1))

    def divergence(self, order: ArrayLike) -> PerSetting:
        """See :class:`jaxacct.mechanisms.pairs.laplace.BoundedLoss`; the largest of any pair of the range."""
        return _divergence(self.epsilon, order)


@hosted
def _divergence(epsilon: Array, order: Array) -> Array:
    """The largest divergence of any pair with a loss in [t - eps, t], over t: docs/proofs/families.md, theorem 6."""
    xp, a, eps = floats(order, epsilon)
    # T = e^t = (a-1)/a e^eps (1 - e^(-a eps)) / (1 - e^(-(a-1) eps)) makes A largest.
    t = xp.clip(eps + _log_mean(a * eps) - _log_mean((a - 1.0) * eps), 0.0, eps)
    # p e^((a-1) t) + (1-p) e^(-(a-1) (eps-t)) with p e^-t + (1-p) e^(eps-t) = 1, as a mean of f(x) = x^a - 1 - a (x-1)
    # over Q: only positive terms. Q = (p e^-t, 1 - p e^-t), x = e^t and e^(t - eps).
    scale = xp.log(-xp.expm1(-eps))
    log_high = xp.log(-xp.expm1(t - eps)) - scale - t
    log_low = xp.log(-xp.expm1(-t)) - scale
    terms = xp.logaddexp(log_high + log_power_excess(t, a), log_low + log_power_excess(t - eps, a))
    # Being off by d costs a relative 4 (d / eps)^2 + a^2 d^2 / 2 of the excess, and t is off by a few roundoffs.
    off = 2.0**-49 * (1.0 + eps)
    terms = terms + 16.0 * (off / eps) ** 2 + (a * off) ** 2 + ROUNDING / (a - 1.0)
    value = from_excess(terms, a, a * eps)
    # The theorem without a maximisation: a range of eps is a eps^2 / 8 (Cesar, Rogers 2021), and eps-DP.
    return guarded(xp.minimum(xp.minimum(value, eps), inflated(a * eps / 8.0 * eps, ROUNDING)), eps, a)


def _log_mean(x: Array) -> Array:
    """log((1 - e^-x) / x) for x > 0: without the logarithms of 0 that near 0 would cancel."""
    series = x * (x / 24.0 * (1.0 - x**2 / 120.0 * (1.0 - x**2 / 63.0)) - 0.5)
    return xp.where(x < 0.1, series, xp.log(-xp.expm1(-x) / x))
