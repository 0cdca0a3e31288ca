"""The Rényi divergence of a pair without a closed formula, from its tails or a bound of its moments."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.host import floats
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import inflated
from jaxacct._numerics.rows import Row, flattened, settings_shapes
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.renyi.tails import log_excess

Curve = Callable[..., Array]

_TILTS = (1.0, 4.0, 16.0, 64.0, 256.0)


def largest(curves: list[Array]) -> Array:
    """The largest of curves of the same orders: the worst of several directions."""
    return functools.reduce(xp.maximum, curves)


def unknown(order: Array) -> Array:
    """The bound of log E_Q[(P/Q)^order] where none is known."""
    return xp.full_like(order, np.inf)


@np.errstate(all="ignore")
def doubled(log_moment: Array) -> Array:
    """log(1 + 2 (A - 1)) of log A, rounded up; where A is above e, log(2 A)."""
    small = log1p(2.0 * xp.expm1(xp.minimum(log_moment, 1.0)))
    return inflated(xp.where(log_moment > 1.0, log_moment + math.log(2.0), small), 1e-12)


@np.errstate(all="ignore")
def sampled_moment(inner: Curve, rate: Array, order: Array) -> Array:
    """A bound of log E_Q[(P/Q)^order] of a sampled pair: log(1 + rate (A - 1)), A that of the pair itself."""
    xp, c, rate = floats((order - 1.0) * inner(order), rate)
    small = log1p(rate * xp.expm1(xp.minimum(c, 30.0)))
    value = inflated(xp.where(c > 30.0, xp.logaddexp(0.0, xp.log(rate) + c), small), 1e-12)
    return xp.where(rate == 0.0, 0.0, value)


@np.errstate(all="ignore")
def from_pair(pair: Pair, order: ArrayLike, log_moment: Curve) -> Array:
    """From the sampled pair's tails, or ``log_moment`` if that is less; it also bounds what the tails cannot show."""
    _, a = floats(order)
    moments = [log_moment(a + s) for s in (0.0, *_TILTS)]
    moments = xp.stack(xp.broadcast_arrays(*moments), -1)
    moments = xp.where(xp.isnan(moments), np.inf, moments)
    shape = np.broadcast_shapes(moments.shape[:-1], *settings_shapes(pair))
    pairs, a, moments = flattened((pair, a, Row(moments)), shape, xp)
    moments = moments.values
    tilts = np.broadcast_to(np.asarray(_TILTS), (a.shape[0], len(_TILTS)))
    excess = log_excess(pairs, a, tilts, moments[:, 1:])
    value = inflated(xp.minimum(xp.logaddexp(0.0, excess), moments[:, 0]) / (a - 1.0), 1e-14)
    good = (a > 1) & (a < np.inf) & ~xp.isnan(value)
    for leaf in jax.tree.leaves(pairs):
        good &= ~xp.isnan(leaf.reshape(good.size, -1)).any(-1)
    return xp.where(good, value, np.inf).reshape(shape)
