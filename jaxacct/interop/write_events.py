"""Writes mechanisms as dp_accounting's events."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from dp_accounting import dp_event
from jax.typing import ArrayLike

from jaxacct import _validate, mechanisms
from jaxacct._numerics.rounding import next_to
from jaxacct.mechanisms.base import Mechanism, as_mechanism

_DOWN = 1.0 - 2.0**-51
_events: Any = dp_event  # of which 0.6.0 does not have all


def to_dp_event(mechanism: Mechanism, steps: int = 1, relation: str = "add_or_remove") -> dp_event.DpEvent:
    """``steps`` runs of ``mechanism`` as a ``DpEvent`` of dp_accounting.

    An event's noise multiplier is over the bound C on a record's value, a mechanism's sensitivity is what the relation
    moves: C, or 2 C under ``"replace"`` (C inside a `PoissonSampled`). Noise that no float is, is rounded down, so that
    the event is no more private than the mechanism. `from_dp_event` of the event has the same curve. What is known by
    an epsilon alone (`PureDP`, `PermuteAndFlip`) becomes a ``ZCDpEvent`` with xi = epsilon and rho = 0, which is the
    same claim.

    Args:
        mechanism: one with an event: `Gaussian`, `GDP`, `Laplace`, `DiscreteLaplace`, `RandomizedResponse`,
            `RandomSensitivityGaussian`, `ZeroConcentratedDP`, `PureDP`, `PermuteAndFlip`; `PoissonSampled`,
            `TruncatedPoisson`, `SampledWithoutReplacement`, `SampledWithReplacement` and `Composed` of such; where
            dp_accounting has their events, `ApproximateDP`, `DiscreteGaussian` and `Exponential` as well. Scalar
            parameters.
        steps: a whole number, at least 1.
        relation: ``"add_or_remove"``, ``"replace_special"`` or ``"replace"``: what the mechanism's sensitivity is
            stated for.

    Raises:
        ValueError: a mechanism that no event describes, or that is not scalar; bad steps.
        TypeError: parameters that are traced.
    """
    _validate.one_of(("add_or_remove", "replace_special", "replace"), relation=relation)
    _validate.whole(steps=steps)
    try:
        event = _WRITERS[type(as_mechanism(mechanism))](mechanism, relation)
    except (KeyError, AttributeError):  # none, or one that dp_accounting has after 0.6.0
        raise ValueError(
            f"mechanism must be one that dp_accounting has an event for, got {type(mechanism).__name__}"
        ) from None
    return event if int(steps) == 1 else dp_event.SelfComposedDpEvent(event, int(steps))


def _scalar(value: ArrayLike) -> float:
    if np.ndim(value):
        raise ValueError(f"mechanism must have scalar parameters, got one of shape {np.shape(value)}")
    return float(np.asarray(value))


def _halves(relation: str) -> float:
    """How many bounds on a record's value its sensitivity is."""
    return 2.0 if relation == "replace" else 1.0


def _multiplier(sigma: ArrayLike, scale: ArrayLike, relation: str) -> float:
    """Rounded down, so that the event is no more private; what is a float is itself, for round trips."""
    exact = Fraction(_scalar(sigma)) / Fraction(_scalar(scale)) * Fraction(_halves(relation))
    return next_to(min(exact, Fraction(sys.float_info.max)), -math.inf)


def _discrete_laplace(mechanism: mechanisms.DiscreteLaplace, relation: str) -> dp_event.DpEvent:
    sensitivity = int(_scalar(mechanism.sensitivity))
    if relation == "replace":
        if sensitivity % 2:
            raise ValueError(
                f"sensitivity must be even under 'replace', twice the bound on a record's value, got {sensitivity}"
            )
        sensitivity //= 2
    return dp_event.DiscreteLaplaceDpEvent(1.0 / _scalar(mechanism.scale) / _DOWN, sensitivity)


