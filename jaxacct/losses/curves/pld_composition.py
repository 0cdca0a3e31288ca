"""Composition of PLDs on a grid; what it cuts and rounds: docs/proofs/curves.md, lemma 5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.fft_powers import convolved
from jaxacct._numerics.host import at_hand
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.losses.grids.grid import LossGrid

if TYPE_CHECKING:
    from jaxacct.losses.curves.pld import PLD

_MOST = 2**24  # points of a composed law: an FFT of a few hundred MiB
_SHORT = 2**14  # points of a composed law that is never cut
_LONG = 2**20  # points of a law that is cut, if its losses are bounded: up to the largest sum
_CUT = 2.0**-80  # mass beyond either end of a law that is cut: far below what a transform rounds
_TILTS = 1.4 ** np.arange(-16.0, 5.0)  # of a Gaussian's best tilt


_Held = tuple[np.ndarray, LossGrid, int]  # a law's masses at hand, its grid, and how often it runs


class Fixed(NamedTuple):
    """What a program that composes is compiled for.

    Attributes:
        size: points of the transform.
        length: points of the result.
        whole: whether the result holds every sum, so that it begins where the transform does.
        bounded: whether mass that is cut goes to the largest sum, and not to infinity; of upper laws only.
    """

    size: int
    length: int
    whole: bool
    bounded: bool


class Points(NamedTuple):
    """Lattice points, from 0 for the sum of the laws' first points: arrays, so that programs are shared.

    Attributes:
        low: the first point of the result.
        high: the last one that takes sums.
        least: the first one that a sum can be.
        most: the last one that a sum can be.
        cut: the mass that lies beyond ``low`` and ``high``.
    """

    low: Array
    high: Array
    least: Array
    most: Array
    cut: Array


def room(pld: PLD, other: PLD | None, steps: int) -> tuple[Fixed, Points, int]:
    """Where the law of ``steps`` times ``pld``, and once ``other``, lies, and the lowest point of its grid.

    Traced laws are put on a grid that holds every sum. Where the masses are known and that would be long, the grid ends
    where no more than ``_CUT`` of the mass lies beyond either end.

    Raises:
        ValueError: a law of more than 2^24 points.
    """
    grid = pld.grid
    parts = [(pld, steps)] + ([(other, 1)] if other is not None else [])
    spread = sum(count * (law.grid.size - 1) for law, count in parts)
    lowest = sum(count * law.grid.lowest for law, count in parts)
    size = 1 << spread.bit_length()
    known = at_hand(pld, other)
    host = isinstance(pld.masses, np.ndarray) and (other is None or isinstance(other.masses, np.ndarray))
    held = [(np.asarray(law.float64().masses), law.grid, count) for law, count in parts if known]
    least, most = _support(held) if known else (0, spread)
    low, high, cut = 0, size - 1, 0.0
    if known and size > _SHORT:
        first, last = _ends(held, least, most)
        points = _fast(max(last - first + 1, *(law.grid.size for law, _ in parts)))
        if points < size:
            size, low, high = points, first, last
            cut = _CUT * ((high < most) + (low > least))
    if min(size, steps * grid.size) > _MOST:
        raise ValueError(
            f"steps must keep the composed law below {_MOST} points, got {steps} steps of {grid.size} points; "
            "jaxacct.delta and jaxacct.epsilon compose any number of steps"
        )
    whole = (low, high) == (0, size - 1)
    # On a device, results of a few lengths share programs. In NumPy they are as long as they must be.
    length = high - low + 1 if whole or host else size
    bounded = pld.bound == "upper" and bool(cut) and most - low < _LONG
    bounded = bounded and not any(np.any(np.asarray(law.infinity_mass)) for law, _ in parts)
    if bounded:
        length = most - low + 1 if host else _fast(max(most - low + 1, size))
    points = Points._make(np.asarray(x) for x in (low, high, least, most, cut))
    return Fixed(size, length, whole, bounded), points, lowest + low


def composed(pld: PLD, other: PLD | None, steps: int, fixed: Fixed, points: Points) -> tuple[Array, Array]:
    """Masses and infinity mass of ``pld`` run ``steps`` times, and ``other`` once if it is not None.

    By FFT, with its rounding error on every entry that a sum can be.
    """
    upper = pld.bound == "upper"
    sums, error = convolved(pld.masses, steps, fixed.size, other.masses if other is not None else None)
    error = error[..., None]
    # In logarithms: masses of 1e-30 are lost in 1 - (1 - a)(1 - b).
    finite = steps * log1p(-pld.infinity_mass) + (log1p(-other.infinity_mass) if other is not None else 0.0)
    infinite = inflated(0.0 - xp.expm1(finite), 1e-12 if upper else -1e-12)
    places = points.low + np.arange(fixed.length)
    if not fixed.whole:
        sums = xp.take(sums, places % fixed.size, axis=-1)
    # An entry that no sum can be stays 0; every other one takes its rounding error.
    off = error if upper else -(error + points.cut)
    charged = xp.maximum(xp.maximum(sums, 0.0) + off, 0.0)
    masses: Array = xp.where((places >= points.least) & (places <= points.most), charged, 0.0)
    if fixed.length > fixed.size:
        masses = xp.where(places <= points.high, masses, 0.0)
    if fixed.bounded:
        masses = xp.where(places == points.most, masses + points.cut, masses)  # bounded losses stay bounded
    elif upper:
        infinite = infinite + points.cut
    return masses, xp.clip(infinite, 0.0, 1.0)


def _support(parts: list[_Held]) -> tuple[int, int]:
    """The first and the last point that a sum of the laws' losses can be, from 0 for the sum of their first points."""
    least = most = 0
    for masses, grid, count in parts:
        held = np.flatnonzero((masses != 0).reshape(-1, grid.size).any(0))
        if held.size:
            least, most = least + count * int(held[0]), most + count * int(held[-1])
    return least, most


