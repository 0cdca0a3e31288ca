"""The pair that dominates every mechanism of bounded range."""

from __future__ import annotations

import math

import numpy as np

from jaxacct._numerics.arrays import Array, column, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Edges, Survey, Tails, quadrature
from jaxacct.mechanisms.pairs.laplace import BoundedLoss

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
