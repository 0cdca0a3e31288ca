"""A lower bound for shuffled batches with Gaussian noise: the attack that thresholds the largest batch sum."""

from __future__ import annotations

import functools

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.mechanisms.allocation.sums import SumBounds
from jaxacct.mechanisms.allocation.tables import Table, lower_table
from jaxacct.mechanisms.allocation.window_law import Events
from jaxacct.mechanisms.pairs.allocation import ATOMS, AllocationPair, tabled
from jaxacct.mechanisms.pairs.gaussian import normal_tails

_POINTS = 3000
_SHARE = 1e-9  # more than all roundings of a probability: up to 2^20 factors, tails good to 1e-13
_REACH = 11.0  # standard deviations


def shuffled_pair(noise: Array, batches: Array, without: float, relation: str) -> AllocationPair:
    """(P, Q) of the events {the largest of t sums exceeds c}, for all c of a grid, rounded to be dominated.

    Of t sums with noise N(0, noise^2) one, at random, is moved by 2 under P and by ``without`` under Q; with
    ``relation`` `add` the two are exchanged. Traced numbers give a pair of NaN.
    """

    def table(sigma: Array, t: Array) -> Table | None:
        return _table(float(sigma), float(t), without, relation == "add") if sigma > 0 and t >= 1 else None

    return tabled((noise, batches), table)


@functools.lru_cache(maxsize=256)
def _table(sigma: float, t: float, without: float, mirrored: bool) -> Table:
    with np.errstate(all="ignore"):
        at = np.linspace(-_REACH * sigma, 2.0 + _REACH * sigma, _POINTS)
        p_log, q_log = ((t - 1.0) * _log_below(at / sigma) + _log_below((at - move) / sigma) for move in (2.0, without))
        p_over, q_over = -np.expm1(p_log), -np.expm1(q_log)
        p_under, q_under = np.exp(p_log), np.exp(q_log)
        none = np.zeros(_POINTS)
        high = Events(inflated(q_over, _SHARE), deflated(p_over, _SHARE), none)
        low = Events(deflated(q_under, _SHARE), inflated(p_under, _SHARE), none)
        nothing = (np.zeros(0), np.zeros(0))
        return lower_table(SumBounds(nothing, nothing, [high], [low], 0.0), mirrored, ATOMS)


def _log_below(z: np.ndarray) -> np.ndarray:
    """log P(N(0, 1) <= z), from whichever tail is small."""
    above, below = normal_tails(z)
    return np.where(above < 0.5, np.log1p(-above), np.log(below))
