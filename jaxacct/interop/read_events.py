"""Reads dp_accounting's events; events without an analysis raise."""

from __future__ import annotations

import collections
import dataclasses
import operator
from collections.abc import Callable
from functools import partial

from dp_accounting import dp_event

from jaxacct import _validate, mechanisms
from jaxacct.interop import noise_events
from jaxacct.interop.composition import MOST, Reading
from jaxacct.interop.noise_events import DEEPEST, Under, leaf
from jaxacct.mechanisms.base import Mechanism
from jaxacct.selection import PrivateSelection

RELATIONS = ("add_or_remove", "replace", "replace_special")
_FixedSize = dp_event.SampledWithoutReplacementDpEvent | dp_event.SampledWithReplacementDpEvent


class UnreadableEvent(ValueError):
    """An event without an analysis, or with parameters that make no sense.

    Attributes:
        event: the event itself, or the one inside it that is the reason.
    """

    def __init__(self, event: dp_event.DpEvent, reason: str):
        super().__init__(f"{type(event).__name__}: {reason}")
        self.event = event


def from_dp_event(event: dp_event.DpEvent, relation: str = "add_or_remove") -> Mechanism:
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
        A mechanism for `jaxacct.epsilon` and the like; ``ApproximateDP(0, 1)`` for an event that is not private.

    Raises:
        UnreadableEvent: a ValueError; an event without an analysis under this relation, or senseless parameters.
        TypeError: not a ``DpEvent``.
    """
    _validate.one_of(RELATIONS, relation=relation)
    return read(event, Under(relation)).mechanism()


def read(event: dp_event.DpEvent, under: Under) -> Reading:
    """The reading of an event; see :func:`from_dp_event`. One that stands in several others is read once."""
    if not isinstance(event, dp_event.DpEvent):
        raise TypeError(f"event must be a dp_accounting DpEvent, got {type(event).__name__}")
    if under.depth == 0:
        raise UnreadableEvent(event, f"events must be nested {DEEPEST} deep at most")
    # The exact type: a subclass may mean something else.
    name = type(event).__name__
    if name not in _READERS or getattr(dp_event, name, None) is not type(event):
        raise UnreadableEvent(event, "there is no analysis of this event")
    known = {} if under.depth == DEEPEST else under.known  # an event may have changed by the next question
    key = id(event), under.relation
    if key in known:
        return known[key][1]
    try:
        found = _READERS[name](event, dataclasses.replace(under, depth=under.depth - 1, known=known))
        if any(part.count > MOST for part in found.parts.values()):
            raise ValueError("counts must come to at most 2**53 runs of one mechanism")
        known[key] = event, found  # with the event, so that no other one gets its address
        return found
    except UnreadableEvent:
        raise
    except (ValueError, TypeError, OverflowError) as problem:
        raise UnreadableEvent(event, " ".join(str(problem).split())) from None


def _composed(event: dp_event.ComposedDpEvent, under: Under) -> Reading:
    """Each of the events is read once, however often it is in the list."""
    events = list(event.events)  # an array makes its items anew
    parts = {id(part): part for part in events}
    counts = collections.Counter(map(id, events))
    return sum((read(parts[key], under) * count for key, count in counts.items()), Reading())


def _self_composed(event: dp_event.SelfComposedDpEvent, under: Under) -> Reading:
    count = operator.index(event.count)
    if not 0 <= count <= MOST:
        raise ValueError(f"count must be a whole number from 0 to 2**53, got {count}")
    return read(event.event, under) * count if count else Reading()


def _one_run(inner: Reading) -> Mechanism:
    """The mechanism of ``inner``, if it is one run of one pair."""
    if not inner.is_single:
        raise ValueError(
            "a sample of a composition has an analysis only if it consists of Gaussians; compose sampled events instead"
        )
    return inner.mechanism()


def _poisson(event: dp_event.PoissonSampledDpEvent, under: Under) -> Reading:
    """The inner event on a Poisson sample (Zhu, Dong, Wang 2022, Theorem 11; replaced records: `PoissonSampled`).

    A record that is replaced by one of value zero is as good as absent only where records are summed up.
    """
    rate = float(event.sampling_probability)
    _validate.rate(sampling_probability=rate)
    if rate == 0.0:  # nobody takes part, whatever would run
        return Reading()
    if rate == 1.0:
        return read(event.event, under)
    # In the sample or not: what is in it moves a sum by the bound on one record.
    inner = read(event.event, under.inside("add_or_remove") if under.relation == "replace" else under)
    if not inner.private or inner.is_nothing:
        return inner
    mechanism = mechanisms.PoissonSampled(_one_run(inner), rate)
    is_sum = inner.rho == 0 and all(part.is_sum for part in inner.parts.values())
    if under.relation != "add_or_remove" and not is_sum:
        raise ValueError(f"sampling has an analysis under {under.relation!r} only for noise that is added to a sum")
    return leaf(mechanism, under, is_sum)


def _fixed_size(kind: Callable[[Mechanism, int, int], Mechanism], event: _FixedSize, under: Under) -> Reading:
    """The inner event on a sample of fixed size, in which every record takes the place of another one.

    So the inner event is read for replaced records, whatever the relation.
    """
    size, total = operator.index(event.sample_size), operator.index(event.source_dataset_size)
    if kind is mechanisms.SampledWithoutReplacement and 0 < size == total:  # no sample
        return read(event.event, under)
    if not 0 <= size <= total:
        raise ValueError(f"sample_size must be a whole number from 0 to {total}, got {size}")
    if under.relation == "replace_special":
        raise ValueError("samples of a fixed size have an analysis for 'add_or_remove' and 'replace' only")
    if size == 0:
        return Reading()
    inner = read(event.event, under.inside("replace"))
    if not inner.private or inner.is_nothing:
        return inner
    return leaf(kind(_one_run(inner), size, total), under)


def _truncated(event: dp_event.TruncatedSubsampledGaussianDpEvent, under: Under) -> Reading:
    """A Poisson-sampled Gaussian whose samples are cut to a size; see `TruncatedPoisson`."""
    total, size = operator.index(event.dataset_size), operator.index(event.truncated_batch_size)
    _validate.scalar(noise_multiplier=event.noise_multiplier)
    _validate.nonnegative(dataset_size=total, truncated_batch_size=size, noise_multiplier=event.noise_multiplier)
    rate = float(event.sampling_probability)
    _validate.rate(sampling_probability=rate)
    if rate == 0.0 or size == 0 or total == 0:
        return Reading()
    if size >= total:  # is never cut
        return read(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(event.noise_multiplier)), under)
    if event.noise_multiplier == 0:
        return Reading(private=False)
    noise = mechanisms.Gaussian(float(event.noise_multiplier), under.inside("add_or_remove").moves())
    return leaf(mechanisms.TruncatedPoisson(noise, rate, size, total), under)


def _selection(event: dp_event.RepeatAndSelectDpEvent, under: Under) -> Reading:
    inner = read(event.event, under)
    if not inner.private or inner.is_nothing:
        return inner
    return leaf(PrivateSelection(inner.mechanism(), float(event.mean), float(event.shape)), under)


_READERS: dict[str, Callable[..., Reading]] = {
    "NoOpDpEvent": lambda event, under: Reading(),
    "NonPrivateDpEvent": lambda event, under: Reading(private=False),
    "GaussianDpEvent": partial(noise_events.on_sum, mechanisms.Gaussian),
    "LaplaceDpEvent": partial(noise_events.on_sum, mechanisms.Laplace),
    "DiscreteLaplaceDpEvent": noise_events.discrete_laplace,
    "RandomizedResponseDpEvent": noise_events.response,
    "MixtureOfGaussiansDpEvent": noise_events.mixture,
    "ZCDpEvent": noise_events.zcdp,
    "SingleEpochTreeAggregationDpEvent": noise_events.tree,
    "ComposedDpEvent": _composed,
    "SelfComposedDpEvent": _self_composed,
    "PoissonSampledDpEvent": _poisson,
    "SampledWithoutReplacementDpEvent": partial(_fixed_size, mechanisms.SampledWithoutReplacement),
    "SampledWithReplacementDpEvent": partial(_fixed_size, mechanisms.SampledWithReplacement),
    "TruncatedSubsampledGaussianDpEvent": _truncated,
    "RepeatAndSelectDpEvent": _selection,
    # Events that dp_accounting's 0.6.0 does not have yet.
    "EpsilonDeltaDpEvent": noise_events.claimed,
    "DiscreteGaussianDpEvent": noise_events.discrete_gaussian,
    "ExponentialMechanismDpEvent": partial(noise_events.by_epsilon, mechanisms.Exponential),
    "PermuteAndFlipDpEvent": partial(noise_events.by_epsilon, mechanisms.PermuteAndFlip),
}
