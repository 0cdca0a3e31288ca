"""The loss of a sampled pair as a function of the loss of the pair itself, and back.

If L = log dP/dQ then log d((1 - q) Q + q P)/dQ = log(1 - q + q e^L): increasing in L, with range
(log(1 - q), inf). For the reversed pair both losses change sign. ``rate`` is q and ``rest`` is 1 - q, each good to
``RATE_UNITS`` of itself (:mod:`jaxacct.mechanisms.parameters`): docs/proofs/parameters.md, lemmas 2 and 3.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from jaxacct._numerics.arrays import Array, Real, shared, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Pair

_HIGH = 30.0  # above, e^-loss is negligible beside 1 or the expression is the exact one in logarithms
_RARE = 0.25  # up to which 1 - q is no small number
_LOW = -0.6  # below, q > 0.45, and e^loss - (1 - q) is a difference that may cancel, at no cost to the outer loss


class Sample(NamedTuple):
    """What a sampled pair is made of: the pair of the mechanism, the rate and its complement, and the direction."""

    inner: Pair
    rate: Array
    rest: Array
    reverse: Array


COMPLEMENT = cast(Array, None)
"""The default of a pair's ``rest``, in whose place `Rated` puts 1 - rate."""


class Rated:
    """Fills in the field ``rest`` of a pair on a sample: 1 - ``rate``, which is right for a rate that is exact."""

    rate: Array
    rest: Array

    def __post_init__(self) -> None:
        if self.rest is None:
            object.__setattr__(self, "rest", 1.0 - self.rate)


def all_records(pair: Rated) -> Array:
    """Where the sample is all records."""
    return (pair.rate == 1.0) & (pair.rest == 0.0)


@shared
@np.errstate(all="ignore")
def log_rest(rate: Array, rest: Array) -> Array:
    """log(1 - rate), to 16 units of itself: neither of its two expressions cancels where it is used."""
    most = xp.asarray(rest < 0.5)
    return xp.where(most, xp.log(rest), log1p(-xp.where(most, 0.5, rate)))


@shared
@np.errstate(all="ignore")
def mixed_loss(loss: Array, rate: Array, rest: Array) -> Array:
    """log(rest + rate exp(loss)), accurate for losses near 0 and tiny rates; float64, shapes that broadcast."""
    is_near = _near(loss, rate)
    near = log1p(rate * xp.expm1(xp.where(is_near, loss, 0.0)))
    far = xp.logaddexp(log_rest(rate, rest), xp.log(rate) + loss)
    return xp.where(is_near, near, far)


def _near(loss: Array, rate: Array) -> Array:
    """Where log(1 + rate expm1(loss)) has a relative error of a few units: its argument stays away from 0."""
    return (loss <= _HIGH) & ((loss >= _LOW) | (rate < _RARE))


@np.errstate(all="ignore")
def _rounding(loss: Array, rate: Array, found: Array) -> Array:
    """A bound on how far ``found``, the ``mixed_loss`` of ``loss``, is off."""
    size = 64.0 * xp.abs(found) + xp.where(_near(loss, rate), 0.0, 64.0 + 4.0 * xp.abs(xp.log(rate)))
    return xp.where(xp.isfinite(found), UNIT * size, 0.0)


@np.errstate(all="ignore")
def mixed_loss_up(loss: Array, rate: Array, rest: Array, down: Array | bool = False) -> Array:
    """An upper bound of the loss on a sample where the inner one is at most ``loss``; where ``down``, a lower bound."""
    found = mixed_loss(loss, rate, rest)
    room = _rounding(loss, rate, found)
    return xp.where(rest == 0.0, loss, found + xp.where(down, -room, room))


@np.errstate(all="ignore")
def mixed_loss_error(loss: Array, off: Real, rate: Array, found: Array) -> Array:
    """A bound on how far ``found``, the ``mixed_loss`` of ``loss``, is off where ``loss`` is off by ``off`` itself.

    The derivative in the loss is the share of ``rate e^loss`` in its sum: the rate itself, or next to it, for losses
    near 0.
    """
    slope = xp.exp(xp.minimum(xp.log(rate) + loss + off - found, 0.0)) * (1.0 + 1e-9)
    return xp.where(xp.isfinite(found), slope * off, 0.0) + _rounding(loss, rate, found)


@shared
@np.errstate(all="ignore")
def inner_loss(loss: Array, rate: Array, rest: Array) -> Array:
    """The loss m with ``mixed_loss(m, rate, rest) == loss``, and -inf below the range of ``mixed_loss``.

    Exact for a loss that is off by at most 160 units, and 6 of itself (lemma 3). A loss near 0 keeps its relative
    accuracy for tiny rates; below -0.6, exp(loss) - rest does not cancel where 1 + expm1(loss) / rate does.
    """
    ratio = xp.expm1(xp.minimum(loss, _HIGH)) / rate
    near = xp.where(ratio > -1.0, log1p(xp.maximum(ratio, -1.0)), -np.inf)
    high = loss - xp.log(rate) + log1p(-rest * xp.exp(-xp.maximum(loss, _HIGH)))
    left = xp.exp(xp.minimum(loss, 0.0)) - rest
    low = xp.where(left > 0, xp.log(xp.where(left > 0, left, 1.0) / rate), -np.inf)
    found = xp.where(loss > _HIGH, high, xp.where(loss < _LOW, low, near))
    return xp.where(rest == 0.0, loss, found)
