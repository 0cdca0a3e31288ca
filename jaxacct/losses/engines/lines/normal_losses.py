"""Losses of a normal output: of a (Poisson-sampled) Gaussian, and of one whose sensitivity is random.

With t the output in units of the noise, k_i a sensitivity in these units and v_i its probability, P over Q = N(0, 1) is
R(t) = sum_i v_i exp(k_i t - k_i^2 / 2). log R is increasing and convex. A sampled Gaussian has two sensitivities, one
of them 0. Arrays have any leading axes; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, logsumexp, shared, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.mixture import MixturePair
from jaxacct.mechanisms.pairs.sampled_loss import log_rest


class LogRatio(NamedTuple):
    """log R at some t, its derivative over the largest one, which is in [0, 1], and a bound on the error of log R."""

    psi: Array
    slope: Array
    off: Array


class NormalLoss(NamedTuple):
    """The numbers of such a loss; parameters have the shape ``(...)``.

    Attributes:
        shifts, weights: k_i and v_i, on one more axis.
        steepest: the largest shift, which no derivative of log R exceeds.
        reverse: 0 is the direction `remove`, 1 is `add`.
        largest: no loss is above.
        sampled: rate and 1 - rate of a sampled Gaussian; None for others.
    """

    shifts: Array
    weights: Array
    steepest: Array
    reverse: Array
    largest: Array
    sampled: tuple[Array, Array] | None

    @classmethod
    def of(cls, pair: GaussianPair | MixturePair) -> NormalLoss:
        """Those of a pair."""
        if isinstance(pair, GaussianPair):
            mu = 1.0 / pair.noise
            shifts, weights = (xp.stack(x, -1) for x in ((0.0 * mu, mu), (pair.rest, pair.rate)))
            return cls(shifts, weights, mu, pair.reverse, pair.max_loss(), (pair.rate, pair.rest))
        shifts, weights = pair.sensitivities.values / pair.noise[..., None], pair.weights.values
        weights = weights / weights.sum(-1, keepdims=True)
        return cls(shifts, weights, shifts.max(-1), pair.reverse, pair.max_loss(), None)

    @property
    def heights(self) -> float:
        """Of strips around the real line, as angles ``steepest`` times Im t, on which bounds of R are known."""
        return 0.49 * np.pi if self.sampled is None else 0.985 * np.pi

    def turn(self, slope: Array, angle: Array) -> Array:
        """A bound on abs(arg R) where Im t is ``angle / steepest``."""
        if self.sampled is None:
            return xp.minimum(1.0, slope / xp.cos(angle)) * angle
        return xp.where(slope < 0.5, slope, 1.0) * angle

    def size(self) -> Array | float:
        """The size of exponents at t = 0, in nats."""
        return 32.0 if self.sampled is None else 1.0 + xp.abs(xp.log(self.sampled[0]))

    def at(self, t: Array) -> LogRatio:
        """At ``t`` of shape ``(..., n)``."""
        if self.sampled is None:
            return _of_mixture(self.shifts, self.weights, t)
        mu, (rate, rest) = self.steepest[..., None], (x[..., None] for x in self.sampled)
        u = mu * (t - 0.5 * mu)
        (psi, slope) = _of_sample(rate, rest, u)
        # psi is off by units of itself, the rate's among them, and by what u's rounding and the noise's, damped by the
        # slope, make of it: docs/proofs/parameters.md, lemma 6.
        sure = xp.where(rest == 0.0, 16.0, 48.0) * xp.abs(psi)
        return LogRatio(
            psi, slope, UNIT * (sure + 16.0 * slope * (1.0 + xp.abs(xp.log(rate)) + xp.abs(mu * t) + mu * mu))
        )


def exponent_at(reverse: Array, tilt: Array) -> Array:
    """The power b of R at a tilt: 1 + z for `remove`, where ``reverse`` is 0, and -z for `add`."""
    return xp.where(reverse > 0.5, -tilt, 1.0 + tilt)


def _of_sample(q: Array, rest: Array, u: Array) -> tuple[Array, Array]:
    """log(1 - q + q e^u) and its derivative in u; ``rest`` is 1 - q."""
    small = q * xp.expm1(xp.minimum(u, 40.0))
    near = xp.abs(small) < 0.5
    sampled = rest > 0.0  # a rate of 1 is kept away from log(0), whose derivative is none
    least, log_shifted = log_rest(xp.where(sampled, q, 0.5), xp.where(sampled, rest, 0.5)), xp.log(q) + u
    apart = log_shifted - least
    less = xp.exp(-xp.abs(apart))
    far = xp.maximum(least, log_shifted) + xp.log1p(less)
    whole = u - (q - 1.0) * xp.expm1(xp.minimum(-u, 700.0))  # u, and its derivative in q at q = 1
    value = xp.where(near, log1p(xp.where(near, small, 0.0)), xp.where(sampled, far, whole))
    return value, xp.where(sampled, xp.where(apart > 0, 1.0, less) / (1.0 + less), 1.0)


@shared
def _of_mixture(shifts: Array, weights: Array, t: Array) -> LogRatio:
    """Its error: docs/proofs/transforms.md, section 5."""
    k, v = shifts[..., None, :], weights[..., None, :]
    y = xp.where(v > 0, k * (t[..., None] - 0.5 * k), 0.0)
    logs = xp.where(v > 0, y + xp.log(xp.where(v > 0, v, 1.0)), -np.inf)
    far = logsumexp(logs)
    small = (v * xp.expm1(xp.minimum(y, 40.0))).sum(-1)
    near = xp.abs(small) < 0.5
    psi = xp.where(near, log1p(xp.where(near, small, 0.0)), far)
    share = xp.exp(logs - far[..., None])
    size = (share * (1.0 + xp.abs(k * t[..., None]) + k * k)).sum(-1)
    off = UNIT * (16.0 + 4.0 * k.shape[-1]) * (xp.abs(psi) + size)
    return LogRatio(psi, (share * k).sum(-1) / shifts.max(-1)[..., None], off)
