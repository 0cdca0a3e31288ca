"""Pure, Rényi, zCDP and GDP costs of a query given as an upper `PLD`.

A PLD is taken at its word: P gives loss l_i the mass p_i, Q gives it q_i = p_i exp(-l_i), each good to a few units, and
there is mass at infinity on P's side (``infinity_mass``) and on Q's (1 - sum q_i) that no other loss has. A difference
1 - sum q_i within the sum's own rounding is read as 0. All notions go down under post-processing, so a law that
dominates the query costs at least as much, and each cost is the larger one of the two directions.

A lattice law of a continuous mechanism has an atom at infinity, if only of 1e-17, and no epsilon, rho or mu at all:
such a query is refused, and has its place in `gdp_residue` or `approximate_zcdp`, or is given as the mechanism itself.
So is a PLD whose arrays a float32 program has rounded, because masses below 1e-38 are lost there: a compiled step
should close over the PLD (NumPy's float64 survives), not take it as an argument.

zCDP asks for the supremum over orders 1 + t of K(t) / (t (1 + t)), with K(t) = log E_P[exp(t L)] convex and K(0) = 0.
Between two t K lies below its chord A + B t, A <= 0, and (A + B t) / (t (1 + t)) has one maximum, in closed form; below
the first t the supremum is at most K(t) / t there, and above the last one, T, at most the largest loss over 1 + T.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct._types import PyTree
from jaxacct.filters.given_laws import with_missing_mass
from jaxacct.losses.compare.gaussian_order import dominating_mu
from jaxacct.losses.curves.pld import PLD

_TIMES = 2.0 ** np.arange(-10.0, 14.01, 0.125)  # orders less 1 at which K is computed


class _Law(NamedTuple):
    """``losses`` (n,), ``p`` and ``q`` (..., n), atoms ``infinite`` (P's) and ``singular`` (Q's) (...), ``doubt``."""

    losses: np.ndarray
    p: Array
    q: Array
    infinite: Array
    singular: Array
    doubt: float


def _law(pld: PLD) -> _Law:
    """The law that the arrays state; NaN masses where they state none."""
    if pld.bound != "upper":
        raise ValueError(f"query must be an upper PLD (a guarantee), got bound {pld.bound!r}")
    losses = pld.grid.losses
    doubt = EPS * (16.0 + 4.0 * losses.size + 4.0 * float(np.abs(losses).max()))
    wide = all(getattr(x, "dtype", np.float64) == np.float64 for x in (pld.masses, pld.infinity_mass))
    xp, p, infinite = floats(pld.masses, pld.infinity_mass)
    if not wide:
        # What a float32 program may have rounded off, and flushed to 0 anywhere, however large the loss.
        p = inflated(p, 2.0**-23)
        infinite = inflated(infinite, 2.0**-23) + (p.shape[-1] + 1) * 2.0**-126
    p, infinite = with_missing_mass(p, infinite, doubt)
    q = p * xp.exp(-losses)
    return _Law(losses, p, q, infinite, 1.0 - q.sum(-1), doubt)


def _of_law(cost: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """``cost`` of a `_Law` as a function of an upper PLD; raises ValueError for a bound from below."""

    @in_float64
    @hosted
    @functools.wraps(cost)
    def of_pld(pld: PLD, *more: Array) -> PyTree:
        return cost(_law(pld), *more)

    return of_pld


def _atomless(law: _Law, cost: Array) -> Array:
    """``cost`` where neither side has an atom at infinity, inf where one has, NaN where the law is none."""
    xp = array_module(law, cost)
    fits = (law.infinite == 0) & (law.singular <= law.doubt)
    return xp.where(fits | xp.isnan(law.p[..., 0]), cost + 0.0 * law.p[..., 0], np.inf)


def _largest(law: _Law) -> Array:
    xp = array_module(law)
    seen = xp.where(law.p > 0, xp.abs(law.losses), xp.where(law.p == 0, 0.0, np.nan))
    return inflated(seen.max(-1), 4.0 * EPS)


@_of_law
def pure_of_law(law: _Law) -> Array:
    """The largest loss of either direction, rounded up; inf where it is infinite, NaN for what is no law."""
    return _atomless(law, _largest(law))


def _log_moments(law: _Law, times: Array | np.ndarray) -> Array:
    """K(t) of both directions, rounded up, shape (2, times, ...)."""
    xp, reach = array_module(law), np.abs(law.losses).max()

    def one(t: Array) -> Array:
        found = []
        for masses, sign in ((law.p, 1.0), (law.q, -1.0)):
            total = masses.sum(-1)
            logs = xp.log(masses) + sign * t * law.losses
            large = logsumexp(xp.where(masses == 0, -np.inf, logs)) - xp.log(total)
            # Where t L is small its mean is what counts, and log1p keeps the digits of it.
            each = masses * xp.expm1(xp.clip(sign * t * law.losses, -1.0, 1.0))
            small = log1p((each.sum(-1) + law.doubt * xp.abs(each).sum(-1)) / total)
            found.append(xp.where(t * reach <= 1.0, small, large + law.doubt * (4.0 + t * reach)))
        return xp.stack(found)

    found = np.stack([one(t) for t in times]) if xp is np else jax.lax.map(one, times)
    return xp.moveaxis(found, 0, 1)


@_of_law
def renyi_of_law(law: _Law, orders: Array) -> Array:
    """The Rényi divergence of either direction at ``orders`` > 1, rounded up, shape ``batch + orders.shape``."""
    xp, times = array_module(law), floats(orders)[1].reshape(-1) - 1.0
    each = inflated(_log_moments(law, times).max(0) / times.reshape(-1, *([1] * law.infinite.ndim)), 4.0 * EPS)
    found = _atomless(law, xp.maximum(each, 0.0))
    return xp.moveaxis(found, 0, -1).reshape((*law.infinite.shape, *np.shape(orders)))


def _mu(law: _Law) -> Array:
    up = 1.0 + law.doubt
    xp = array_module(law)
    none = xp.zeros_like(law.p[..., :1])
    found = dominating_mu(xp.concatenate([law.p * up, none], -1), xp.concatenate([law.q * up, none], -1), np.zeros(()))
    return found + 0.0 * law.p[..., 0]


@_of_law
def gaussian_of_law(law: _Law) -> Array:
    """The least mu of a Gaussian that dominates the law, rounded up (`losses.compare.gaussian_order.mu_of`)."""
    return _atomless(law, _mu(law))


def _rho(law: _Law) -> Array:
    """The rho of the law without its atoms, either side's masses scaled to sum up to 1."""
    xp = array_module(law)
    shift = xp.log(law.p.sum(-1)) - xp.log(law.q.sum(-1))
    # Each side is scaled by itself, which moves every loss by as much.
    largest = _largest(law) + xp.abs(shift) + law.doubt
    t = _TIMES
    k = _log_moments(law, t)
    along = t.reshape(-1, *([1] * shift.ndim))
    # Under P the loss of the scaled law is l - log(sum p) + log(sum q), under Q it is that with the other sign.
    k = k + xp.stack([-along * shift, along * shift])
    start, stop, low, high = along[:-1], along[1:], k[:, :-1], k[:, 1:]
    slope = (high - low) / (stop - start)
    offset = -xp.minimum(low - slope * start, 0.0)
    peak = (offset + xp.sqrt(offset * offset + offset * slope)) / xp.where(slope > 0, slope, 1.0)
    at = xp.clip(xp.where(slope > 0, peak, start), start, stop)
    chord = (low + slope * (at - start)) / (at * (1.0 + at))
    swept = xp.maximum(chord.max((0, 1)), k[:, 0].max(0) / t[0])
    swept = xp.maximum(swept, largest / (1.0 + t[-1]))
    # What eps-DP and mu-GDP say of the same law.
    return inflated(xp.minimum(swept, largest * xp.tanh(largest / 2)), 2.0**-40)


@_of_law
def concentrated_of_law(law: _Law) -> Array:
    """The least rho of zCDP, rounded up by less than a four-hundredth; see `pure_of_law`."""
    xp, mu = array_module(law), _mu(law)
    return _atomless(law, xp.minimum(_rho(law), inflated(mu * mu / 2, 2.0**-40)))


@_of_law
def approximate_of_law(law: _Law) -> tuple[Array, Array]:
    """(rho, delta) of delta-approximate rho-zCDP, rounded up: delta is the larger one of the atoms at infinity.

    Without its atoms a law is one of two probabilities that need no atoms, each with at least 1 - delta of the whole.
    """
    xp = array_module(law)
    singular = xp.where(law.singular > law.doubt, law.singular + law.doubt, 0.0)
    delta = inflated(xp.maximum(law.infinite, singular), 8.0 * EPS)
    return _rho(law), xp.where(xp.isnan(law.p[..., 0]), np.nan, delta)
