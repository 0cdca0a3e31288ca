"""Curves as 32-bit words: `rounded_down` makes them so that `packed` and `unpacked` lose nothing.

Any excess that is not negative and rises with the budget defines a family. So curves are rounded before anything is
certified against them, and take half the bytes on disk. A word counts upper parts of float64 numbers from a least
one, which keeps some 26 bits of each; 0 is below it. The order is kept.
"""

from __future__ import annotations

import math

import numpy as np

_MOST = int(np.float64(2.0).view(np.int64))  # an excess over sqrt(gamma) is at most 1
_DROPPED = 1e-6  # of the slack far out: smaller values are 0


def least_of(slack: float, far: float) -> float:
    """The least value other than 0, a power of 2."""
    return 2.0 ** math.floor(math.log2(_DROPPED * slack * far))


def rounded_down(excess: np.ndarray, least: float) -> np.ndarray:
    """Values in [0, 1] rounded down to ones that words hold."""
    return unpacked(packed(excess, least), least)


def packed(excess: np.ndarray, least: float) -> np.ndarray:
    """Words, uint32, of values in [0, 1]."""
    base, shift = _scale(least)
    words = ((np.ascontiguousarray(excess, np.float64).view(np.int64) - base) >> shift) + 1
    return np.where(excess < least, 0, words).astype(np.uint32)


def unpacked(words: np.ndarray, least: float) -> np.ndarray:
    """The values of words."""
    base, shift = _scale(least)
    return np.where(words == 0, 0.0, (((words.astype(np.int64) - 1) << shift) + base).view(np.float64))


def _scale(least: float) -> tuple[int, int]:
    base = int(np.float64(least).view(np.int64))
    return base, max((_MOST - base).bit_length() - 32, 0)
