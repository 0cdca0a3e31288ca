"""Computes the three cells of cut samples that an adversary is told, and their probabilities."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, column, logsumexp
from jaxacct._numerics.binomial import Split
from jaxacct._numerics.least import first_least
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.parameters import LEAST_RATE

_SHARES = np.linspace(0.0, 1.0, 33)
_LEAST = 1e-280


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
    xp = array_module(rate, split.share, share)
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
    second, third = (_best_share(noise, rate, split, order) for order in (2, 3))
    where = array_module(second, third).where
    return where((second < 0.5) | (third < 0.5), second, where(third < 0.875, third, 1.0))


def _best_share(noise: Array, rate: Array, split: Split, order: int) -> Array:
    noise, q, last, often = (column(x) for x in (noise, rate, split.last, split.above))
    xp = array_module(noise, q, last)
    kept = q * column(split.share)
    moved = _SHARES * often * kept
    near = q + xp.where(last > 0.0, moved / last, xp.where(moved > 0.0, np.inf, 0.0))
    sizes = [
        xp.log(mass) + _log_moment(1.0 - stays, there, move / noise**2, order)
        for mass, stays, there, move in ((last, q, near, 1.0), (often, kept, (1.0 - _SHARES) * kept, 4.0))
    ]
    sizes = [xp.where(mass > 0.0, size, -np.inf) for mass, size in zip((last, often), sizes, strict=True)]
    whole = xp.logaddexp(*xp.broadcast_arrays(*sizes))
    # A gain is no number to rely on next to a probability that underflows.
    whole = xp.where(((last > _LEAST) | (_SHARES == 0.0)) & ~xp.isnan(whole), whole, np.inf)
    best = xp.asarray(_SHARES)[first_least(whole)]
    return xp.where(often[..., 0] > 0.0, best, 0.0)


def _log_moment(stays: Array, there: Array, square: Array, order: int) -> Array:
    """log E_Q[(stays + there R)^order] of the ratio R of N(m, 1) to Q = N(0, 1), where ``square`` is m^2."""
    xp = array_module(stays, there, square)
    a, b = xp.log(stays), xp.log(there)
    terms = [
        np.log(math.comb(order, j)) + (order - j) * a + (j * b if j else 0.0) + 0.5 * j * (j - 1) * square
        for j in range(order + 1)
    ]
    return logsumexp(xp.stack(xp.broadcast_arrays(*terms), -1))
