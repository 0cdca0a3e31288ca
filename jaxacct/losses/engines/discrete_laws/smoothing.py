"""Hockey sticks enclosed by those of a composition with one more, very small Gaussian mechanism.

The transform of a discrete law does not decay, so its inversion has no end. Let one more run, of N(s, 1) against
N(0, 1), come with it: its transform exp(s^2 z (z + 1) / 2) ends the integral at some |w| = 8 / s. With X = exp(-loss of
that run), a log-normal number of mean 1, the hockey stick with it is

    D(gamma) = E[H(gamma X)],        H(gamma) that of the composition without it.

*Above*: H <= D, because dropping an output is post-processing (or by Jensen, as H is convex in gamma).

*Below*: H is convex, so it lies below its chords between the points gamma x_j, x_j = e^(j r), and beyond the last one
it is no larger than there. With h_j the piecewise linear function that is 1 at x_j and 0 at the other points,

    D(gamma) <= sum_j w_j H(gamma x_j) + E[H(gamma X); X < x_-m],        w_j = E[h_j(X)].

With H <= D at all points but j = 0, and Chernoff's bound for the rest, that is a lower bound of H(gamma):

    w_0 H(gamma) >= D(gamma) - sum_(j != 0) w_j D(gamma x_j) - M(theta) gamma^-theta P(N > m r / s - s / 2 - theta s),

N standard normal and M(theta) = E[e^(theta L)] of all runs, the small one included. It is linear in D, so it is read
off the same transform with each term multiplied once. Both sides are off by about s^2 gamma^2 H'' (r = 1.75 s), and
the bounds 1.4 times that apart.

*Weights*: w_j = A_j - A_(j + 1) with A_j the mean of P(X > x) over x in [x_(j - 1), x_j]; with x = e^(-s^2 / 2 + s n)
that is the mean of P(N(0, 1) > n) over n in [(j - 1) r / s + s / 2, j r / s + s / 2] with weights e^(s n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import array_module, erfc
from jaxacct._numerics.rounding import inflated

__all__ = ["Smoothing", "smoothing"]

Array = Any  # NumPy's or JAX's

_STEP = 1.75  # r / s
_POINTS = 5  # m
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(14)  # on intervals of 1.75 standard deviations: to the last digit
_ROUNDING = 1e-13  # of a weight
_WIDEST = 8.0  # s up to which the above two hold; beyond, nothing is left of a lower bound anyway


class Smoothing(NamedTuple):
    """How the lower bound of H follows from values of D; ``J`` is the number of points but the middle one.

    Attributes:
        ahead: j r, shape ``(..., J)``.
        owed: w_j for these points, rounded up.
        rest: what multiplies M(theta) gamma^-theta, rounded up; shape ``(...)``.
        kept: w_0, rounded up.
    """

    ahead: Array
    owed: Array
    rest: Array
    kept: Array


def _above(x: Array) -> Array:
    """P(N(0, 1) > x)."""
    return 0.5 * erfc(x * 0.5**0.5)


def smoothing(s: Array, theta: Array) -> Smoothing:
    """See :class:`Smoothing`; ``s`` > 0 and ``theta`` of one shape."""
    xp = array_module(s)
    j = np.arange(-_POINTS, _POINTS + 1)
    # Means over the 2 m intervals between the points; everything is above the first of them, nothing above the last.
    middle = _STEP * (j[1:] - 0.5)
    n = (middle[:, None] + 0.5 * _STEP * _NODES) + 0.5 * s[..., None, None]
    weight = _WEIGHTS * xp.exp(s[..., None, None] * 0.5 * _STEP * _NODES)
    means = (weight * _above(n)).sum(-1) / weight.sum(-1)
    one = xp.ones_like(means[..., :1])
    means = xp.concatenate([one, means, 0.0 * one], -1)
    weights = means[..., :-1] - means[..., 1:] + _ROUNDING
    some = np.flatnonzero(j)
    rest = inflated(_above(_POINTS * _STEP - 0.5 * s - theta * s), 1e-12) + 1e-300
    rest = xp.where(s <= _WIDEST, rest, np.inf)
    return Smoothing(s[..., None] * (_STEP * j[some]), weights[..., some], rest, weights[..., _POINTS])
