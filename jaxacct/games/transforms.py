"""One more run before a curve, for many curves at once, by transforms with their rounding (docs/proofs/fft.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import fft

from jaxacct._numerics.fft_powers import eta_of
from jaxacct._numerics.rounding import EPS, UNIT, deflated, inflated
from jaxacct.games.lattice_laws import Law
from jaxacct.losses.grids.grid import LossGrid


class Transformed(NamedTuple):
    """Curves ``(rows, size)``, transformed, and their Euclidean norms."""

    spectra: np.ndarray
    norms: np.ndarray


class Runs:
    """E_q(gamma) + sum over losses of P_q(l) E(gamma e^-l) for queries of one direction, as bounds from one side.

    E is the excess over (1 - gamma)_+. Beyond the lattice a lower bound takes it for 0; an upper one uses that E falls
    above gamma = 1, and is at most proportional to gamma below.
    """

    def __init__(self, laws: Sequence[Law], grid: LossGrid, upper: bool) -> None:
        self.queries, self.grid, self.upper = len(laws), grid, upper
        self._above = max(int(law.offsets.max(initial=0)) for law in laws)
        self._below = max(-int(law.offsets.min(initial=0)) for law in laws)
        length: Any = fft.next_fast_len(grid.size + self._above + self._below, real=True)
        self._size = int(length)
        kernels = np.zeros((len(laws), self._size))
        for kernel, law in zip(kernels, laws, strict=True):
            kernel[law.offsets % self._size] = law.masses
        self._spectra = np.asarray(fft.rfft(kernels))
        self._excess = np.stack([law.excess for law in laws])
        self._limit = np.minimum(inflated(np.exp(grid.losses), 16 * EPS), 1.0)
        steps = grid.spacing * np.arange(self._above, 0, -1)
        self._edge = inflated(np.exp(-steps), 16 * EPS * (1.0 + steps))
        # Lemma 3 of the page, for curves of norm 1; its one per cent, and one for what is computed here.
        eta, norms = eta_of(self._size), np.sqrt((kernels**2).sum(-1))
        self._error = inflated(eta * kernels.sum(-1) + (2.0 * eta + 8.0 * UNIT) * norms, 0.02)

    def transformed(self, curves: np.ndarray) -> Transformed:
        """The transforms of excesses ``(rows, grid.size)``."""
        wide = np.zeros((curves.shape[0], self._size))
        size = self.grid.size
        wide[:, :size] = curves
        if self.upper:
            wide[:, size : size + self._below] = curves[:, -1:]
            if self._above:
                wide[:, -self._above :] = curves[:, :1] * self._edge
        return Transformed(np.asarray(fft.rfft(wide)), np.sqrt((wide**2).sum(-1)))

    def after(self, query: int, rest: Transformed) -> np.ndarray:
        """Excesses of ``query`` followed by each of ``rest``, shape ``(rows, grid.size)``."""
        sums = np.asarray(fft.irfft(rest.spectra * self._spectra[query], self._size))[:, : self.grid.size]
        error = (self._error[query] * rest.norms)[:, None]
        if self.upper:
            return np.minimum(inflated(sums + self._excess[query] + error, 8 * EPS), self._limit)
        return np.maximum(deflated(sums + self._excess[query] - error, 8 * EPS), 0.0)
