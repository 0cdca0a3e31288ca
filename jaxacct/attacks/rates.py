"""Rates of the best attack on one record, from certified curves."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.accounting import Bounds, delta
from jaxacct.mechanisms.base import Mechanism
from jaxacct.summaries.curve import FARTHEST, curve_of, least, most

_POINTS = 400
_LAST = (1e-13, 1e-10, 1e-7, 1e-4, 1e-2)


def power(
    mechanism: object, false_positive_rate: ArrayLike, *, steps: ArrayLike = 1, relation: str = "add_or_remove"
) -> Bounds:
    """The true-positive rate of the best membership attack at ``false_positive_rate``.

    Args:
        mechanism: a mechanism, or the guarantee of a filter, with concrete parameters; arrays are settings.
        false_positive_rate: from 0 to 1, any shape; it broadcasts with the settings.
        steps, relation: as for `jaxacct.delta`.

    Returns:
        Bounds of the broadcast shape; of the direction in which the attacker gets more.

    Raises:
        ValueError: a rate outside [0, 1], another object, or traced parameters.
    """
    _validate.rate(false_positive_rate=false_positive_rate)
    rates = np.asarray(false_positive_rate, np.float64)
    # The curve's slope at a rate is at most 1 / rate, and e^-8 only where the power is 1 to three digits.
    least_rate = float(rates.min(initial=1.0))
    farthest = max(-np.log(least_rate), 8.0) if least_rate > 0 else FARTHEST
    curve = curve_of(mechanism, relation, _POINTS, _LAST, steps, min(farthest, FARTHEST))
    settings = curve.losses.shape[1:]
    shape = np.broadcast_shapes(settings, rates.shape)
    rates = np.broadcast_to(rates, shape)
    low, high = np.zeros(shape), np.zeros(shape)
    for i in np.ndindex(shape):
        one = curve.setting(i)
        for lower, upper in zip(one.lower, one.upper, strict=True):
            low[i] = max(low[i], least(one.losses, lower, upper, rates[i][None])[0])
            high[i] = max(high[i], most(one.losses, upper, rates[i][None])[0])
    return Bounds(low[()], high[()])


def advantage(mechanism: object, *, steps: ArrayLike = 1, relation: str = "add_or_remove") -> Bounds:
    """The most by which true- and false-positive rate differ: delta at epsilon 0, the total variation distance."""
    return _delta(mechanism, np.zeros(()), steps, relation)


def reconstruction(
    mechanism: object, baseline: ArrayLike, *, steps: ArrayLike = 1, relation: str = "add_or_remove"
) -> Bounds:
    """How likely a record is reconstructed by whoever knows everything else and guesses it with ``baseline``.

    The success under the mechanism is at most the power at the success without it (Hayes, Mahloujifar, Balle 2023,
    arXiv 2302.07225). The lower bound is that of the power.
    """
    _validate.rate(baseline=baseline)
    return power(mechanism, baseline, steps=steps, relation=relation)


def predictive_value(
    mechanism: object,
    prior: ArrayLike,
    false_positive_rate: ArrayLike,
    *,
    steps: ArrayLike = 1,
    relation: str = "add_or_remove",
) -> Bounds:
    """How often the best attacker is right who says "member" at ``false_positive_rate``, where ``prior`` are members.

    Raises:
        ValueError: a prior or rate that is not strictly between 0 and 1.
    """
    _validate.probability(prior=prior, false_positive_rate=false_positive_rate)
    found = power(mechanism, false_positive_rate, steps=steps, relation=relation)
    member, other = np.asarray(prior, float), (1.0 - np.asarray(prior, float)) * np.asarray(false_positive_rate, float)
    values = [member * rate / (member * rate + other) for rate in found]
    return Bounds(values[0] * (1.0 - 1e-14), np.minimum(values[1] * (1.0 + 1e-14), 1.0))


def bayes_risk(mechanism: object, prior: ArrayLike, *, steps: ArrayLike = 1, relation: str = "add_or_remove") -> Bounds:
    """The least probability of a wrong guess whether the record was there, where it is with probability ``prior``.

    prior (1 - delta(log((1 - prior) / prior))), in the direction and with the role in which the attacker errs least.

    Raises:
        ValueError: a prior that is not strictly between 0 and 1.
    """
    _validate.probability(prior=prior)
    p = np.asarray(prior, np.float64)
    risks = []
    for chance in (p, 1.0 - p):
        found = _delta(mechanism, np.log1p(-chance) - np.log(chance), steps, relation)
        risks.append([chance * (1.0 - side) for side in found])
    upper, lower = (np.minimum(*pair) for pair in zip(*risks, strict=True))
    surely = np.minimum(p, 1.0 - p)  # by a guess without looking
    return Bounds(np.maximum(lower * (1.0 - 1e-12) - 1e-15, 0.0), np.minimum(upper * (1.0 + 1e-12), surely))


def _delta(mechanism: Any, epsilon: Any, steps: ArrayLike, relation: str) -> Bounds:
    if isinstance(mechanism, Mechanism):
        return delta(mechanism, epsilon, steps=steps, relation=relation)
    if np.any(np.asarray(steps) != 1):
        raise ValueError(f"steps must be 1 for the guarantee of a filter, which is for the whole run, got {steps}")
    above = np.asarray(mechanism.delta(np.abs(epsilon)))
    # Below 0 the other direction's: 1 - e^epsilon (1 - delta(-epsilon)).
    upper = np.where(epsilon >= 0, above, -np.expm1(epsilon) + np.exp(np.minimum(epsilon, 0.0)) * above)
    return Bounds(np.maximum(-np.expm1(epsilon), 0.0), upper)
