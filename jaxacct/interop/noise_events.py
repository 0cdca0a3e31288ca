"""Reads dp_accounting's events of one release with noise, and of guarantees without samples or compositions."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from dp_accounting import dp_event

from jaxacct import _validate, mechanisms
from jaxacct.interop.composition import Part, Reading
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions

_OnSum = dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent
_UP = 1.0 + 2.0**-50
DEEPEST = 100  # events in each other


def leaf(mechanism: Mechanism, under: Under, is_sum: bool = False) -> Reading:
    """One run of ``mechanism``, once it is known to have an analysis."""
    directions(mechanism, under.relation)
    leaves, structure = jax.tree.flatten(mechanism)
    # All digits of all parameters: NumPy leaves out some of them where it prints arrays.
    values = tuple(np.asarray(leaf, np.float64).tobytes() for leaf in leaves)
    return Reading({(str(structure), values, is_sum): Part(mechanism, 1, is_sum)})


@dataclasses.dataclass(frozen=True)
class Under:
    """How events are read.

    Attributes:
        relation: what neighbours differ in.
        over: what noise multipliers are over, in bounds on a record's value: 1, or 2 for what replacing a record moves.
        depth: how deep in others an event may stand.
        known: events of one question that were read already, by identity and relation, and their readings.
    """

    relation: str
    over: float = 1.0
    depth: int = DEEPEST
    known: dict[tuple[int, str], tuple[object, Reading]] = dataclasses.field(default_factory=dict)

    def moves(self) -> float:
        """How far a sum moves, in the unit that noise multipliers are over."""
        return (2.0 if self.relation == "replace" else 1.0) / self.over

    def inside(self, relation: str) -> Under:
        """The same for an event inside one that is read so: under another relation."""
        return dataclasses.replace(self, relation=relation)


def on_sum(kind: Callable[[float, float], Mechanism], event: _OnSum, under: Under) -> Reading:
    """Independent noise on every coordinate of a sum; without noise it is no private release.

    For Laplace noise the worst case is one coordinate (see `Laplace`).
    """
    _validate.nonnegative(noise_multiplier=event.noise_multiplier)
    if event.noise_multiplier == 0:
        return Reading(private=False)
    return leaf(kind(float(event.noise_multiplier), under.moves()), under, is_sum=True)


def discrete_laplace(event: dp_event.DiscreteLaplaceDpEvent, under: Under) -> Reading:
    """Pr[x] ~ exp(-a |x|) on whole coordinates.

    Changing coordinates one after the other is a chain, whose trade-off function is at least that of the shifts added
    up on one coordinate: thresholds are the optimal tests of log-concave noise on the whole numbers, and with
    randomised thresholds the power of one shift is the level of the next, exactly. The scale 1 / a is rounded down:
    noise of less scale is less private (the noise of a smaller a is that of a larger one plus more noise).
    """
    _validate.positive(noise_parameter=event.noise_parameter)
    sensitivity = operator.index(event.sensitivity)
    _validate.nonnegative(sensitivity=sensitivity)
    if sensitivity == 0:
        return Reading()
    scale = math.nextafter(1.0 / float(event.noise_parameter), 0.0)
    return leaf(mechanisms.DiscreteLaplace(scale, math.ceil(sensitivity * under.moves())), under, is_sum=True)


def response(event: dp_event.RandomizedResponseDpEvent, under: Under) -> Reading:
    """The true one of k buckets with probability 1 - p + p / k, any other with p / k.

    Replaced by the special record, the answer is uniform (dp_accounting's definition): two outcomes, the true bucket
    and the rest. Their probabilities are off by two units of 2^-53 at most, by six once they are divided by their sum,
    and losses by ten: `FromTables` counts 10 for masses and 20 for losses.
    """
    p, k = float(event.noise_parameter), operator.index(event.num_buckets)
    _validate.rate(noise_parameter=p)
    _validate.count(num_buckets=k)
    if under.relation == "add_or_remove":
        raise ValueError(
            "randomized response answers for every record, so that none can be missing: the relation must be "
            "'replace' or 'replace_special'"
        )
    if k == 1 or p == 1.0:
        return Reading()
    if p == 0.0:
        return Reading(private=False)
    if under.relation == "replace":
        # More epsilon is less private, so it is rounded up.
        return leaf(mechanisms.RandomizedResponse(math.log1p(k * (1.0 - p) / p * _UP) * _UP, k), under)
    own, others = np.array([(1.0 - p) + p / k, p * (k - 1) / k]), np.array([1.0 / k, (k - 1) / k])
    return leaf(mechanisms.FromTables(own, others), under)


def mixture(event: dp_event.MixtureOfGaussiansDpEvent, under: Under) -> Reading:
    """N(0, s^2) on one data set, a mixture of N(c_i, s^2) on the other."""
    deviation = float(event.standard_deviation)
    sensitivities, weights = ([float(x) for x in each] for each in (event.sensitivities, event.sampling_probs))
    _validate.nonnegative(standard_deviation=deviation, sensitivities=sensitivities, sampling_probs=weights)
    if not any(value * weight for value, weight in zip(sensitivities, weights, strict=True)):
        return Reading()
    if deviation == 0.0:
        return Reading(private=False)
    return leaf(mechanisms.RandomSensitivityGaussian(deviation, sensitivities, weights), under, is_sum=True)


def zcdp(event: dp_event.ZCDpEvent, under: Under) -> Reading:
    """(xi, rho)-zCDP, for whatever relation the event was written for; xi-DP where rho is 0."""
    _validate.nonnegative(rho=event.rho, xi=event.xi)
    if event.rho == 0 and event.xi > 0:
        return leaf(mechanisms.PureDP(float(event.xi)), under)
    return Reading(rho=float(event.rho), xi=float(event.xi))


def tree(event: dp_event.SingleEpochTreeAggregationDpEvent, under: Under) -> Reading:
    """A record is in one leaf of one tree, so in at most as many nodes as the tree of most steps has levels.

    A tree of n steps has floor(log2 n) + 1 levels. The nodes together are one Gaussian mechanism of L2 sensitivity
    sqrt(levels), on which adaptive choices change nothing (Kairouz et al. 2021, arXiv 2103.00039, appendix D.1, for
    their Definition 1.1 of neighbours).
    """
    _validate.nonnegative(noise_multiplier=event.noise_multiplier)
    counts = [operator.index(count) for count in np.atleast_1d(np.asarray(event.step_counts, object))]
    if not counts or min(counts) < 0 or max(counts) == 0:
        raise ValueError(f"step_counts must be whole numbers >= 0, not all 0, got {event.step_counts}")
    if under.relation != "replace_special":
        raise ValueError("tree aggregation has an analysis for relation 'replace_special' only")
    if event.noise_multiplier == 0:
        return Reading(private=False)
    levels = max(counts).bit_length()
    sensitivity = math.sqrt(levels)
    if sensitivity * sensitivity < levels:
        sensitivity = math.nextafter(sensitivity, math.inf)
    return leaf(mechanisms.Gaussian(float(event.noise_multiplier), sensitivity), under)


def claimed(event: Any, under: Under) -> Reading:
    """(epsilon, delta)-DP, for whatever relation the event was written for."""
    epsilon, delta = float(event.epsilon), float(event.delta)
    _validate.rate(delta=delta)
    if delta == 0.0:
        return by_epsilon(mechanisms.PureDP, event, under)
    _validate.epsilon(epsilon=epsilon)
    if delta == 1.0 or epsilon == math.inf:
        return Reading(private=False)
    return leaf(mechanisms.ApproximateDP(epsilon, delta), under)


def by_epsilon(kind: Callable[[float], Mechanism], event: Any, under: Under) -> Reading:
    """A mechanism that an epsilon describes, for whatever relation the event was written for."""
    epsilon = float(event.epsilon)
    _validate.epsilon(epsilon=epsilon)
    if epsilon == math.inf:
        return Reading(private=False)
    return leaf(kind(epsilon), under) if epsilon > 0 else Reading()


def discrete_gaussian(event: Any, under: Under) -> Reading:
    """Pr[x] ~ exp(-x^2 / 2 s^2) on whole coordinates.

    On one coordinate whole shifts are at most the sensitivity, rounded down. On several, or an unknown number, it is
    (sensitivity / s)^2 / 2-zCDP, as each coordinate is with its own shift (Canonne, Kamath, Steinke 2020, Theorem 14).
    """
    sigma, sensitivity = float(event.sigma), float(event.sensitivity)
    _validate.nonnegative(sigma=sigma, sensitivity=sensitivity)
    moved = sensitivity * under.moves()
    if moved == 0.0:
        return Reading()
    if sigma == 0.0:
        return Reading(private=False)
    if event.dimension is not None and operator.index(event.dimension) == 1:
        whole = math.floor(moved)
        return leaf(mechanisms.DiscreteGaussian(sigma, whole), under, is_sum=True) if whole else Reading()
    return Reading(rho=(moved / sigma) ** 2 / 2.0 * _UP)
