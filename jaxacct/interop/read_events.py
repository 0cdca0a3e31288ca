"""Reads dp_accounting's events; events without an analysis raise."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from dp_accounting import dp_event

from jaxacct import _validate
from jaxacct.interop.composition import MOST, Part, Reading, composed
from jaxacct.interop.selection import repeated
from jaxacct.mechanisms import (
    ApproximateDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FromTables,
    Gaussian,
    Laplace,
    MixtureOfGaussians,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedPoisson,
)
from jaxacct.mechanisms.directions import directions

RELATIONS = ("add_or_remove", "replace", "replace_special")
_UP = 1.0 + 2.0**-50
_MOST_EVENTS, _DEEPEST = 1_000_000, 100


class UnreadableEvent(ValueError):
    """An event without an analysis, or with parameters that make no sense.

    Attributes:
        event: the event itself, or the one inside it that is the reason.
    """

    def __init__(self, event: Any, reason: str):
        super().__init__(f"{type(event).__name__}: {reason}")
        self.event = event


def from_dp_event(event: dp_event.DpEvent, relation: str = "add_or_remove") -> Any:
    """The mechanism that a ``DpEvent`` of dp_accounting describes.

    An event's noise multiplier is over the bound C on a record's value. A sum moves by C if a record comes or goes, or
    is replaced by one of value zero, and by 2 C if it is replaced by another: under ``"replace"`` the sensitivity is 2,
    but 1 inside a Poisson sample, whose mechanisms have that of a record's presence (see `PoissonSampled`).
    (Of dp_accounting 0.6.0's own accountants the one by privacy loss distributions does the same; the one by
    Rényi divergences leaves it at 1.)

    Args:
        event: anything that dp_accounting has (read up to its state of August 2026) but ``UnsupportedDpEvent``;
            events may be nested. Counts may be as large as 2**53.
        relation: ``"add_or_remove"``, ``"replace"``, or ``"replace_special"`` (a record is replaced by one of value
            zero). Ask the result about the same relation.

    Returns:
        A mechanism for `jaxacct.epsilon` and the rest; ``ApproximateDP(0, 1)`` for what is not private.

    Raises:
        UnreadableEvent: a ValueError; an event without an analysis under this relation, or senseless parameters.
        TypeError: not a ``DpEvent``.
    """
    return read(event, relation).mechanism()


def read(event: dp_event.DpEvent, relation: str) -> Reading:
    """The reading of an event; see :func:`from_dp_event`."""
    _validate.one_of(RELATIONS, relation=relation)
    _size(event, {})
    return _read(event, relation)


def _size(event: Any, known: dict[int, tuple[int, int]], depth: int = 0) -> tuple[int, int]:
    """How many events there are in ``event``, counted as often as they are met, and how deep they are nested.

    Raises:
        UnreadableEvent: more than can be read.
    """
    if id(event) not in known:
        if depth > _DEEPEST:
            raise UnreadableEvent(event, f"events must be nested {_DEEPEST} deep at most")
        inner = getattr(event, "events", None)
        parts = list(inner) if isinstance(inner, list | tuple) else []
        parts += [getattr(event, "event", None)]
        sizes = [_size(part, known, depth + 1) for part in parts if isinstance(part, dp_event.DpEvent)]
        known[id(event)] = 1 + sum(size for size, _ in sizes), 1 + max((height for _, height in sizes), default=0)
    size, height = known[id(event)]
    if size > _MOST_EVENTS or depth + height > _DEEPEST + 1:
        raise UnreadableEvent(event, f"events must be at most {_MOST_EVENTS}, nested {_DEEPEST} deep at most")
    return size, height


def _read(event: dp_event.DpEvent, relation: str) -> Reading:
    if not isinstance(event, dp_event.DpEvent):
        raise TypeError(f"event must be a dp_accounting DpEvent, got {type(event).__name__}")
    # The exact type: a subclass may mean something else.
    reader = _READERS.get(type(event))
    if reader is None:
        raise UnreadableEvent(event, "there is no analysis of this event")
    try:
        found = reader(event, relation)
        if any(part.count > MOST for part in found.parts.values()):
            raise ValueError("counts must come to at most 2**53 runs of one mechanism")
        return found
    except UnreadableEvent:
        raise
    except (ValueError, TypeError, OverflowError) as problem:
        raise UnreadableEvent(event, " ".join(str(problem).split())) from None


def _leaf(event: Any, mechanism: Any, relation: str, is_sum: bool = False) -> Reading:
    """One run of ``mechanism``, once it is known to have an analysis."""
    directions(mechanism, relation)
    return Reading({repr(event): Part(mechanism, 1, is_sum)})


def _nothing(event: Any, relation: str) -> Reading:
    return Reading()


def _everything(event: Any, relation: str) -> Reading:
    return Reading(private=False)


class OverSensitivity(str):
    """A relation whose noise multipliers are over 2 C, what replacing a record moves, and not over its bound C."""


def _moves(relation: str) -> float:
    """How far a sum moves, in the unit that noise multipliers are over."""
    return (2.0 if relation == "replace" else 1.0) / (2.0 if isinstance(relation, OverSensitivity) else 1.0)


def _inside(relation: str, inner: str) -> str:
    """The relation ``inner`` for an event inside one that is read under ``relation``: noise is over the same unit."""
    return OverSensitivity(inner) if isinstance(relation, OverSensitivity) else inner


def _gaussian(event: Any, relation: str) -> Reading:
    """N(0, s^2 I) on a sum; without noise it is no private release."""
    _validate.nonnegative(noise_multiplier=event.noise_multiplier)
    if event.noise_multiplier == 0:
        return _everything(event, relation)
    return _leaf(event, Gaussian(float(event.noise_multiplier), _moves(relation)), relation, is_sum=True)


def _laplace(event: Any, relation: str) -> Reading:
    """Independent Laplace noise on every coordinate; the worst case is one coordinate (see `Laplace`)."""
    _validate.nonnegative(noise_multiplier=event.noise_multiplier)
    if event.noise_multiplier == 0:
        return _everything(event, relation)
    return _leaf(event, Laplace(float(event.noise_multiplier), _moves(relation)), relation, is_sum=True)


def _discrete_laplace(event: Any, relation: str) -> Reading:
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
    return _leaf(event, DiscreteLaplace(scale, math.ceil(sensitivity * _moves(relation))), relation, is_sum=True)


def _response(event: Any, relation: str) -> Reading:
    """The true one of k buckets with probability 1 - p + p / k, any other with p / k.

    Replaced by the special record, the answer is uniform (dp_accounting's definition): two outcomes, the true bucket
    and the rest. Their probabilities are off by two units of 2^-53 at most, by six once they are divided by their sum,
    and losses by ten: `FromTables` counts 10 for masses and 20 for losses.
    """
    p, k = float(event.noise_parameter), operator.index(event.num_buckets)
    _validate.rate(noise_parameter=p)
    _validate.count(num_buckets=k)
    if relation == "add_or_remove":
        raise ValueError(
            "randomized response answers for every record, so that none can be missing: the relation must be "
            "'replace' or 'replace_special'"
        )
    if k == 1 or p == 1.0:
        return Reading()
    if p == 0.0:
        return _everything(event, relation)
    if relation == "replace":
        # More epsilon is less private, so it is rounded up.
        return _leaf(event, RandomizedResponse(math.log1p(k * (1.0 - p) / p * _UP) * _UP, k), relation)
    own, others = np.array([(1.0 - p) + p / k, p * (k - 1) / k]), np.array([1.0 / k, (k - 1) / k])
    return _leaf(event, FromTables(own, others), relation)


def _mixture(event: Any, relation: str) -> Reading:
    """N(0, s^2) on one data set, a mixture of N(c_i, s^2) on the other."""
    deviation = float(event.standard_deviation)
    sensitivities, weights = ([float(x) for x in each] for each in (event.sensitivities, event.sampling_probs))
    _validate.nonnegative(standard_deviation=deviation, sensitivities=sensitivities, sampling_probs=weights)
    if not any(value * weight for value, weight in zip(sensitivities, weights, strict=True)):
        return Reading()
    if deviation == 0.0:
        return _everything(event, relation)
    return _leaf(event, MixtureOfGaussians(deviation, sensitivities, weights), relation, is_sum=True)


def _zcdp(event: Any, relation: str) -> Reading:
    """(xi, rho)-zCDP, for whatever relation the event was written for; xi-DP where rho is 0."""
    _validate.nonnegative(rho=event.rho, xi=event.xi)
    if event.rho == 0 and event.xi > 0:
        return _leaf(event, PureDP(float(event.xi)), relation)
    return Reading(rho=float(event.rho), xi=float(event.xi))


def _tree(event: Any, relation: str) -> Reading:
    """A record is in one leaf of one tree, so in at most as many nodes as the tree of most steps has levels.

    A tree of n steps has floor(log2 n) + 1 levels. The nodes together are one Gaussian mechanism of L2 sensitivity
    sqrt(levels), on which adaptive choices change nothing (Kairouz et al. 2021, arXiv 2103.00039, appendix D.1, for
    their Definition 1.1 of neighbours).
    """
    _validate.nonnegative(noise_multiplier=event.noise_multiplier)
    counts = [event.step_counts] if np.ndim(event.step_counts) == 0 else list(event.step_counts)
    counts = [operator.index(count) for count in counts]
    if not counts or min(counts) < 0 or max(counts) == 0:
        raise ValueError(f"step_counts must be whole numbers >= 0, not all 0, got {event.step_counts}")
    if relation != "replace_special":
        raise ValueError("tree aggregation has an analysis for relation 'replace_special' only")
    if event.noise_multiplier == 0:
        return _everything(event, relation)
    levels = max(counts).bit_length()
    sensitivity = math.sqrt(levels)
    if sensitivity * sensitivity < levels:
        sensitivity = math.nextafter(sensitivity, math.inf)
    return _leaf(event, Gaussian(float(event.noise_multiplier), sensitivity), relation)


def _claimed(event: Any, relation: str) -> Reading:
    """(epsilon, delta)-DP, for whatever relation the event was written for."""
    epsilon, delta = float(event.epsilon), float(event.delta)
    _validate.nonnegative(epsilon=epsilon if epsilon < math.inf else 0.0, delta=delta)
    _validate.rate(delta=delta)
    if delta == 1.0 or epsilon == math.inf:
        return _everything(event, relation)
    if delta == 0.0:
        return _by_epsilon(event, PureDP, relation)
    return _leaf(event, ApproximateDP(epsilon, delta), relation)


def _by_epsilon(event: Any, kind: Callable[[float], Any], relation: str) -> Reading:
    """A mechanism that an epsilon describes, for whatever relation the event was written for."""
    epsilon = float(event.epsilon)
    if epsilon == math.inf:
        return _everything(event, relation)
    _validate.nonnegative(epsilon=epsilon)
    return _leaf(event, kind(epsilon), relation) if epsilon > 0 else Reading()


def _discrete_gaussian(event: Any, relation: str) -> Reading:
    """Pr[x] ~ exp(-x^2 / 2 s^2) on whole coordinates.

    On one coordinate whole shifts are at most the sensitivity, rounded down. On several, or an unknown number, it is
    (sensitivity / s)^2 / 2-zCDP, as each coordinate is with its own shift (Canonne, Kamath, Steinke 2020, Theorem 14).
    """
    sigma, sensitivity = float(event.sigma), float(event.sensitivity)
    _validate.nonnegative(sigma=sigma, sensitivity=sensitivity)
    moved = sensitivity * _moves(relation)
    if moved == 0.0:
        return Reading()
    if sigma == 0.0:
        return _everything(event, relation)
    if event.dimension is not None and operator.index(event.dimension) == 1:
        whole = math.floor(moved)
        return _leaf(event, DiscreteGaussian(sigma, whole), relation, is_sum=True) if whole else Reading()
    return Reading(rho=(moved / sigma) ** 2 / 2.0 * _UP)


def _composed(event: Any, relation: str) -> Reading:
    return sum((_read(part, relation) for part in event.events), Reading())


def _self_composed(event: Any, relation: str) -> Reading:
    count = operator.index(event.count)
    if not 0 <= count <= MOST:
        raise ValueError(f"count must be a whole number from 0 to 2**53, got {count}")
    inner = _read(event.event, relation)
    return inner * count if count else Reading()


def _one_run(inner: Reading, what: str) -> Any:
    """The mechanism of ``inner``, if it is one run of one pair."""
    if not inner.is_single:
        raise ValueError(
            f"{what} of a composition has an analysis only if it consists of Gaussians; compose sampled events instead"
        )
    return composed(inner.all_parts())


def _poisson(event: Any, relation: str) -> Reading:
    """The inner event on a Poisson sample (Zhu, Dong, Wang 2022, Theorem 11; replaced records: `PoissonSampled`).

    A record that is replaced by one of value zero is as good as absent only where records are summed up.
    """
    rate = float(event.sampling_probability)
    _validate.rate(sampling_probability=rate)
    if rate == 1.0:
        return _read(event.event, relation)
    # In the sample or not: what is in it moves a sum by the bound on one record.
    inner = _read(event.event, _inside(relation, "add_or_remove") if relation == "replace" else relation)
    if not inner.private:
        return inner
    if rate == 0.0 or inner.is_nothing:
        return Reading()
    mechanism = PoissonSampled(_one_run(inner, "a Poisson sample"), rate)
    is_sum = not inner.is_curve and all(part.is_sum for part in inner.parts.values())
    if relation != "add_or_remove" and not is_sum:
        raise ValueError(f"sampling has an analysis under {relation!r} only for noise that is added to a sum")
    return _leaf(event, mechanism, relation, is_sum)


def _sizes(sample: Any, total: Any) -> tuple[int, int]:
    size, total = operator.index(sample), operator.index(total)
    if not 0 <= size <= total:
        raise ValueError(f"sample_size must be a whole number from 0 to {total}, got {size}")
    return size, total


def _fixed_size(event: Any, relation: str, kind: Any, what: str) -> Reading:
    """The inner event on a sample of fixed size, in which every record takes the place of another one.

    So the inner event is read for replaced records, whatever the relation.
    """
    size, total = _sizes(event.sample_size, event.source_dataset_size)
    if relation == "replace_special":
        raise ValueError("samples of a fixed size have an analysis for 'add_or_remove' and 'replace' only")
    inner = _read(event.event, _inside(relation, "replace"))
    if not inner.private:
        return inner
    if size == 0 or inner.is_nothing:
        return Reading()
    return _leaf(event, kind(_one_run(inner, what), size, total), relation)


def _without_replacement(event: Any, relation: str) -> Reading:
    """See `SampledWithoutReplacement`; all of the data are no sample."""
    if event.sample_size == event.source_dataset_size:
        return _read(event.event, relation)
    return _fixed_size(event, relation, SampledWithoutReplacement, "a sample")


def _with_replacement(event: Any, relation: str) -> Reading:
    """See `SampledWithReplacement`."""
    return _fixed_size(event, relation, SampledWithReplacement, "a sample")


def _truncated(event: Any, relation: str) -> Reading:
    """A Poisson-sampled Gaussian whose samples are cut to a size; see `TruncatedPoisson`."""
    total, size = operator.index(event.dataset_size), operator.index(event.truncated_batch_size)
    _validate.scalar(noise_multiplier=event.noise_multiplier)
    _validate.nonnegative(dataset_size=total, truncated_batch_size=size, noise_multiplier=event.noise_multiplier)
    rate = float(event.sampling_probability)
    _validate.rate(sampling_probability=rate)
    if rate == 0.0 or size == 0 or total == 0:
        return Reading()
    if size >= total:  # is never cut
        return _read(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(event.noise_multiplier)), relation)
    if event.noise_multiplier == 0:
        return _everything(event, relation)
    noise = Gaussian(float(event.noise_multiplier), _moves(_inside(relation, "add_or_remove")))
    return _leaf(event, TruncatedPoisson(noise, rate, size, total), relation)


def _selection(event: Any, relation: str) -> Reading:
    return repeated(_read(event.event, relation), float(event.mean), float(event.shape), relation)


_READERS: dict[type, Callable[[Any, str], Reading]] = {
    dp_event.NoOpDpEvent: _nothing,
    dp_event.NonPrivateDpEvent: _everything,
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.LaplaceDpEvent: _laplace,
    dp_event.DiscreteLaplaceDpEvent: _discrete_laplace,
    dp_event.RandomizedResponseDpEvent: _response,
    dp_event.MixtureOfGaussiansDpEvent: _mixture,
    dp_event.ZCDpEvent: _zcdp,
    dp_event.SingleEpochTreeAggregationDpEvent: _tree,
    dp_event.ComposedDpEvent: _composed,
    dp_event.SelfComposedDpEvent: _self_composed,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.SampledWithoutReplacementDpEvent: _without_replacement,
    dp_event.SampledWithReplacementDpEvent: _with_replacement,
    dp_event.TruncatedSubsampledGaussianDpEvent: _truncated,
    dp_event.RepeatAndSelectDpEvent: _selection,
}
# Events that dp_accounting's 0.6.0 does not have yet.
_NEWER: dict[str, Callable[[Any, str], Reading]] = {
    "EpsilonDeltaDpEvent": _claimed,
    "DiscreteGaussianDpEvent": _discrete_gaussian,
    "ExponentialMechanismDpEvent": lambda event, relation: _by_epsilon(event, Exponential, relation),
    "PermuteAndFlipDpEvent": lambda event, relation: _by_epsilon(event, PermuteAndFlip, relation),
}
_READERS |= {getattr(dp_event, name): reader for name, reader in _NEWER.items() if hasattr(dp_event, name)}
