"""The privacy curve of mu-GDP, N(mu, 1) against N(0, 1), rounded upwards; proof: docs/proofs/gdp-curve.md."""

from __future__ import annotations

import functools
import math

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, Real, array_module, erfc, xp
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.roots import crossing
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs import one_parameter as _parametric

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)

# Double-exponential nodes for integrals over (0, inf): t = exp(x - exp(-x)), dt = t (1 + exp(-x)) dx.
_X = np.linspace(-3.9, 4.3, 161)
_NODES = np.exp(_X - np.exp(-_X))
_WEIGHTS = _NODES * (1 + np.exp(-_X)) * (_X[1] - _X[0])
_ROWS = 256
_FARTHEST = 1e100
_WIDE = 8.0  # mu over max(a, 1) from which on the difference of two integrals loses nothing


def _mills(a: Array, mu: Array) -> Array:
    """The integral of exp(-a t - t^2 / 2) (1 - exp(-mu t)) over t > 0, for a >= -1; nothing in it cancels.

    ``mu`` is infinite or at most ``_WIDE`` max(a, 1): docs/proofs/gdp-curve.md says how good the rule is.
    """
    xp = array_module(a, mu)
    if xp is np and a.size > _ROWS:  # tables that stay in the cache
        rows = [x.ravel() for x in np.broadcast_arrays(a, mu)]
        parts = [_mills(*(x[at : at + _ROWS] for x in rows)) for at in range(0, rows[0].size, _ROWS)]
        return np.concatenate(parts).reshape(np.broadcast_shapes(a.shape, mu.shape))
    a, mu = xp.asarray(a)[..., None], xp.asarray(mu)[..., None]
    scale = 1 / xp.maximum(a, 1.0)
    t = _NODES * scale
    terms = xp.exp(-a * t - t * t / 2) * -xp.expm1(-mu * t)
    return xp.sum(_WEIGHTS * scale * terms, axis=-1)


@np.errstate(all="ignore")
def log_delta_bounds(mu: Real, epsilon: Real) -> tuple[Array, Array]:
    """``(lower, upper)`` of log delta(epsilon) of mu-GDP, for mu > 0 and epsilon >= 0, both finite; float64."""
    xp = array_module(mu, epsilon)
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # delta = E[(1 - exp(epsilon - L))_+] = phi(a) * mills. For a < -1 the mass is not in a tail and the
    # textbook difference Q(a) - phi(a) Q(b) / phi(b) loses nothing, because mu > 2 there.
    far = xp.maximum(a, -1.0)
    wide = mu > _WIDE * xp.maximum(far, 1.0)
    mills = _mills(far, xp.where(wide, np.inf, mu))
    bulky = xp is not np or bool(np.any(a < -1.0))
    rest: Real = 0.0
    if bulky or np.any(wide):
        rest = _mills(xp.maximum(b, 0.0), xp.full_like(b, np.inf))
        mills = xp.where(wide, mills - rest, mills)
    value = -far * far / 2 - _LOG_SQRT_2PI + xp.log(mills)
    if bulky:
        near = xp.minimum(a, -1.0)
        phi = xp.exp(-near * near / 2 - _LOG_SQRT_2PI)
        mass = 1.0 - 0.5 * erfc(-near * 0.5**0.5)
        value = xp.where(a >= -1, value, xp.log(mass - phi * rest))
    # Counted in docs/proofs/gdp-curve.md: a is a difference of numbers of size b, so its rounding moves a^2 / 2.
    rounding = UNIT * (768.0 + 8.0 * xp.abs(value) + 16.0 * (xp.abs(a) + 1.0) * b)
    # Of a larger a no square is a number: delta <= Q(a) <= exp(-a^2 / 2).
    upper = xp.where(a > _FARTHEST, -0.49 * _FARTHEST**2, xp.minimum(value + rounding, 0.0))
    return xp.where(a > _FARTHEST, -np.inf, value - rounding), upper


def _log_delta(mu: Array, epsilon: Array) -> Array:
    """The upper bound alone."""
    return log_delta_bounds(mu, epsilon)[1]


@np.errstate(all="ignore")
def log_inverse(mu: Array, log_delta: Array) -> Array:
    """An epsilon >= 0 with log delta(epsilon) <= ``log_delta`` for mu > 0: the smallest, rounded up; float64."""

    def above(epsilon: Array) -> tuple[Array, Array]:
        excess = _log_delta(mu, epsilon) - log_delta
        return ~(excess <= 0.0), excess

    # delta(epsilon) <= Q(z) <= exp(-z^2 / 2) / 2 at epsilon = mu^2 / 2 + mu z, so `high` starts on the safe
    # side and only ever moves to points whose rounded-up delta is small enough.
    high = inflated(mu * mu / 2 + mu * xp.sqrt(-2 * log_delta), 1e-12)
    zero = xp.zeros_like(high)
    _, high = crossing(above, zero, high)
    return xp.where(_log_delta(mu, zero) <= log_delta, 0.0, high)


_delta = functools.partial(_parametric.delta_of, log_delta=_log_delta)
_epsilon = functools.partial(_parametric.epsilon_of, from_log=log_inverse)


@in_float64
def gdp_delta(mu: ArrayLike, epsilon: ArrayLike) -> Array:
    """The delta at which mu-GDP implies (epsilon, delta)-DP, rounded up (relative excess about 1e-13).

    delta = Phi(-epsilon / mu + mu / 2) - exp(epsilon) Phi(-epsilon / mu - mu / 2) (Dong, Roth, Su 2022,
    Corollary 2.13), evaluated as an integral of a positive function so that small mu and deep tails keep
    their digits. Numbers >= 0 of shapes that broadcast; float64, NumPy's outside a trace; 1 for invalid traced values.
    """
    return _parametric.answered(_delta, mu=mu, epsilon=epsilon)


@in_float64
def gdp_epsilon(mu: ArrayLike, delta: ArrayLike) -> Array:
    """The smallest epsilon at which mu-GDP implies (epsilon, delta)-DP, rounded up (so gdp_delta <= delta).

    float64 of the broadcast shape, NumPy's outside a trace; infinite for invalid traced values.
    """
    return _parametric.answered(_epsilon, mu=mu, delta=delta)
