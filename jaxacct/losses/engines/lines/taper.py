"""A smooth weight that removes far outputs of a normal law; the mass removed is charged.

Each output t is kept with probability g(t), the same under P and Q. With D the hockey stick of the composed measures
g P and g Q, D(epsilon) <= delta(epsilon) <= D(epsilon) + sum_k T_k E_{P_k}[1 - g_k] (docs/proofs/contour.md, lemma 7).

g(t) = Phi((cut - t) / s), the normal distribution function, is entire and falls off faster than any power of R grows;
|g(x + i y)| <= exp(y^2 / (2 s^2)) g(x), and under N(m, 1), E[1 - g] = P(N(0, 1) > (cut - m) / (1 + s^2)^(1/2)).
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, erfc, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.losses.engines.lines.normal_losses import NormalLoss

# s: a smaller one asks for more points, a larger one lets large tilts find a second mode beyond the cut.
_SOFT = 0.25
_SPREAD = (1.0 + _SOFT**2) ** 0.5
_NEAR = 9.0  # from which on log Phi is 0 up to 1e-18
_FAR = -20.0  # where the asymptotic series takes over
_SERIES = tuple(float(x) for x in np.cumprod(-np.arange(1.0, 19.0, 2.0)))  # -1, 3, -15, ...

HIDDEN = 1e-307
"""More than what three numbers lose that underflow to 0: see ``left_out``, where of k terms k + 1 do at most."""

_LEAST_LEFT_OUT = -700.0  # log of the least probability that is left out

HALF_LOG_2PI = 0.9189385332046728

CURVATURE = 1.0 + 1.0 / _SOFT**2
"""The log modulus of the normal density times the taper grows by half this, times y^2, off the real line."""


def log_taper(t: Array, cut: Array) -> Array:
    """log g(t), within 12 units of itself and 14 (quadrature.md, lemma 5); ``cut`` broadcasts, inf means no taper."""
    x = (cut - t) / _SOFT
    inner = xp.maximum(x, _FAR)
    half = 0.5 * erfc(xp.where(inner < _NEAR, xp.abs(inner) * 0.5**0.5, np.inf))
    near = xp.where(inner > 0, log1p(-half), xp.log(half))
    far = xp.minimum(x, _FAR)
    # Nine terms: the tenth is below 2e-16 from here on.
    inverse, series = 1.0 / far**2, xp.zeros_like(far)
    for factor in reversed(_SERIES):
        series = (series + factor) * inverse
    return xp.where(x < _FAR, -0.5 * far**2 - xp.log(-far) - HALF_LOG_2PI + xp.log1p(series), near)


def log_taper_above(t: Array, cut: Array) -> Array:
    """An upper bound of log g(t): Phi(x) <= exp(-x^2 / 2) for x < 0."""
    return -0.5 * xp.minimum((cut - t) / _SOFT, 0.0) ** 2


def log_taper_slope(t: Array, cut: Array) -> Array:
    """The derivative of :func:`log_taper_above`, a concave function."""
    return xp.minimum((cut - t) / _SOFT, 0.0) / _SOFT


def steepened(t: Array, cut: Array) -> Array:
    """Where -x + d/dx log g(x) is surely as low as -t: at t, or before it where the taper falls off.

    The derivative of log Phi at -y is at least y, so that of log g is at most (cut - x) / s^2, and at most 0.
    """
    steep = 1.0 / _SOFT**2
    return xp.minimum(t, (t + cut * steep) / (1.0 + steep))


def placed_cut(loss: NormalLoss, log_share: Array) -> Array:
    """A cut that leaves out about exp(``log_share``) of a run; inf for `add`, whose losses are bounded."""
    seen = loss.weights > 0
    log_weights = xp.log(xp.where(seen, loss.weights, 1.0))
    cut = xp.where(seen, loss.shifts + reach_of(log_share[..., None] - log_weights), 0.0).max(-1)
    return xp.where((loss.reverse > 0.5) | ~(cut < np.inf), np.inf, cut)


def left_out(loss: NormalLoss, cut: Array) -> Array:
    """An upper bound of E_P[1 - g] for one run, by P(N(0, 1) > x) <= exp(-x^2 / 2) / 2 for x >= 0."""
    number = loss.shifts.shape[-1]
    far = xp.where(cut < np.inf, cut, 1e9)[..., None]
    x = xp.maximum(far - loss.shifts, 0.0) / _SPREAD
    tails = inflated(0.5 * xp.exp(deflated(-0.5 * x * x, 1e-14)), 1e-12)
    return xp.where(cut < np.inf, inflated((loss.weights * tails).sum(-1), 1e-12) + HIDDEN * max(number - 1, 1), 0.0)


def reach_of(log_mass: Array) -> Array:
    """How far beyond the mean of a normal law a taper may leave out about exp(``log_mass``).

    inf where that is next to what underflow hides, of which no part may be left out.
    """
    return xp.where(log_mass < _LEAST_LEFT_OUT, np.inf, _SPREAD * xp.sqrt(2.0 * xp.maximum(-log_mass, 0.0)))
