"""Rates of the best attack on one record, from certified curves."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.accounting import Bounds
from jaxacct.summaries.curve import FARTHEST, curve_of, least, most, questions

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
    return Bounds(*questions(mechanism, relation, steps, joint=True).delta(np.zeros(()))[0])


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

    p (1 - delta(log((1 - p) / p))), p that of the less likely of both, where the attacker errs least.

    Raises:
        ValueError: a prior that is not strictly between 0 and 1.
    """
    _validate.probability(prior=prior)
    p = np.minimum(prior, 1.0 - np.asarray(prior, np.float64))  # what is wrong of a guess without looking
    asked = questions(mechanism, relation, steps, joint=True)
    lower, upper = (p * (1.0 - side) for side in reversed(asked.delta(np.log1p(-p) - np.log(p))[0]))
    return Bounds(np.maximum(lower * (1.0 - 1e-12) - 1e-15, 0.0), np.minimum(upper * (1.0 + 1e-12), p))
