"""What a privacy curve means to an attacker who must tell P from Q: advantage, power, Bayes risk.

Each is a number of one curve and a bound from the curve's side: an upper profile (or a lower trade-off curve) bounds
advantage and power from above and the risk from below. Power at a false positive rate is :meth:`TradeOff.power`.
"""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.curve_arrays import as_arrays, float64, quiet_float64
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.losses.compare.enclose import bound_of, excess_of_segments
from jaxacct.losses.curves import profile as profiles
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff, arrays

__all__ = ["advantage", "bayes_risk", "power"]


def advantage(curve: PLD | PrivacyProfile | TradeOff) -> Array:
    """max over tests of (power - false positive rate) = H(1), the total variation distance; shape of the batch."""
    with quiet_float64():
        return as_arrays(_excess(curve, np.zeros(())))


def power(curve: PLD | PrivacyProfile | TradeOff, false_positive_rate: ArrayLike) -> Array:
    """The power 1 - f(alpha) of the best test at ``false_positive_rate``; shape ``batch + false_positive_rate.shape``.

    Raises:
        ValueError: a rate outside [0, 1].
    """
    if isinstance(curve, PLD):
        curve = PrivacyProfile.from_pld(curve)
    if isinstance(curve, PrivacyProfile):
        curve = TradeOff.from_profile(curve)
    return curve.power(false_positive_rate)


def bayes_risk(curve: PLD | PrivacyProfile | TradeOff, prior: ArrayLike) -> Array:
    """The least probability of a wrong guess when P is true with probability ``prior``, Q otherwise.

    min over tests of prior * P(reject P) + (1 - prior) * Q(accept P) = min(prior, 1 - prior) - prior * E(gamma) with
    gamma = (1 - prior) / prior and E the excess of H over (1 - gamma)_+; shape ``batch + prior.shape``.

    Raises:
        ValueError: a prior that is not strictly between 0 and 1. A traced one gives NaN.
    """
    _validate.probability(prior=prior)
    with quiet_float64():
        p = float64(prior)
        epsilon = log1p(-p) - xp.log(p)
        sign = 1.0 if bound_of(curve) == "upper" else -1.0
        # Epsilon is off by a few units of itself, and |dE| <= E |d epsilon| + (mass there) <= |d epsilon|.
        slack = sign * 16.0 * EPS * (1.0 + xp.abs(epsilon))
        excess = _excess(curve, epsilon)
        saved = p * (excess + slack)
        risk = xp.minimum(p, 1.0 - p) - inflated(saved, sign * 4.0 * EPS) - sign * 2.0 * EPS
        valid = (p > 0) & (p < 1)
        return as_arrays(xp.where(valid, xp.clip(risk, 0.0, xp.minimum(p, 1.0 - p)), np.nan))


def _excess(curve: PLD | PrivacyProfile | TradeOff, epsilon: Array) -> Array:
    if isinstance(curve, PLD):
        curve = PrivacyProfile.from_pld(curve)
    if isinstance(curve, PrivacyProfile):
        return profiles.excess_at(curve.float64(), curve.grid, curve.bound, epsilon)
    low, high = excess_of_segments(*arrays(curve), epsilon.reshape(-1))
    value = high if curve.bound == "lower" else low
    return xp.clip(value.reshape((*value.shape[:-1], *epsilon.shape)), 0.0, 1.0)
