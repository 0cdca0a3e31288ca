"""What every audit finds: a lower bound of epsilon, and whether a mechanism is refuted; it prints as sentences."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxacct import _validate
from jaxacct._printing import rounded_down, rounded_up
from jaxacct.accounting.queries import epsilon as epsilons
from jaxacct.audit import p_values
from jaxacct.mechanisms.base import Mechanism, as_mechanism

_SYMMETRIC = ("add_or_remove", "replace", "replace_special")
_NO_GUARANTEE = "A lower bound at a confidence is no guarantee of privacy: a better attack may find more."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What :class:`OneRun` and :class:`ManyRuns` have in common.

    Attributes:
        delta: the delta that the epsilons are at.
        confidence: with at least this probability, what is said here is true of the implementation.
        epsilon: the implementation is not (epsilon', ``delta``)-DP for any epsilon' below, whatever it computes.
            Rounded down.
        p_value: of the mechanism that was accounted for, rounded up; None where none was given.
        certified: the upper bound of epsilon at ``delta`` that was accounted for; None where no mechanism was given.
    """

    delta: float
    confidence: float
    epsilon: float
    p_value: float | None = None
    certified: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether the implementation is, at ``confidence``, none of the mechanism: it leaks more than its curve."""
        return self.p_value is not None and self.p_value <= 1.0 - self.confidence

    def verdict(self, counted: str, more: str = "") -> str:
        """What was refuted, or that nothing was, in sentences; ``counted`` says on what grounds."""
        share, at, lines = f"{100.0 * self.confidence:.6g} %", f"delta {self.delta:g}", []
        if self.p_value is not None and self.certified is not None:
            claimed = f"the mechanism that was accounted for (epsilon {rounded_up(self.certified, 5)} at {at})"
            what = "is refuted: it is not" if self.refuted else "is not refuted: nothing here contradicts"
            value = f"p-value {rounded_up(self.p_value, 2)}"
            lines.append(f"At confidence {share} this implementation {what} {claimed}; {value}.")
        it = "it" if lines else "this implementation"
        if self.epsilon > 0.0:
            least = rounded_down(self.epsilon, 5)
            below = f"not differentially private with delta {self.delta:g} and any epsilon below {least}"
            lines.append(f"At confidence {share} {it} is {below}{more}: {counted}.")
        else:
            lines.append(f"At confidence {share} no epsilon at {at} is refuted{more}: {counted}.")
        return " ".join([*lines, _NO_GUARANTEE])


def claim(
    mechanism: Mechanism | None, delta: float, steps: int, relation: str
) -> tuple[p_values.Least | None, float | None]:
    """What a mechanism claims: its curve, and its epsilon at ``delta``; nothing where there is none."""
    _validate.one_of(_SYMMETRIC, relation=relation)
    _validate.whole(steps=steps)
    if mechanism is None:
        return None, None
    mechanism = as_mechanism(mechanism)
    certified = epsilons(mechanism, delta, steps=steps, relation=relation).upper
    if _validate.is_traced(certified) or np.ndim(certified):
        raise ValueError(f"mechanism must have concrete scalar parameters, got a batch of shape {np.shape(certified)}")
    return p_values.certified(mechanism, int(steps), relation), float(certified)
