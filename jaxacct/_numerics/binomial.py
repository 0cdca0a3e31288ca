"""Binomial probabilities with a bound on their relative error, in NumPy and in JAX."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, Real, array_module, take, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT

_TERMS = 4096  # of a tail inside a trace; concrete numbers take as many as they need
_MOST_TERMS = 2**20
_DEVIATIONS = 12.0  # of a tail are summed; what is beyond is bounded
_SHORT = 1e-12  # of a sum that is left out: more only where the mode is five deviations off, at least
_SMALL = 16  # up to here the error of Stirling's formula is tabulated
# Of 1 to 15, each to the nearest float: from lgamma it would be what a difference of large numbers leaves.
_TABLE = np.array(
    [
        *(0.0, 0.08106146679532726, 0.0413406959554093, 0.02767792568499834, 0.020790672103765093),
        *(0.016644691189821193, 0.013876128823070748, 0.01189670994589177, 0.010411265261972096),
        *(0.009255462182712733, 0.00833056343336287, 0.007573675487951841, 0.00694284010720953),
        *(0.006408994188004207, 0.0059513701127588475, 0.005554733551962801),
    ]
)


class Split(NamedTuple):
    """How a binomial K falls on both sides of a whole number ``least``; arrays of the broadcast shape.

    Attributes:
        below: P[K < least].
        above: P[K >= least].
        share: E[least / (K + 1) | K >= least], in (0, 1].
        last: P[K = least - 1]; 0 where K is surely on one side.
        earlier: the rest of ``below``.
        doubt: relative error of each.
    """

    below: Array
    above: Array
    share: Array
    last: Array
    earlier: Array
    doubt: Array


@np.errstate(all="ignore")
def binomial_split(trials: Real, rate: Real, least: Real) -> Split:
    """How K ~ Bin(``trials``, ``rate``) falls on both sides of ``least`` >= 1; NaN parameters give NaN.

    The nearest probability is that of Loader's saddle-point form ("Fast and Accurate Computation of Binomial
    Probabilities", 2000), and a tail is that times the sum of the products of ratios of neighbours. The ratios fall, so
    what is not summed is at most a geometric series; it counts as error.
    """
    n, q, k = (xp.asarray(x, np.float64) for x in (trials, rate, least))
    n, q, k = xp.broadcast_arrays(n, q, k)
    terms = _TERMS
    if array_module(trials, rate, least) is np:
        wide = np.sqrt(np.maximum(n * q * (1.0 - q), 0.0) + 1.0)
        far = np.nan_to_num(np.max(_DEVIATIONS * wide + 64.0, initial=64.0), nan=64.0, posinf=_MOST_TERMS)
        terms = int(min(far, _MOST_TERMS))
    i = np.arange(terms, dtype=np.float64)
    n_, k_, odds = n[..., None], k[..., None], (q / (1.0 - q))[..., None]
    # Upwards from ``least``, downwards from the number before it: terms relative to the first.
    steps_up = xp.maximum(n_ - k_ - i, 0.0) / (k_ + i + 1.0) * odds
    steps_down = xp.maximum(k_ - 1.0 - i, 0.0) / (n_ - k_ + i + 2.0) / odds
    one = xp.ones_like(steps_up[..., :1])
    up = xp.concatenate([one, xp.cumprod(steps_up, -1)], -1)
    down = xp.concatenate([one, xp.cumprod(steps_down, -1)], -1)
    at = np.arange(terms + 1, dtype=np.float64)
    first_up, first_down = binomial_probability(n, q, k), binomial_probability(n, q, k - 1.0)
    above, below = first_up[0] * up.sum(-1), first_down[0] * down.sum(-1)
    weights_up, weights_down = k_ / (k_ + at + 1.0), k_ / xp.maximum(k_ - at, 1.0)
    shared_up = (up * weights_up).sum(-1) / up.sum(-1)
    # E[k / (K + 1)] of all K, less that of those below.
    whole = -xp.expm1((n + 1.0) * log1p(-q)) / ((n + 1.0) * q) * k
    shared_down = (whole - first_down[0] * (down * weights_down).sum(-1)) / (1.0 - below)
    rising = k >= n * q
    ratio = xp.where(rising, steps_up[..., -1], steps_down[..., -1])
    rest = xp.where(rising, up[..., -1] / up.sum(-1), down[..., -1] / down.sum(-1)) * ratio / (1.0 - ratio)
    rest = xp.where(ratio < 1.0, xp.where(ratio > 0.0, rest, 0.0), np.inf)
    doubt = xp.where(rising, first_up[1], first_down[1]) + UNIT * (64.0 + 16.0 * terms)
    # Before the last number below ``least``: the sum downwards; or what is left, where that is short of the mode.
    end, further = steps_down[..., -1], down[..., 1:].sum(-1)
    left = xp.where((end > 0.0) & (further > 0.0), down[..., -1] / further * end / (1.0 - end), 0.0)
    short = rising & ~((end < 1.0) & (left < _SHORT))
    doubt = xp.maximum(doubt, first_down[1] + UNIT * (64.0 + 16.0 * terms))
    rest = xp.where(short, rest, xp.maximum(rest, left))
    # Where most lies on one side, the other is 1 less that: of a size of 1/4 at least, so off by 4 times as much.
    doubt = xp.minimum(8.0 * (doubt + rest), 1.0)
    none, all_ = (k > n) | (q == 0.0), q == 1.0
    above = xp.where(rising, above, 1.0 - below)
    above = xp.where(none, 0.0, xp.where(all_, 1.0, above))
    below = xp.where(rising | none | all_, 1.0 - above, below)
    share = xp.where(rising, shared_up, shared_down)
    share = xp.where(none, 1.0, xp.where(all_, k / (n + 1.0), share))
    last = xp.where(none | all_, 0.0, first_down[0])
    earlier = xp.where(none | all_, below, xp.where(short, 1.0 - above - last, first_down[0] * further))
    doubt = xp.where(none | all_, 4.0 * UNIT, doubt) + 0.0 * (n + q + k)
    below, above, share, last, earlier = (xp.clip(x, 0.0, 1.0) for x in (below, above, share, last, earlier))
    return Split(below, above, share, last, earlier, doubt)


def binomial_probability(n: Array, q: Array, k: Array) -> tuple[Array, Array]:
    """P[Bin(n, q) = k] and its relative error, for 0 <= k <= n. What underflows is off by up to 1e-307 more."""
    other = n - k
    inner = (k > 0) & (other > 0)
    a, b = xp.where(inner, k, 1.0), xp.where(inner, other, 1.0)
    m = a + b
    off = _deviance(a, m * q), _deviance(b, m * (1.0 - q))
    log = _stirling(m) - _stirling(a) - _stirling(b) - off[0][0] - off[1][0] + 0.5 * xp.log(m / (2.0 * np.pi * a) / b)
    ends = xp.where(k <= 0, n * log1p(-q), n * xp.log(q))
    value = xp.exp(xp.where(inner, log, ends))
    error = UNIT * (64.0 + 16.0 * xp.where(inner, off[0][1] + off[1][1] + xp.abs(log), xp.abs(ends)))
    return value, error


def _deviance(x: Array, mean: Array) -> tuple[Array, Array]:
    """x log(x / mean) + mean - x, and how large the numbers are that make it up."""
    apart = mean - x
    share = apart / x
    log = xp.where(share < -0.5, xp.log(mean / x), log1p(xp.maximum(share, -0.5)))
    return x * (share - log), xp.abs(apart) + 1.0


def _stirling(m: Array) -> Array:
    """log(m!) less Stirling's formula, for whole m >= 1; the series is off by 1e-16 from 16 on."""
    s = 1.0 / (m * m)
    series = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / m
    small = m < _SMALL
    return xp.where(small, take(_TABLE, xp.where(small, m, 0.0).astype(np.int32)), series)


@np.errstate(all="ignore")
def binomial_weights(trials: Array, records: Array, most: int) -> tuple[list[Array], Array]:
    """P[Bin(``trials``, 1 / ``records``) = j] for j up to ``most``, and a bound of what is left above.

    They are good to a relative 8 (``most`` + 8) units and, for trials up to 2**53, those of ``trials / records`` more.
    """
    b, n = (xp.asarray(x, np.float64) for x in (trials, records))
    found = [xp.exp(b * log1p(-1.0 / n))]
    for j in range(most):
        found.append(found[-1] * xp.maximum(b - j, 0.0) / ((j + 1.0) * (n - 1.0)))
    ratio = xp.maximum(b - most, 0.0) / ((most + 1.0) * (n - 1.0))
    return found, found[-1] * ratio / (1.0 - ratio) * (1.0 + 1e-9)
