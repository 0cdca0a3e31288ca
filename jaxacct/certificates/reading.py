"""The laws of a mechanism's runs under a neighbouring relation, in exact numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from jaxacct import mechanisms as m
from jaxacct._validate import is_traced
from jaxacct.certificates.laws.alone import ALONE, number
from jaxacct.certificates.laws.base import Atoms, Step
from jaxacct.certificates.laws.samples import SAMPLES, merged, replaced
from jaxacct.mechanisms.base import Mechanism

RELATIONS = {
    "remove": ("presence", (False,)),
    "add": ("presence", (True,)),
    "add_or_remove": ("presence", (False, True)),
    "replace": ("replace", (False,)),
    "replace_special": ("special", (False, True)),
    "zero_out": ("special", (False,)),
    "fill_in": ("special", (True,)),
}
"""What changes, and whether the pair is taken in reverse; the answer is the worst of these."""

_NOT_ATTAINED = "an upper bound of the worst case: a dominating pair that no data are known to attain"


def laws_of(mechanism: Mechanism, steps: int, relation: str) -> list[Step]:
    """Different laws and how often each runs. Gaussians are one `Normal`."""
    if is_traced(mechanism):
        raise ValueError("mechanism must be concrete for a certificate, got a traced one")
    return merged(_read(mechanism, RELATIONS[relation][0]), steps)


def certified(mechanism: Mechanism, relation: str) -> str:
    """What the laws of `laws_of` are to the mechanism, in words."""
    return "the worst case" if _attained(mechanism, RELATIONS[relation][0]) else _NOT_ATTAINED


def _attained(mechanism: Any, change: str) -> bool:
    """Whether data are known that attain the pair, for every number of steps."""
    kind = type(mechanism)
    if isinstance(mechanism, m.Composed):
        return all(_attained(part, change) for part, _ in mechanism.parts())
    if kind in (m.Shuffled, m.TruncatedPoisson):
        return False
    if change == "replace" and kind in (m.SampledWithoutReplacement, m.SampledWithReplacement):
        return False
    return kind not in SAMPLES or _attained(mechanism.mechanism, change)


def _read(mechanism: Any, change: str) -> list[Step]:
    kind = type(mechanism)
    if isinstance(mechanism, m.Composed):
        parts = [(part, int(number("steps", n))) for part, n in mechanism.parts()]
        return [(law, count * n) for part, n in parts for law, count in _read(part, change)]
    if kind in SAMPLES:
        inner = type(mechanism.mechanism)
        # Of samples, only Poisson samples may be sampled again.
        if inner in SAMPLES and kind not in (m.Shuffled, m.RandomAllocation) and {kind, inner} != {m.PoissonSampled}:
            raise ValueError(f"mechanism must not be a {kind.__name__} {inner.__name__} for a certificate")
        return SAMPLES[kind](mechanism, change, merged(_read(mechanism.mechanism, "presence"), 1))
    if kind not in ALONE:
        can = ", ".join(one.__name__ for one in (*ALONE, *SAMPLES))
        raise ValueError(
            f"mechanism must have a transform in closed form for a certificate, got {kind.__name__}; {can} and "
            "Composed have one"
        )
    law = ALONE[kind](mechanism)
    if change == "replace" and isinstance(law, Atoms) and law.kind == "table":
        raise ValueError(
            "relation 'replace' has no certificate for FromTables without a sample; 'add_or_remove' has one"
        )
    if change == "replace" and kind is m.RandomSensitivityGaussian:
        return replaced([(law, 1)], Fraction(1))
    return [(law, 1)]
