"""The inequality that a price promises, by other means than the table's: V_b >= T_L V_a at every gamma.

Nothing here is shared with what makes prices but the definition of the curves (nodes, excess, width, slack, far of a
`Family`): the query is the exact one in place of chords above it, its integral is a quadrature, all orders are shifted
off the lattice, and the Gaussian is the whole one in place of its half.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.fft
from scipy.special import erfcx, ndtr

__all__ = ["Curves", "worst_margins"]

_REACH = 9.0  # standard deviations of the small Gaussian at which its excess is nothing
_NODES = np.linspace(-10.0, 12.0, 1409)  # of the query's quadrature, spacing 1/64


def excess_of_gaussian(mu: float, losses: np.ndarray) -> np.ndarray:
    """H - (1 - gamma)_+ over sqrt(gamma) of the Gaussian mechanism; relative error below 1e-12."""
    z = np.abs(losses) / mu
    near, far = (z - 0.5 * mu) / math.sqrt(2), (z + 0.5 * mu) / math.sqrt(2)
    return 0.5 * np.exp(-0.5 * z * z - mu * mu / 8) * (erfcx(near) - erfcx(far))


class Curves:
    """V and what it takes to compose it with a query, at the lattice's points moved by a share of the spacing.

    Attributes:
        smooth: T_G U over sqrt(gamma) less that of no budget, at every node, shape ``(nodes, size)``.
        steady: T_G m over sqrt(gamma), shape ``(size,)``.
    """

    def __init__(self, family: Any, shift: float) -> None:
        grid, self.family, self.shift = family.grid, family, shift
        n, h = grid.size, grid.spacing
        self.offsets = (np.arange(-(n - 1), n) + shift) * h
        losses = grid.losses + shift * h
        excess, fade = family.excess, math.exp(-0.5 * h)
        wide = np.concatenate([excess[:, :1] * fade, excess, excess[:, -1:] * fade], 1)
        kinks = (wide[:, 2:] - 2.0 * math.cosh(0.5 * h) * excess + wide[:, :-2]) / (2.0 * math.sinh(0.5 * h))
        self.length: int = scipy.fft.next_fast_len(3 * n)  # pyright: ignore[reportAttributeAccessIssue]
        spectra = np.fft.rfft(kinks, self.length)
        alone = excess_of_gaussian(family.width, self.offsets)
        # U between lattice points is linear in gamma.
        gamma = math.exp(shift * h)
        share = math.expm1(shift * h) / math.expm1(h)
        between = ((1.0 - share) * excess + share * wide[:, 2:] * math.exp(0.5 * h)) / math.sqrt(gamma)
        self.smooth = between + self._convolved(spectra, alone)
        # min(1, gamma) is 1 - H_0, and T_G takes H_0 to that of G.
        least = np.exp(-0.5 * np.abs(losses)) - excess_of_gaussian(family.width, losses)
        self.steady = 0.5 * least + family.far * np.cosh(0.5 * losses)
        kinks[:, -grid.lowest] += 1.0  # of (1 - gamma)_+, what no budget is
        self.spectra = np.fft.rfft(kinks, self.length)
        self.rounding = 40.0 * 2.0**-53 * (math.log2(self.length) + 2.0) * np.sqrt((kinks**2).sum(1))
        self.size_alone = float(np.sqrt((alone**2).sum()))

    def _convolved(self, spectra: np.ndarray, values: np.ndarray) -> np.ndarray:
        n = self.family.grid.size
        found = np.fft.irfft(spectra * np.fft.rfft(values, self.length), self.length)
        return found[..., n - 1 : 2 * n - 1]

    def added(self, sigma: float, rate: float) -> tuple[np.ndarray, float]:
        """(T_L - 1) T_G U over sqrt(gamma) at every node, and the kernel's Euclidean norm.

        With y = 1 + g, the curve H of G and its tangent, (T_L T_G - T_G) of one kink is the mean of
        y H(gamma / y) - H(gamma) - g (H - gamma H')(gamma): terms that are not negative, because y H(gamma / y) is
        convex in y, so nothing cancels but within a term.
        """
        width, offsets = self.family.width, self.offsets
        gain = rate * np.expm1(_NODES / sigma - 0.5 / sigma**2)
        weight = (_NODES[1] - _NODES[0]) * np.exp(-0.5 * _NODES**2) / math.sqrt(2.0 * math.pi)
        kernel = np.zeros(offsets.size)
        ends = math.log1p(-rate) - _REACH * width, math.log1p(gain[-1]) + _REACH * width
        first, last = np.searchsorted(offsets, ends)
        for begin in range(first, last, 128):
            x = offsets[begin : min(begin + 128, last), None]
            moved = (1.0 + gain) * _hockey_stick(width, x - np.log1p(gain))
            here = _hockey_stick(width, x)
            tangent = here + gain * (here + np.exp(x) * ndtr(-x / width - width / 2))
            kernel[begin : begin + len(x)] = (np.maximum(moved - tangent, 0.0) @ weight) * np.exp(-0.5 * x[:, 0])
        return self._convolved(self.spectra, kernel), float(np.sqrt((kernel**2).sum()))


def _hockey_stick(mu: float, loss: np.ndarray) -> np.ndarray:
    return ndtr(mu / 2 - loss / mu) - np.exp(loss) * ndtr(-loss / mu - mu / 2)


def worst_margins(
    curves: Curves, added: np.ndarray, size: float, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each pair of budgets: the least margin of the inequality, a bound on its error, and the lattice point.

    Margins and errors are in units of what the slack adds for the price; the error counts transforms and the
    quadrature's rounding, and is measured against digits elsewhere (`exact`).
    """
    family, nodes = curves.family, curves.family.nodes

    def at(budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        below = np.clip(np.searchsorted(nodes, budgets, side="right") - 1, 0, nodes.size - 2)
        return below, (budgets - nodes[below]) / (nodes[below + 1] - nodes[below])

    (i, s), (j, t) = at(before), at(after)
    slack = family.slack * (before - after)
    s, t = s[:, None], t[:, None]
    rise = (1.0 - s) * curves.smooth[i] + s * curves.smooth[i + 1]
    rise = rise - ((1.0 - t) * curves.smooth[j] + t * curves.smooth[j + 1])
    margin = rise - ((1.0 - t) * added[j] + t * added[j + 1])
    scale = slack[:, None] * curves.steady
    margin = margin / scale + 1.0
    where = margin.argmin(1)
    wrong = curves.rounding[i + 1] * curves.size_alone + curves.rounding[j + 1] * (size + curves.size_alone)
    pick = np.arange(where.size)
    return margin[pick, where], wrong / scale[pick, where], where
