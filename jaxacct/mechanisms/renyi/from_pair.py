"""The Rényi divergence of a pair: by the formula of its kind, else from its tails or a bound of its moments."""

from __future__ import annotations

import functools

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.host import floats
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct._numerics.rows import Row, flattened, settings_shapes
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.curve import CurvePair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.laplace import BoundedLoss
from jaxacct.mechanisms.pairs.mixture import MixturePair
from jaxacct.mechanisms.pairs.sampled import SampledPair
from jaxacct.mechanisms.pairs.table import Tabulated
from jaxacct.mechanisms.parameters import RATE_UNITS
from jaxacct.mechanisms.renyi.gaussian import gaussian_divergence, sampled_gaussian_divergence
from jaxacct.mechanisms.renyi.mixture import mixture_divergence
from jaxacct.mechanisms.renyi.tails import log_excess, table_divergence

_TILTS = (1.0, 4.0, 16.0, 64.0, 256.0)


def largest(pairs: list[Pair], order: ArrayLike) -> Array:
    """The largest divergence of several directions of one mechanism."""
    if isinstance(pairs[0], GaussianPair):
        pairs = pairs[:1]  # for every order `remove`, which is the first, has the larger one
    return functools.reduce(xp.maximum, [pair_divergence(pair, order) for pair in pairs])


def pair_divergence(pair: Pair, order: ArrayLike) -> Array:
    """An upper bound of the divergence of one pair (inside ``enable_x64``); infinite for invalid numbers."""
    if isinstance(pair, GaussianPair):
        mu, rate = pair.gaussian_mu(), xp.minimum(inflated(pair.rate, RATE_UNITS * UNIT), 1.0)
        if not _validate.is_traced(rate) and np.all(rate == 1.0):
            return gaussian_divergence(mu, order)
        backwards = not _validate.is_traced(pair.reverse) and bool(np.all(pair.reverse > 0.5))
        return sampled_gaussian_divergence(mu, rate, order, "add" if backwards else "remove")
    if isinstance(pair, MixturePair):
        return mixture_divergence(pair, order)
    if isinstance(pair, SampledPair) and isinstance(pair.inner, MixturePair):
        return mixture_divergence(pair.inner, order, pair.rate, pair.rest)
    if isinstance(pair, BoundedLoss):
        return pair.divergence(order)
    return table_divergence(pair, order) if isinstance(pair, Tabulated) else _from_tails(pair, order)


def _log_moment(pair: Pair, order: Array) -> Array:
    """A bound of log E_Q[(P/Q)^order], on a sample of few outcomes from their own divergence."""
    if isinstance(pair, SampledPair) and isinstance(pair.inner, Tabulated):
        return pair.mixed_moment((order - 1.0) * table_divergence(pair.inner, order))
    return pair.log_moment(order)


def _is_curve(part: object) -> bool:
    return isinstance(part, CurvePair)


@np.errstate(all="ignore")
def _from_tails(pair: Pair, order: ArrayLike) -> Array:
    """From the pair's tails, or ``log_moment`` if that is less; it also bounds what the tails cannot show."""
    _, a = floats(order)
    moments = [_log_moment(pair, a + s) for s in (0.0, *_TILTS)]
    moments = xp.stack(xp.broadcast_arrays(*moments), -1)
    moments = xp.where(xp.isnan(moments), np.inf, moments)
    shape = np.broadcast_shapes(moments.shape[:-1], *settings_shapes(pair))
    pairs, a, moments = flattened((pair, a, Row(moments)), shape, xp)
    moments = moments.values
    tilts = np.broadcast_to(np.asarray(_TILTS), (a.shape[0], len(_TILTS)))
    guarantees = any(map(_is_curve, jax.tree.leaves(pair, is_leaf=_is_curve)))
    excess = log_excess(pairs, a, tilts, moments[:, 1:], guarantees)
    value = inflated(xp.minimum(xp.logaddexp(0.0, excess), moments[:, 0]) / (a - 1.0), 1e-14)
    good = (a > 1) & (a < np.inf) & ~xp.isnan(value)
    for leaf in jax.tree.leaves(pairs):
        good &= ~xp.isnan(leaf.reshape(good.size, -1)).any(-1)
    return xp.where(good, value, np.inf).reshape(shape)
