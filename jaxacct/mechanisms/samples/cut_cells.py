"""Computes the three cells of cut samples that an adversary is told, and their probabilities."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, column, logsumexp, take, xp
from jaxacct._numerics.binomial import Split
from jaxacct._numerics.least import first_least
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.parameters import LEAST_RATE

_SHARES = np.linspace(0.0, 1.0, 33)
_LEAST = 1e-280
_ORDERS = np.array([2.0, 3.0])
_TERMS = np.arange(_ORDERS[-1] + 1.0)  # of their binomial theorems
with np.errstate(divide="ignore"):
    _LOG_BINOMIALS = np.log([[math.comb(int(order), int(j)) for j in _TERMS] for order in _ORDERS])


class Cells(NamedTuple):
    """K < largest - 1; K = largest - 1 and a share of the cut samples that hold the record; all other cut samples.

    Attributes:
        usual, near, full: how often the record is in the sample, in each; rounded up, and never 0.
        earlier, later: probabilities of the first, and of the second and third together.
        with_record, without: probabilities of the second and third, given that, for either neighbour.
        gains: logarithms of the quotients of those.
        doubt: relative error of the probabilities, and absolute one of the logarithms.
    """

    usual: Array
    near: Array
    full: Array
    earlier: Array
    later: Array
    with_record: tuple[Array, Array]
    without: tuple[Array, Array]
    gains: tuple[Array, Array]
    doubt: Array


@np.errstate(all="ignore")
def cells_of(rate: Array, split: Split, share: Array) -> Cells:
    """The cells for a ``share`` in [0, 1] (``docs/proofs/truncated-poisson.md``), of counts split at ``largest``."""
    kept = rate * split.share
    moved = share * split.above * kept
    later, left = split.last + split.above, 1.0 - share * kept
    near, full = split.last + moved, split.above * left
    doubt = 4.0 * split.doubt / left + 32.0 * UNIT
    up = lambda x, most: xp.minimum(xp.maximum(inflated(x, doubt), LEAST_RATE), most)  # noqa: E731
    usual = xp.maximum(rate, LEAST_RATE)
    of = lambda x, none: xp.where(later > 0.0, x / later, none)  # noqa: E731
    return Cells(
        usual=usual,
        near=up(xp.where(near > 0.0, (rate * split.last + moved) / near, rate), 1.0),
        full=up((1.0 - share) * kept / left, usual),
        earlier=split.earlier,
        later=later,
        with_record=(of(near, 1.0), of(full, 0.0)),
        without=(of(split.last, 1.0), of(split.above, 0.0)),
        gains=(xp.where(split.last > 0.0, log1p(moved / split.last), 0.0), log1p(-share * kept)),
        doubt=doubt,
    )


@np.errstate(all="ignore")
def share_moved(noise: Array, rate: Array, split: Split) -> Array:
    """The share, of a few. Any is sound; this choice was within 4 % of the best epsilon where that was looked for.

    E_Q[(P / Q)^k] under `remove` is least for a share that grows with k, and so does the order that matters the less
    often samples are cut.
    """
    second, third = _best_shares(noise, rate, split)
    where = xp.where
    return where((second < 0.5) | (third < 0.5), second, where(third < 0.875, third, 1.0))


def _best_shares(noise: Array, rate: Array, split: Split) -> Array:
    """The best for each of `_ORDERS`, along an axis in front."""
    noise, q, last, often = (column(x) for x in (noise, rate, split.last, split.above))
    kept = q * column(split.share)
    moved = _SHARES * often * kept
    near = q + xp.where(last > 0.0, moved / last, xp.where(moved > 0.0, np.inf, 0.0))
    # The second and the third cell, along a first axis: how often they are seen, and what is in them.
    cells = (last, often), (1.0 - q, 1.0 - kept), (near, (1.0 - _SHARES) * kept), (1.0 / noise**2, 4.0 / noise**2)
    shape = np.broadcast_shapes(near.shape, noise.shape)
    mass, stays, there, square = (xp.stack([xp.broadcast_to(x, shape) for x in each]) for each in cells)
    sizes = xp.where(mass > 0.0, xp.log(mass) + _log_moments(stays, there, square), -np.inf)
    whole = xp.logaddexp(sizes[:, 0], sizes[:, 1])
    # A gain is no number to rely on next to a probability that underflows.
    whole = xp.where(((last > _LEAST) | (_SHARES == 0.0)) & ~xp.isnan(whole), whole, np.inf)
    return xp.where(often[..., 0] > 0.0, take(_SHARES, first_least(whole)), 0.0)


def _log_moments(stays: Array, there: Array, square: Array) -> Array:
    """log E_Q[(stays + there R)^k] for k of `_ORDERS`, along an axis in front.

    R is the ratio of N(m, 1) to Q = N(0, 1), and ``square`` is m^2.
    """
    a, b, square = (x[..., None] for x in (xp.log(stays), xp.log(there), square))
    order, axes = _ORDERS.reshape(-1, *[1] * a.ndim), [1] * (a.ndim - 1)
    terms = _LOG_BINOMIALS.reshape(len(_ORDERS), *axes, -1) + xp.where(order > _TERMS, (order - _TERMS) * a, 0.0)
    return logsumexp(terms + xp.where(_TERMS > 0.0, _TERMS * b, 0.0) + 0.5 * _TERMS * (_TERMS - 1.0) * square)
