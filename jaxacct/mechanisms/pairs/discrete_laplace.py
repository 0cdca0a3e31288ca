"""The pair of the discrete Laplace (two-sided geometric) mechanism."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, column, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, quotient_up
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, beyond_ends, two_sides
from jaxacct.mechanisms.pairs.table import Atoms

_GRID = np.linspace(0.0, 1.0, 257)  # of survey atoms
_LISTED = 32  # the largest sensitivity whose outcomes are listed


@mechanism
class DiscreteLaplacePair(Pair):
    """P = D + X against Q = X on the integers, Pr[X = x] = (1 - t) / (1 + t) t^|x| with t = e^(-1/scale).

    The loss (|x| - |x - D|) / scale is -D / scale for x <= 0, D / scale for x >= D, and rises by 2 / scale a step in
    between: D + 1 atoms. Pr[X > n] = t^(n + 1) / (1 + t) for n >= 0, and Pr[X <= n] = t^-n / (1 + t) for n < 0.

    Attributes:
        scale: above 0; float64.
        sensitivity: D, a whole number >= 1; float64.
    """

    scale: Array
    sensitivity: Array

    def _sides(self, n: Array) -> tuple[Array, Array]:
        """Pr[X > n] and Pr[X <= n] for whole n ``(..., edges)``; the smaller of the two to a few units."""
        scale = column(self.scale)
        # t -> 1 makes both tails 1/2, and 1 - small loses nothing there.
        return two_sides(n >= 0, xp.exp(-xp.where(n >= 0, n + 1.0, -n) / scale) / (1.0 + xp.exp(-1.0 / scale)))

    def lists_outcomes(self) -> bool:
        """Whether :meth:`atoms` may be asked: parameters are concrete, and outcomes few."""
        concrete = array_module(self.scale, self.sensitivity) is np
        return concrete and bool(np.nanmax(self.sensitivity, initial=1.0) <= _LISTED)

    def atoms(self) -> Atoms:
        """The D + 1 losses and their masses, NumPy's; those of smaller sensitivities than the largest end in zeros."""
        scale, gap = column(self.scale), column(self.sensitivity)
        k = np.arange(np.nanmax(gap, initial=1.0) + 1.0)
        inner = -np.expm1(-1.0 / scale)

        def masses(away: np.ndarray) -> np.ndarray:
            """Of outcomes that lie ``away`` >= 0 from the noise's centre; the two ends hold what lies beyond them."""
            here = np.exp(-away / scale) / (1.0 + np.exp(-1.0 / scale))
            ends = (k == 0) | (k == gap)
            return np.where(k > gap, 0.0 * here, here * np.where(ends, 1.0, inner))

        losses = (2.0 * np.minimum(k, gap) - gap) / scale
        size = np.minimum(gap / scale, 750.0)
        error = UNIT * (32.0 + 4.0 * size)
        return Atoms(losses, masses(np.abs(gap - k)), masses(k), error, 4.0 * UNIT * np.abs(losses))

    def tails(self, losses: Edges) -> Tails:
        scale, gap = column(self.scale), column(self.sensitivity)
        last = xp.floor(0.5 * (losses * scale + gap))  # the largest outcome of at most this loss
        last = xp.clip(last, 0.0, gap - 1.0)
        p_above, p_below = self._sides(last - gap)
        q_above, q_below = self._sides(last)
        # The exponents are rounded: n / scale is off by 2u of itself.
        size = xp.minimum((xp.abs(last) + gap + 1.0) / scale, 750.0)
        tails = Tails(p_above, p_below, q_above, q_below, UNIT * (24.0 + 4.0 * size))
        return beyond_ends(tails, losses < -gap / scale, losses >= gap / scale)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`: up to 257 atoms, that hold what lies between them."""
        scale, gap = column(self.scale), column(self.sensitivity)
        x = xp.round(_GRID * gap)
        above, below = self._sides(x - gap)
        # P(x[i-1] < X <= x[i]) where that is small on the side of the lower tail: x <= gap always.
        masses = xp.maximum(below[..., 1:] - below[..., :-1], 0.0)
        last = masses[..., -1:] + above[..., -1:]
        masses = xp.concatenate([below[..., :1], masses[..., :-1], last], -1)
        return Survey((2.0 * x - gap) / scale, xp.log(masses))

    def max_loss(self) -> PerSetting:
        """sensitivity / scale, rounded up."""
        return quotient_up(self.sensitivity, self.scale)

    def loss_error(self) -> PerSetting:
        """The outcome is off by 3u of itself, and a loss by 2 / scale for each unit of that."""
        return 16.0 * UNIT * self.sensitivity / self.scale

    def anchor(self) -> PerSetting:
        """The atom at sensitivity / scale."""
        return self.sensitivity / self.scale
