"""Reads dp_accounting's events; events without an analysis raise."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial

from dp_accounting import dp_event

from jaxacct import _validate, mechanisms
from jaxacct.interop import noise_events
from jaxacct.interop.composition import MOST, Reading
from jaxacct.interop.noise_events import inside, leaf, moves
from jaxacct.mechanisms.base import Mechanism
from jaxacct.selection import PrivateSelection

RELATIONS = ("add_or_remove", "replace", "replace_special")
_FixedSize = dp_event.SampledWithoutReplacementDpEvent | dp_event.SampledWithReplacementDpEvent
_MOST_EVENTS, _DEEPEST = 1_000_000, 100


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
    return read(event, relation).mechanism()


def read(event: dp_event.DpEvent, relation: str) -> Reading:
    """The reading of an event; see :func:`from_dp_event`."""
    _validate.one_of(RELATIONS, relation=relation)
    _size(event, {})
    return _read(event, relation)


def _size(event: dp_event.DpEvent, known: dict[int, tuple[int, int]], depth: int = 0) -> tuple[int, int]:
    """How many events there are in ``event``, counted as often as they are met, and how deep they are nested."""
    if id(event) not in known:
        if depth > _DEEPEST:
            raise UnreadableEvent(event, f"events must be nested {_DEEPEST} deep at most")
        inner = getattr(event, "events", None)
        parts = [*(inner if isinstance(inner, list | tuple) else ()), getattr(event, "event", None)]
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


def _composed(event: dp_event.ComposedDpEvent, relation: str) -> Reading:
    return sum((_read(part, relation) for part in event.events), Reading())


def _self_composed(event: dp_event.SelfComposedDpEvent, relation: str) -> Reading:
    count = operator.index(event.count)
    if not 0 <= count <= MOST:
        raise ValueError(f"count must be a whole number from 0 to 2**53, got {count}")
    return _read(event.event, relation) * count if count else Reading()


def _one_run(inner: Reading) -> Mechanism:
    """The mechanism of ``inner``, if it is one run of one pair."""
    if not inner.is_single:
        raise ValueError(
            "a sample of a composition has an analysis only if it consists of Gaussians; compose sampled events instead"
        )
    return inner.mechanism()


def _poisson(event: dp_event.PoissonSampledDpEvent, relation: str) -> Reading:
    """The inner event on a Poisson sample (Zhu, Dong, Wang 2022, Theorem 11; replaced records: `PoissonSampled`).

    A record that is replaced by one of value zero is as good as absent only where records are summed up.
    """
    rate = float(event.sampling_probability)
    _validate.rate(sampling_probability=rate)
    if rate == 0.0:  # nobody takes part, whatever would run
        return Reading()
    if rate == 1.0:
        return _read(event.event, relation)
    # In the sample or not: what is in it moves a sum by the bound on one record.
    inner = _read(event.event, inside(relation, "add_or_remove") if relation == "replace" else relation)
    if not inner.private or inner.is_nothing:
        return inner
    mechanism = mechanisms.PoissonSampled(_one_run(inner), rate)
    is_sum = inner.rho == 0 and all(part.is_sum for part in inner.parts.values())
    if relation != "add_or_remove" and not is_sum:
        raise ValueError(f"sampling has an analysis under {relation!r} only for noise that is added to a sum")
    return leaf(mechanism, relation, is_sum)


def _fixed_size(kind: Callable[[Mechanism, int, int], Mechanism], event: _FixedSize, relation: str) -> Reading:
    """The inner event on a sample of fixed size, in which every record takes the place of another one.

    So the inner event is read for replaced records, whatever the relation.
    """
    size, total = operator.index(event.sample_size), operator.index(event.source_dataset_size)
    if kind is mechanisms.SampledWithoutReplacement and 0 < size == total:  # no sample
        return _read(event.event, relation)
    if not 0 <= size <= total:
        raise ValueError(f"sample_size must be a whole number from 0 to {total}, got {size}")
    if relation == "replace_special":
        raise ValueError("samples of a fixed size have an analysis for 'add_or_remove' and 'replace' only")
    if size == 0:
        return Reading()
    inner = _read(event.event, inside(relation, "replace"))
    if not inner.private or inner.is_nothing:
        return inner
    return leaf(kind(_one_run(inner), size, total), relation)


def _truncated(event: dp_event.TruncatedSubsampledGaussianDpEvent, relation: str) -> Reading:
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
        return Reading(private=False)
    noise = mechanisms.Gaussian(float(event.noise_multiplier), moves(inside(relation, "add_or_remove")))
    return leaf(mechanisms.TruncatedPoisson(noise, rate, size, total), relation)


def _selection(event: dp_event.RepeatAndSelectDpEvent, relation: str) -> Reading:
    inner = _read(event.event, relation)
    if not inner.private or inner.is_nothing:
        return inner
    return leaf(PrivateSelection(inner.mechanism(), float(event.mean), float(event.shape)), relation)


_READERS: dict[type, Callable[..., Reading]] = {
    dp_event.NoOpDpEvent: lambda event, relation: Reading(),
    dp_event.NonPrivateDpEvent: lambda event, relation: Reading(private=False),
    dp_event.GaussianDpEvent: partial(noise_events.on_sum, mechanisms.Gaussian),
    dp_event.LaplaceDpEvent: partial(noise_events.on_sum, mechanisms.Laplace),
    dp_event.DiscreteLaplaceDpEvent: noise_events.discrete_laplace,
    dp_event.RandomizedResponseDpEvent: noise_events.response,
    dp_event.MixtureOfGaussiansDpEvent: noise_events.mixture,
    dp_event.ZCDpEvent: noise_events.zcdp,
    dp_event.SingleEpochTreeAggregationDpEvent: noise_events.tree,
    dp_event.ComposedDpEvent: _composed,
    dp_event.SelfComposedDpEvent: _self_composed,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.SampledWithoutReplacementDpEvent: partial(_fixed_size, mechanisms.SampledWithoutReplacement),
    dp_event.SampledWithReplacementDpEvent: partial(_fixed_size, mechanisms.SampledWithReplacement),
    dp_event.TruncatedSubsampledGaussianDpEvent: _truncated,
    dp_event.RepeatAndSelectDpEvent: _selection,
}
# Events that dp_accounting's 0.6.0 does not have yet.
_NEWER: dict[str, Callable[..., Reading]] = {
    "EpsilonDeltaDpEvent": noise_events.claimed,
    "DiscreteGaussianDpEvent": noise_events.discrete_gaussian,
    "ExponentialMechanismDpEvent": partial(noise_events.by_epsilon, mechanisms.Exponential),
    "PermuteAndFlipDpEvent": partial(noise_events.by_epsilon, mechanisms.PermuteAndFlip),
}
_READERS |= {getattr(dp_event, name): reader for name, reader in _NEWER.items() if hasattr(dp_event, name)}
