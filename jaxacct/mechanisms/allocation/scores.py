"""Tests of an epoch in which a record takes part several times: sums of scores log(1 + c r) of the ratios r.

The ratio of an epoch, an elementary symmetric polynomial of the r_i, is a coefficient of the product of 1 + z r_i. That
product at one z = c near its saddle point says nearly as much, and any c gives a sound test
(docs/proofs/random-allocation.md). Windows are planned here, without certified numbers: a bad plan makes a weak test.
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import logsumexp
from jaxacct.mechanisms.allocation.plan import ALIAS, Window, lattice, merged_cells
from jaxacct.mechanisms.allocation.ratios import RatioCells
from jaxacct.mechanisms.allocation.window_law import Events, WindowLaw

_LARGE, _SMALL = (0.7, 0.5, 0.25), (1.4,)  # c, in odds of a participation, for large and for small sums
_DEPTHS = (1.0, 12.0)  # e-foldings of the mass of sums that a window is made for
_TILTS = np.append(0.0, np.geomspace(1e-2, 1e6, 96))
_RARE = 8.0  # e-foldings of the mass of sums with the record
_BLUR = 1e-4  # of the variance of a sum, by rounding
_MOST, _LONGEST = 2**17, 2**20  # points of a lattice of sums, and of scores


def tests_of_scores(cells: RatioCells, t: int, k: int) -> tuple[list[Events], list[Events]]:
    """Events of large sums and of small ones, for ``1 < k < t``."""
    above, below = [], []
    for side, shares, found in ((1.0, _LARGE, above), (-1.0, _SMALL, below)):
        for share in shares:
            scored = _scored(cells, share * k / (t - k))
            for window in _windows(scored, t, k, side):
                found.append(WindowLaw(scored, window, t, k).events())
    return above, below


def _scored(cells: RatioCells, c: float) -> RatioCells:
    """The cells with scores in place of ratios, less that of the second cell; next to nothing is in the first."""
    left, right = np.log1p(c * cells.left), np.log1p(c * cells.right)
    return cells._replace(left=np.maximum(left - left[1], 0.0), right=np.maximum(right - left[1], 0.0))


def _windows(cells: RatioCells, t: int, k: int, side: float) -> list[Window]:
    """Windows over all sums, each with a tilt of its own."""
    starts, base, other = merged_cells(cells)
    scores = 0.5 * (cells.left[starts] + cells.right[starts])
    logs = [np.log(np.maximum(masses, 1e-320)) for masses in (base, other)]

    def moments(tilts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the moment-generating functions of the sum, without the record and with it."""
        q, p = (logsumexp(part + tilts[:, None] * scores) for part in logs)
        return t * q, (t - k) * q + k * p

    tilts = side * _TILTS / max(float(scores[-1]), 1e-300) if side < 0 else _TILTS
    weights = logs[0] + tilts[:, None] * scores
    weights = np.exp(weights - logsumexp(weights)[:, None])
    means = (weights * scores).sum(-1)
    deviations = np.maximum((t * (weights * (scores - means[:, None]) ** 2).sum(-1)) ** 0.5, 1e-9 * t * scores[-1])
    sums, cumulants = t * means, moments(tilts)
    # Rates of decay of the tails at these sums, without the record and with it.
    depths, with_record = ((tilts * sums[:, None] - cumulant).max(-1) for cumulant in cumulants)
    found = []
    chosen = {int(np.argmax(depths >= min(depth, 0.9 * depths.max()))) for depth in _DEPTHS}
    if side > 0:
        # Where little noise sets both laws far apart, a tilt between those that make it likely under either.
        rare = tilts[np.argmax(with_record >= _RARE)] - 0.5
        between = int(np.argmax(tilts >= rare))
        chosen |= {between} if depths[between] > 2.0 * _DEPTHS[-1] else set()
    for best in sorted(chosen):
        tilt, deviation = float(tilts[best]), float(deviations[best])
        gaps = np.geomspace(0.1, 50.0, 48) / deviation
        here, up, down = (moments(at) for at in (np.full(1, tilt), tilt + gaps, tilt - gaps))
        top = max(float(((more - now + ALIAS) / gaps).min()) for more, now in zip(up, here, strict=True))
        bottom = min(float((-(less - now + ALIAS) / gaps).max()) for less, now in zip(down, here, strict=True))
        top, bottom = min(top, t * float(scores[-1])) + 0.01 * deviation, max(bottom, 0.0)
        finest = float(scores[-1]) / _LONGEST
        step, first, points, _ = lattice(bottom, top, _MOST, scores, t * weights[best], _BLUR * deviation**2, finest)
        low, high = first * step, (first + points) * step
        found.append(Window(side > 0, low, high, cells.right.size - 1, tilt, step, first, points, deviation))
    return found
