"""One more run before a curve, for many curves at once: the step of every recursion over queries, from one side.

With every query a law on the lattice, an epsilon stays on the lattice whatever is observed, so that values at lattice
points follow from values at lattice points:

    E(gamma) = E_q(gamma) + sum over losses l of P_q(l) E_next(gamma e^-l),

with E the excess over (1 - gamma)_+ and E_q that of one run. These are sums of non-negative terms, rounded to a side.
Few atoms are shifted and added; many go through transforms, with their rounding (docs/proofs/fft.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from scipy import fft

from jaxacct._numerics.fft_powers import eta_of
from jaxacct._numerics.rounding import EPS, UNIT, deflated, inflated
from jaxacct.games.experiment import by_direction
from jaxacct.games.lattice_laws import Law
from jaxacct.losses.grids.grid import LossGrid

_FEW = 24  # atoms up to which shifting is faster than a transform
_TINY = 1e-290  # more than all products that may have underflowed


class Rest(NamedTuple):
    """Curves with what is known beyond the lattice; if some query has many atoms, their transforms and norms."""

    wide: np.ndarray
    spectra: np.ndarray
    norms: np.ndarray


class Runs:
    """One run of any of several queries of one direction, and what follows it, as bounds from one side.

    Beyond the lattice E falls above gamma = 1, though not below the probability that a loss becomes infinite, and is at
    most proportional to gamma below; a lower bound takes it for 0 there.
    """

    def __init__(self, laws: Sequence[Law], grid: LossGrid, upper: bool) -> None:
        self.laws, self.grid, self.upper = laws, grid, upper
        self._above = max(int(law.offsets.max(initial=0)) for law in laws)
        self._below = max(-int(law.offsets.min(initial=0)) for law in laws)
        self._size = int(fft.next_fast_len(grid.size + self._above + self._below, real=True))  # pyright: ignore[reportArgumentType]
        self._kernels = [self._kernel(law) if law.offsets.size > _FEW else None for law in laws]
        self._limit = np.minimum(inflated(np.exp(grid.losses), 16 * EPS), 1.0)
        steps = grid.spacing * np.arange(self._above, 0, -1)
        self._edge = inflated(np.exp(-steps), 16 * EPS * (1.0 + steps))

    def _kernel(self, law: Law) -> tuple[np.ndarray, float]:
        """The law's transform, and the error of a convolution with a curve of norm 1 (Lemma 3 of the page)."""
        kernel = np.zeros(self._size)
        kernel[law.offsets % self._size] = law.masses
        eta, norm = eta_of(self._size), float(np.linalg.norm(kernel))
        # The lemma's one per cent, and one for what is computed here.
        return np.asarray(fft.rfft(kernel)), inflated(eta * kernel.sum() + (2.0 * eta + 8.0 * UNIT) * norm, 0.02)

    def before(self, curves: np.ndarray, infinite: ArrayLike = 0.0) -> Rest:
        """Excesses ``(rows, grid.size)``, made ready to be what follows; ``infinite`` is for lower bounds alone."""
        wide = np.zeros((curves.shape[0], self._above + self.grid.size + self._below))
        wide[:, self._above : self._above + self.grid.size] = curves
        wide[:, self._above + self.grid.size :] = curves[:, -1:] if self.upper else np.reshape(infinite, (-1, 1))
        if self.upper:
            wide[:, : self._above] = curves[:, :1] * self._edge
        if all(kernel is None for kernel in self._kernels):
            return Rest(wide, np.zeros(0), np.zeros(0))
        return Rest(wide, np.asarray(fft.rfft(wide, self._size)), np.linalg.norm(wide, axis=-1))

    def after(self, query: int, rest: Rest) -> np.ndarray:
        """Excesses of ``query`` followed by each of ``rest``, shape ``(rows, grid.size)``."""
        law, kernel, size = self.laws[query], self._kernels[query], self.grid.size
        if kernel is None:
            sums, error, units = np.zeros((len(rest.wide), size)), 0.0, (law.offsets.size + 16) * EPS
            for offset, mass in zip(law.offsets, law.masses, strict=True):
                sums += mass * rest.wide[:, self._above - offset : self._above - offset + size]
        else:
            sums = np.asarray(fft.irfft(rest.spectra * kernel[0], self._size))[:, self._above : self._above + size]
            error, units = (kernel[1] * rest.norms)[:, None], 8 * EPS
        if self.upper:
            return np.minimum(inflated(sums + law.excess + error, units) + _TINY, self._limit)
        return np.maximum(deflated(sums + law.excess - error, units) - _TINY, 0.0)

    def then(self, query: int, curve: np.ndarray) -> np.ndarray:
        """The excess of ``query`` followed by one curve, both at the points of the lattice."""
        return self.after(query, self.before(curve[None]))[0]


def both_sides(queries: Sequence[Sequence[tuple[Law, Law]]], grid: LossGrid) -> list[tuple[Runs, Runs]]:
    """For each direction the runs from above and from below, of each query's (upper, lower) laws by direction."""
    return [
        (Runs([above for above, _ in laws], grid, upper=True), Runs([below for _, below in laws], grid, upper=False))
        for laws in by_direction(queries)
    ]
