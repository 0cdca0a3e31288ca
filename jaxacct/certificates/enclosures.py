"""Enclosures of delta and epsilon of mechanisms, each by the first method that suits its laws."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from jaxacct.certificates.atoms import AtomTransform, atoms_delta, count_of_sums, masses_of
from jaxacct.certificates.balls import arb, ball, digits_of, positive_part, precision
from jaxacct.certificates.contour import NoCertificateError, on_line
from jaxacct.certificates.laplace import LaplaceTransform, laplace_delta, laplace_residues
from jaxacct.certificates.laws import Atoms, LaplaceNoise, Mixture, Normal, Step
from jaxacct.certificates.mixtures import MixtureTransform, NormalTransform, mixture_delta, normal_delta
from jaxacct.certificates.smoothed import smoothed_delta

__all__ = ["Enclosure", "delta_enclosure", "is_symmetric"]

_MOST_SUMS = 100_000
_MOST_RESIDUES = 800
_NODES = (2_000, 16_000)
_PLAIN = 6.0  # digits of a smoothed enclosure that are asked of its other errors


class Enclosure(NamedTuple):
    """Exact ends, how they were found, and the working precision in bits."""

    lower: Any
    upper: Any
    method: str
    bits: int


def is_symmetric(laws: list[Step]) -> bool:
    """Whether `add` and `remove` are the same question."""
    return all(
        isinstance(law, Normal)
        or (isinstance(law, LaplaceNoise) and law.rate == 1)
        or (isinstance(law, Atoms) and law.rate == 1 and law.kind != "table")
        for law, _ in laws
    )


def delta_enclosure(laws: list[Step], epsilon: Fraction, reverse: bool, digits: float, other: bool = False) -> Enclosure:
    """delta(epsilon) of a composition in one direction, to ``digits`` significant digits where that is within reach.

    Args:
        laws: from `laws_of`.
        epsilon: >= 0.
        reverse: `add` instead of `remove`.
        digits: decimal digits.
        other: along another line and with more bits: an enclosure that shares no rounding with the first.

    Raises:
        NoCertificateError: none within the limits of work.
    """
    if not laws:
        return Enclosure(arb(0), arb(0), "closed form", 64)
    best: Enclosure | None = None
    bits = 3.33 * digits + 48 + math.log2(1 + sum(n for _, n in laws)) + (64 if other else 0)
    for _ in range(5):
        with precision(bits):
            lower, upper, method = _at(laws, epsilon, reverse, digits, other)
            lower, upper = positive_part(lower).lower(), upper.min(arb(1)).upper()
        if upper.is_finite() and (best is None or not upper - lower > best.upper - best.lower):
            best = Enclosure(lower, upper, method, math.ceil(bits))
        if best is not None and (digits_of(best.lower, best.upper) >= digits or method == "smoothed contour"):
            break
        bits *= 2
        if upper.is_finite() and method == "contour":
            digits += 1.5 * max(1.0, digits - digits_of(lower, upper))
    if best is None:
        raise NoCertificateError("no finite enclosure was found")
    return best


def _at(laws: list[Step], epsilon: Fraction, reverse: bool, digits: float, other: bool) -> tuple[Any, Any, str]:
    at = ball(epsilon)
    if len(laws) == 1 and laws[0][1] == 1:
        found = _one_run(laws[0][0], at, reverse)
        return found.lower(), found.upper(), "closed form"
    if all(isinstance(law, Atoms) for law, _ in laws):
        parts = [(masses_of(law, reverse), n) for law, n in laws]
        if count_of_sums([(len(masses.pairs), n) for masses, n in parts]) <= _MOST_SUMS:
            found = atoms_delta(parts, at.exp())
            return found.lower(), found.upper(), "sum over counts"
    if len(laws) == 1 and isinstance(laws[0][0], LaplaceNoise):
        law, steps = laws[0]
        if law.rate == 1 and steps <= _MOST_RESIDUES:
            with precision(float(at.prec) if hasattr(at, "prec") else 0):
                pass
            found = laplace_residues(law, steps, at)
            return found.lower(), found.upper(), "residues"
    transforms = [(_transform(law, reverse), n) for law, n in laws]
    lost = sum((one.masses.lost * n for one, n in transforms if isinstance(one, AtomTransform)), arb(0))
    whole = arb(1)
    for one, n in transforms:
        whole *= (1 - one.masses.infinite) ** n if isinstance(one, AtomTransform) else 1
    infinite = 1 - whole
    line = None
    if any(isinstance(law, Normal | Mixture) for law, _ in laws):
        if other:
            line = _moved(transforms, float(at))
        found, _ = on_line(transforms, at, digits, line)
        return (found + infinite).lower(), (found + infinite + lost.abs_upper()).upper(), "contour"
    kept: tuple[Any, Any] | None = None
    for nodes in _NODES:
        low, high = smoothed_delta(transforms, at, min(digits, _PLAIN + 4.0), nodes, line)
        if kept is None or high - low < kept[1] - kept[0]:
            kept = low, high
        if digits_of(*kept) >= digits:
            break
    assert kept is not None
    low, high = kept
    return (low + infinite).lower(), (high + infinite + lost.abs_upper()).upper(), "smoothed contour"


def _moved(transforms: Any, epsilon: float) -> float:
    from jaxacct.certificates.contour import saddle

    c = saddle(transforms, epsilon)
    return 1 + (c - 1) * 0.8


def _one_run(law: Any, epsilon: Any, reverse: bool) -> Any:
    if isinstance(law, Normal):
        return normal_delta(law, epsilon)
    if isinstance(law, Mixture):
        return mixture_delta(law, epsilon, reverse)
    if isinstance(law, LaplaceNoise):
        return laplace_delta(law, epsilon, reverse)
    return atoms_delta([(masses_of(law, reverse), 1)], epsilon.exp())


def _transform(law: Any, reverse: bool) -> Any:
    if isinstance(law, Normal):
        return NormalTransform(law)
    if isinstance(law, Mixture):
        return MixtureTransform(law, reverse)
    if isinstance(law, LaplaceNoise):
        return LaplaceTransform(law, reverse)
    return AtomTransform(masses_of(law, reverse))
