"""The pair of replaced records of a Gaussian whose sensitivity is random."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, column, iterated, logsumexp, stopped, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, mirrored
from jaxacct.mechanisms.pairs.gaussian import LOG_WEIGHT, REACH, Z, normal_tails
from jaxacct.mechanisms.pairs.mixture import roundings
from jaxacct.mechanisms.parameters import RATE_UNITS

_ITERATIONS = 128
_ACCEPTED = 128.0  # roundoffs of the terms' size by which a solved loss may be off


@mechanism
class AntipodalMixturePair(Pair):
    """P = sum_i w_i N(s_i, s^2) against Q = sum_i w_i N(-s_i, s^2); all s_i >= 0.

    With M(x) = log sum_i w_i exp((s_i x - s_i^2 / 2) / s^2), increasing, the loss at an outcome x is M(x) - M(-x): odd
    and increasing. Its inverse is found by Newton's method between two outcomes that enclose it; the residual is
    checked, and an outcome that is not accurate becomes NaN (so that bounds fail closed).

    Attributes:
        noise: s; float64.
        sensitivities: tuple of k values s_i >= 0, not all 0.
        weights: tuple of k values w_i >= 0 whose sum is 1.
    """

    noise: Array
    sensitivities: tuple[Array, ...]
    weights: tuple[Array, ...]

    def _components(self) -> tuple[Array, Array]:
        """Sensitivities and weights, shape ``(..., k)``."""
        s, w = (xp.stack(xp.broadcast_arrays(*values), -1) for values in (self.sensitivities, self.weights))
        return s, w / w.sum(-1, keepdims=True)

    def _outcome(self, losses: Array, s: Array, w: Array) -> Array:
        """The outcome of losses >= 0."""
        noise = column(self.noise)
        # The solution is a constant to derivatives: those of one more Newton step are the right ones.
        x = _solved(*(stopped(value) for value in (losses, s, w, noise)))
        value, slope = _loss(x, s, w, noise)
        better = x - (value - losses) / slope
        off = xp.abs(_loss(better, s, w, noise)[0] - losses)
        return xp.where(off <= _ACCEPTED * roundings(better, losses, s, noise), better, np.nan)

    def tails(self, losses: Edges) -> Tails:
        noise = column(self.noise)
        s, w = self._components()
        x = self._outcome(xp.abs(losses) + 0.0 * noise, s, w)
        sums = []
        for sign in (-1.0, 1.0):
            sides = normal_tails((x[..., None] + sign * s[..., None, :]) / noise[..., None])
            sums += [(w[..., None, :] * side).sum(-1) for side in sides]
        largest = s.max(-1)[..., None]
        larger = xp.minimum((xp.abs(x) + largest) / noise, REACH + 2.0)
        error = UNIT * (48.0 + 8.0 * s.shape[-1] + 8.0 * larger**2)
        return mirrored(Tails(*sums, error=error), losses < 0.0)

    def survey(self) -> Survey:
        noise = column(self.noise)
        s, w = self._components()
        flat = lambda x: x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])  # noqa: E731
        x = flat(s[..., None] + noise[..., None] * Z)
        log_masses = xp.log(w)[..., None] + LOG_WEIGHT
        return Survey(_loss(x, s, w, noise)[0], flat(log_masses))

    def gaussian_mu(self) -> PerSetting:
        """A hockey stick is convex in the pair: that of the largest sensitivity is above it at every epsilon."""
        return inflated(2.0 * self._components()[0].max(-1) / self.noise, 8.0 * UNIT)

    def log_moment(self, order: PerSetting) -> PerSetting:
        """As for ``AntipodalGaussianPair``; the base is what the components of sensitivity 0 make up."""
        s, w = self._components()
        once = 0.5 * (order * (order - 1.0))[..., None] * (s / self.noise[..., None]) ** 2
        base = (order - 1.0) * xp.log(xp.where(s == 0.0, w, 0.0).sum(-1))
        apart, from_base = logsumexp(xp.log(w) + 4.0 * once), logsumexp(xp.log(w) + once) - base
        return (1.0 + 1e-12) * xp.minimum(apart, xp.where(xp.isnan(from_base), np.inf, from_base)) + 1e-14

    def loss_error(self) -> PerSetting:
        """The residual that ``_outcome`` accepts, at outcomes that float64 can weigh."""
        largest = self._components()[0].max(-1)
        size = largest * (REACH * self.noise + 2.0 * largest) / self.noise**2
        # Weights, of both M(x) and M(-x), are off by the rate's units, and by 2 k + 4 of their sums.
        weights = 2.0 * (RATE_UNITS + 2.0 * len(self.weights) + 4.0)
        return UNIT * (128.0 + weights + 3.0 * _ACCEPTED * (1.0 + size))


def _side(x: Array, s: Array, w: Array, noise: Array) -> tuple[Array, Array]:
    """M(x) of the class's docstring and its slope at x ``(..., n)``, for components ``(..., k)``."""
    s, w, noise = s[..., None, :], w[..., None, :], noise[..., None]
    y = xp.where(w > 0, (s * x[..., None] - 0.5 * s**2) / noise**2, 0.0)
    logs = xp.where(w > 0, y + xp.log(xp.where(w > 0, w, 1.0)), -np.inf)
    far = logsumexp(logs)
    # Next to 0, where the weights of large terms are small.
    near = log1p((w * xp.expm1(xp.minimum(y, 1.0))).sum(-1))
    slope = (xp.exp(logs - far[..., None]) * s).sum(-1) / noise[..., 0] ** 2
    return xp.where((y.max(-1) < 1.0) & (near > -0.5), near, far), slope


def _loss(x: Array, s: Array, w: Array, noise: Array) -> tuple[Array, Array]:
    """M(x) - M(-x) and its slope."""
    (up, rise), (down, fall) = _side(x, s, w, noise), _side(-x, s, w, noise)
    return up - down, rise + fall


def _solved(goal: Array, s: Array, w: Array, noise: Array) -> Array:
    """The root x >= 0 of the loss, or whatever there is after so many steps."""
    moving = (w * s).sum(-1)[..., None]
    # Jensen: M is above the weighted mean of its lines, and M(-x) < 0, so the root lies left of that line's.
    high = xp.maximum(goal * noise**2 + 0.5 * (w * s**2).sum(-1)[..., None], 0.0) / moving

    def newton(state: tuple[Array, ...]) -> tuple[Array, ...]:
        x, low, high, value, slope = state
        low, high = xp.where(value <= goal, x, low), xp.where(value >= goal, x, high)
        step = x - (value - goal) / slope
        inside = (step > low) & (step < high)
        x = xp.where(inside, step, 0.5 * (low + high))
        return (x, low, high, *_loss(x, s, w, noise))

    def finished(state: tuple[Array, ...]) -> Array:
        x, low, high, value, _ = state
        close = ~(xp.abs(value - goal) > 0.25 * _ACCEPTED * roundings(x, goal, s, noise))  # NaN is finished
        return close | (high - low <= 2.0 * UNIT * high)

    start = (high, xp.zeros_like(high), high, *_loss(high, s, w, noise))
    return iterated(newton, start, finished, _ITERATIONS)[0]
