"""Mixtures of normal laws: the logarithm of their likelihood ratio to the base, its inverse, and their tails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from jaxacct._numerics.arrays import Array, column, iterated, logsumexp, shared, stopped, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.gaussian import Z, normal_tails

_ITERATIONS = 128


@shared
def log_ratio(x: Array, s: Array, w: Array, noise: Array) -> tuple[Array, Array]:
    """M(x) = log sum_i w_i exp((s_i x - s_i^2 / 2) / noise^2) and its slope at x ``(..., n)``, s and w ``(..., k)``."""
    s, w, noise = s[..., None, :], w[..., None, :], noise[..., None]
    y = xp.where(w > 0, (s * x[..., None] - 0.5 * s**2) / noise**2, 0.0)
    logs = xp.where(w > 0, y + xp.log(xp.where(w > 0, w, 1.0)), -np.inf)
    far = logsumexp(logs)
    # Next to 0, where the weights of large terms are small.
    near = log1p((w * xp.expm1(xp.minimum(y, 1.0))).sum(-1))
    slope = (xp.exp(logs - far[..., None]) * s).sum(-1) / noise[..., 0] ** 2
    return xp.where((y.max(-1) < 1.0) & (near > -0.5), near, far), slope


Law: TypeAlias = tuple[Array, Array, Array]
"""Sensitivities and weights, ``(..., k)``, and noise, ``(..., 1)``."""


def outcome_of(loss: Callable[..., tuple[Array, Array]], goal: Array, law: Law, accepted: float) -> Array:
    """The x at which ``loss(x, *law)``, M(x) or M(x) - M(-x), is ``goal``.

    Newton's method between two outcomes that enclose it. The residual is checked: an outcome whose loss is off by more
    than ``accepted`` units of the terms' size is NaN, so that bounds fail closed.
    """
    # The solution is a constant to derivatives: those of one more Newton step are the right ones.
    target, (s, w, noise) = stopped((goal, law))
    moving = xp.where(w > 0, s, 0.0)
    lines, square = (column((w * part).sum(-1)) for part in (moving, moving**2))
    flattest = column(xp.where(moving > 0, moving, np.inf).min(-1))
    # M lies above the weighted mean of its lines (Jensen), and where x < 0 below the flattest of them.
    low = (1.0 + 1e-7) * xp.minimum(target, 0.0) * noise**2 / flattest
    high = xp.maximum((target * noise**2 + 0.5 * square) / lines, low)

    def newton(state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, low, high, value, slope = state
        low, high = xp.where(value <= target, x, low), xp.where(value >= target, x, high)
        step = x - (value - target) / slope
        x = xp.where((step > low) & (step < high) | (step == x), step, 0.5 * (low + high))
        return (x, low, high, *loss(x, s, w, noise))

    def finished(state: tuple[Array, ...]) -> Array:
        x, low, high, value, _ = state
        close = ~(xp.abs(value - target) > accepted * roundings(x, target, s, noise))  # NaN is
        return close | (high - low <= 2.0 * UNIT * xp.abs(high))

    x = iterated(newton, (high, low, high, *loss(high, s, w, noise)), finished, _ITERATIONS)[0]
    value, slope = loss(x, *law)
    x = x - (value - goal) / slope
    off = xp.abs(loss(x, *law)[0] - goal)
    return xp.where(off <= accepted * roundings(x, goal, s, noise), x, np.nan)


def roundings(x: Array, goal: Array, s: Array, noise: Array) -> Array:
    """A unit of the size of a loss's terms: a relative error of x moves the loss by that of its steepest line."""
    largest = s.max(-1)[..., None]
    return UNIT * (1.0 + xp.abs(goal) + largest * (xp.abs(x) + largest) / noise**2)


def mixture_tails(x: Array, s: Array, w: Array, noise: Array) -> tuple[Array, Array]:
    """The probabilities of sum_i w_i N(s_i, noise^2) above and below x ``(..., n)``."""
    sides = normal_tails((x[..., None] - s[..., None, :]) / noise[..., None])
    above, below = ((w[..., None, :] * side).sum(-1) for side in sides)
    return above, below


def survey_points(s: Array, noise: Array) -> Array:
    """Outcomes for every component, one component after another."""
    return flat(s[..., None] + noise[..., None] * Z)


def flat(x: Array) -> Array:
    """The last two axes as one."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])