def _ends(parts: list[_Held], least: int, most: int) -> tuple[int, int]:
    """First and last lattice point of a sum of losses between ``least`` and ``most``, but for ``_CUT`` on either side.

    For every t > 0, mass(S >= c + x) <= exp(-t x) prod_k M_k(t)^m_k with M_k(t) = sum_i p_i exp(t (i - c_k)), whatever
    the centre c = sum_k m_k c_k. Losses are counted in points. A batch gets one grid for all.
    """
    centre, variance, moved = 0, 1e-12, []
    for law, grid, count in parts:
        masses, points = law.reshape(-1, grid.size), np.arange(grid.size)
        total = np.maximum(masses.sum(-1), 1e-300)
        mean = masses @ points / total
        about = int(np.rint(np.nan_to_num(np.clip(np.mean(mean), 0, grid.size))))
        centre += count * about
        away = (points - about).astype(np.float64)
        variance += count * max(float(np.max(masses @ away**2 / total - (mean - about) ** 2)), 0.0)
        moved.append((masses, away, count))
    best = np.sqrt(-2.0 * np.log(_CUT) / variance)

    def reach(t: float) -> int:
        logs = 0.0
        for masses, away, count in moved:
            exponent = t * away
            top = exponent.max()
            moment = np.maximum(masses @ np.exp(exponent - top), 1e-300)
            rounding = EPS * (2.0 * away.size + 8.0 * np.abs(exponent).max())
            logs += count * (float(np.max(np.log(moment))) + top + rounding)
        found = (logs - np.log(_CUT)) / abs(t)
        return math.ceil(found + 1.0 + 1e-12 * abs(found)) if math.isfinite(found) else most

    first = max(least, centre - min(reach(-best * tilt) for tilt in _TILTS))
    last = min(most, centre + min(reach(best * tilt) for tilt in _TILTS))
    return (first, last) if first <= last else (least, least)


def _fast(points: int) -> int:
    """The least even 2^k, 3 2^k or 5 2^k of at least so many points."""
    return min(factor << max(((points - 1) // factor).bit_length(), 1) for factor in (1, 3, 5))