def _response(mechanism: mechanisms.RandomizedResponse, relation: str) -> dp_event.DpEvent:
    if relation != "replace":
        raise ValueError("relation must be 'replace': dp_accounting has randomized response for that only")
    epsilon, k = _scalar(mechanism.epsilon), int(_scalar(mechanism.categories))
    # k / (exp(epsilon) + k - 1), which no epsilon overflows.
    return dp_event.RandomizedResponseDpEvent(k / (1.0 + (k - 1) * math.exp(-epsilon)) * math.exp(-epsilon) * _DOWN, k)


def _mixture(mechanism: mechanisms.RandomSensitivityGaussian, relation: str) -> dp_event.DpEvent:
    sensitivities, weights = ([_scalar(x) for x in each] for each in (mechanism.sensitivities, mechanism.weights))
    return dp_event.MixtureOfGaussiansDpEvent(_scalar(mechanism.sigma), sensitivities, weights)


def _truncated_noise(mechanism: mechanisms.TruncatedPoisson) -> float:
    event = to_dp_event(mechanism.mechanism, 1, "add_or_remove")
    if not isinstance(event, dp_event.GaussianDpEvent):
        raise ValueError("mechanism of a TruncatedPoisson must be a Gaussian or GDP to have an event")
    return event.noise_multiplier


def _composed(mechanism: mechanisms.Composed, relation: str) -> dp_event.DpEvent:
    events = [to_dp_event(part, int(_scalar(steps)), relation) for part, steps in mechanism.parts()]
    return events[0] if len(events) == 1 else dp_event.ComposedDpEvent(events)


_WRITERS: dict[type, Callable[..., dp_event.DpEvent]] = {
    mechanisms.Gaussian: lambda m, relation: dp_event.GaussianDpEvent(_multiplier(m.sigma, m.sensitivity, relation)),
    mechanisms.GDP: lambda m, relation: dp_event.GaussianDpEvent(_multiplier(np.float64(1.0), m.mu, relation)),
    mechanisms.Laplace: lambda m, relation: dp_event.LaplaceDpEvent(_multiplier(m.scale, m.sensitivity, relation)),
    mechanisms.DiscreteLaplace: _discrete_laplace,
    mechanisms.RandomizedResponse: _response,
    mechanisms.RandomSensitivityGaussian: _mixture,
    mechanisms.ZeroConcentratedDP: lambda m, relation: dp_event.ZCDpEvent(_scalar(m.rho)),
    mechanisms.PureDP: lambda m, relation: dp_event.ZCDpEvent(0.0, _scalar(m.epsilon)),
    mechanisms.PermuteAndFlip: lambda m, relation: getattr(
        dp_event, "PermuteAndFlipDpEvent", partial(dp_event.ZCDpEvent, 0.0)
    )(_scalar(m.epsilon)),
    mechanisms.ApproximateDP: lambda m, relation: _events.EpsilonDeltaDpEvent(_scalar(m.epsilon), _scalar(m.delta)),
    mechanisms.DiscreteGaussian: lambda m, relation: _events.DiscreteGaussianDpEvent(
        _scalar(m.sigma), _scalar(m.sensitivity) / _halves(relation), 1
    ),
    mechanisms.Exponential: lambda m, relation: _events.ExponentialMechanismDpEvent(_scalar(m.epsilon)),
    mechanisms.PoissonSampled: lambda m, relation: dp_event.PoissonSampledDpEvent(
        _scalar(m.rate), to_dp_event(m.mechanism, 1, "add_or_remove")
    ),
    mechanisms.SampledWithReplacement: lambda m, relation: dp_event.SampledWithReplacementDpEvent(
        int(_scalar(m.records)), int(_scalar(m.batch)), to_dp_event(m.mechanism, 1, "replace")
    ),
    mechanisms.TruncatedPoisson: lambda m, relation: dp_event.TruncatedSubsampledGaussianDpEvent(
        int(_scalar(m.records)), _scalar(m.rate), int(_scalar(m.largest)), _truncated_noise(m)
    ),
    mechanisms.SampledWithoutReplacement: lambda m, relation: dp_event.SampledWithoutReplacementDpEvent(
        int(_scalar(m.dataset_size)), int(_scalar(m.sample_size)), to_dp_event(m.mechanism, 1, "replace")
    ),
    mechanisms.Composed: _composed,
}
