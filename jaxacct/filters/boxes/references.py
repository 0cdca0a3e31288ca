"""About the worst case of an analyst who may run a few reference queries: `worst_curves`.

The recursion of the worst case, U_b = max over c of T_c U_(b - price_c), on evenly spaced budgets and a lattice of
losses. It need not be a bound: prices are certified against the curves that come out, whatever they are. That they are
near the worst case of loud queries is what makes prices low.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from jaxacct.filters.boxes.family import circular, kinks_of, padded
from jaxacct.losses.grids.grid import LossGrid

__all__ = ["several", "worst_curves"]


def several(single: np.ndarray, times: int, spacing: float) -> np.ndarray:
    """The excess over sqrt(gamma) of so many runs of a query, at the offsets of ``single``, that of one run."""
    n = single.size
    wide = LossGrid(spacing, -(n // 2), n)
    kernel = np.fft.rfft(np.pad(single, (0, padded(n) - n)))
    found = single
    for _ in range(times - 1):
        more = np.fft.irfft(np.fft.rfft(kinks_of(found, wide), padded(n)) * kernel, padded(n))
        found = found + np.maximum(more[n // 2 : n // 2 + n], 0.0)
    return found


def worst_curves(
    singles: Sequence[np.ndarray],
    prices: Sequence[float],
    grid: LossGrid,
    enough: Callable[[np.ndarray], bool],
) -> np.ndarray:
    """Excesses over sqrt(gamma) of budgets 0, 1, 2, ..., up to the first one that is ``enough``.

    Args:
        singles: each query's own excess over sqrt(gamma), at offsets ``-(grid.size - 1) .. grid.size - 1``.
        prices: their prices, at least 1.
        grid: the lattice.
        enough: of a curve.
    """
    n = grid.size
    kernels = [np.fft.rfft(circular(one, n)) for one in singles]
    alone = [one[n - 1 + grid.lowest :][:n] for one in singles]
    curves = [np.zeros(n)]
    composed: list[list[np.ndarray]] = [[] for _ in singles]
    while not (len(curves) % 32 == 0 and enough(curves[-1])):
        spectrum = np.fft.rfft(kinks_of(curves[-1], grid), padded(n))
        at = len(curves)  # the next budget
        best = curves[-1]
        for done, kernel, single, price in zip(composed, kernels, alone, prices, strict=True):
            done.append(curves[-1] + np.maximum(np.fft.irfft(spectrum * kernel, padded(n))[:n], 0.0))
            before = at - price
            if before >= 0:
                i = min(int(before), len(done) - 1)
                one = done[i] if i + 1 >= len(done) else done[i] + (before - i) * (done[i + 1] - done[i])
            else:
                one = single * (at / price)  # a ramp up to its first run: nothing jumps
            best = np.maximum(best, one)
        curves.append(best)
    return np.stack(curves)
