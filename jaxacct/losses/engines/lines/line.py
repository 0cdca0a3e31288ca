"""`Line`: what engines ask of a mechanism's transform E_P[exp(z L)] along a vertical line Re z = theta.

Arrays have axes ``(B, K)`` for settings and parts.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from jaxacct._numerics.arrays import Array, Real, xp
from jaxacct._numerics.rounding import UNIT
from jaxacct._types import Float64

Tilts: TypeAlias = Float64[Array, "tilts B"]
"""Tilts of each setting."""
Moments: TypeAlias = Float64[Array, "tilts B K"]
"""Log moments of each part at tilts of each setting."""


class Totals(NamedTuple):
    """What is known of a line's law as a whole, shape ``(B, K)``; 0.0 where that is all there is to know.

    Attributes:
        least_infinite, most_infinite: bounds of P(L = inf).
        left_out: a bound on the probability under P of all outcomes that are left out.
        log_mass: a lower bound of the logarithm of the P-mass that is neither infinite nor left out.
        largest: no finite loss is above.
    """

    least_infinite: Float64[Real, "*settings"]
    most_infinite: Float64[Real, "*settings"]
    left_out: Float64[Real, "*settings"]
    log_mass: Float64[Real, "*settings"]
    largest: Float64[Real, "*settings"]


class Quadrature(NamedTuple):
    """``|sum_i weights_i exp(i w losses_i) - phi(w)| <= error`` for the law tilted by theta at w = 0, d, 2 d, ...

    Attributes:
        log_total: log of E_P[exp(theta L)], within the first error of it.
        weights: shape ``(B, K, S)``, non-negative, total 1 up to rounding.
        losses: loss minus ``mean``.
        mean: the tilted mean that was taken off; exactly the number that must be added back.
        error: at each node.
        layer_masses, layer_lengths: uniform pieces of the law of the loss.
    """

    log_total: Float64[Array, "B K"]
    weights: Float64[Array, "B K points"]
    losses: Float64[Array, "B K points"]
    mean: Float64[Array, "B K"]
    error: Float64[Array, "B K nodes"]
    layer_masses: Float64[Array, "B K layers"]
    layer_lengths: Float64[Array, "B K layers"]


class Line(Protocol):
    """The law of a finite loss, tilted by theta, from which a probability ``left_out`` may have been removed.

    A loss is removed by a coin that falls with the same probability under P and Q for each outcome.
    """

    def totals(self) -> Totals:
        """What the law weighs, and where it ends."""
        ...

    def log_moments(self, tilts: Tilts) -> Moments:
        """Upper bounds of log E_P[exp(t L)] over what is kept."""
        ...

    def quadrature(self, spacing: Float64[Array, " B"], nodes: int) -> Quadrature:
        """Points and weights, and errors at ``nodes`` multiples of ``spacing``."""
        ...


def normalized(logs: Array) -> tuple[Array, Array]:
    """Numbers exp(``logs``) over their sum along the last axis, and the logarithm of that sum."""
    top = logs.max(-1)
    weights = xp.exp(logs - top[..., None])
    total = weights.sum(-1)
    return weights / total[..., None], top + xp.log(total)


def centred(reverse: Array, psi: Array, off: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Losses less their mean, the mean, and what a phase is off by per unit of frequency; psi is off by ``off``."""
    loss = xp.where(reverse[..., None] > 0.5, -psi, psi)
    mean = (weights * loss).sum(-1)
    phase = (weights * (off + 8.0 * UNIT * (xp.abs(loss) + xp.abs(mean)[..., None]))).sum(-1)
    return loss - mean[..., None], mean, phase


def octaves(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies 0, 1, 2, 4, ... up to ``nodes`` or more, and for each frequency which of them comes next.

    A rule's error grows with the frequency: within a factor of 2 it is that of the largest.
    """
    index = np.arange(nodes)
    block = np.where(index > 0, np.ceil(np.log2(np.maximum(index, 1))).astype(int) + 1, 0)
    return np.concatenate([[0.0], 2.0 ** np.arange(block[-1])]), block
