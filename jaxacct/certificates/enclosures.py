"""Enclosures of delta and epsilon of mechanisms, each by the first method that suits its laws."""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction
from typing import NamedTuple, TypeGuard

from jaxacct.certificates.allocation import epoch_delta
from jaxacct.certificates.balls import arb, ball, ctx, digits_of, positive_part
from jaxacct.certificates.contour import Transforms, near_one, on_line, saddle, tail_bound
from jaxacct.certificates.lattice import lattice_delta, lattice_of
from jaxacct.certificates.laws.atoms import AtomTransform, atoms_delta, count_of_sums, masses_of
from jaxacct.certificates.laws.base import Atoms, Epoch, Joined, Law, Normal, Revealed, Shifts, Step
from jaxacct.certificates.laws.halves import joined_cells, joined_delta, shifts_delta
from jaxacct.certificates.laws.laplace import LaplaceTransform, laplace_residues
from jaxacct.certificates.laws.mixtures import MixtureTransform, NormalTransform, normal_delta
from jaxacct.certificates.laws.revealed import RevealedTransform, revealed_cells
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.smoothed import smoothed_delta
from jaxacct.certificates.transforms import Transform

_MOST_SUMS = 100_000
_FEW = 3_000  # sums that are taken where a lattice would do as well
_MOST_RESIDUES = 1_500
_NODES = (3_000, 48_000)
_PLAIN = 7.0  # digits of a smoothed enclosure that are asked of its other errors
_NODES_OF_CELLS = (3_000, 12_000)
_PLAIN_OF_CELLS = 4.0
_TAIL = "Chernoff's bound"
_TINY = arb(2) ** -16_000


class Enclosure(NamedTuple):
    """Exact ends, how they were found, and the working precision in bits."""

    lower: arb
    upper: arb
    method: str
    bits: int


def infinite_mass(laws: list[Step], reverse: bool) -> arb:
    """The mass of infinite losses of a composition, as an exact ball not above it."""
    with ctx.workprec(256):
        whole = arb(1)
        for law, n in laws:
            if isinstance(law, Atoms):
                whole *= (1 - masses_of(law, reverse).infinite) ** n
        return positive_part(1 - whole).lower()


def delta_enclosure(
    laws: list[Step], epsilon: Fraction, reverse: bool, digits: float, other: bool = False
) -> Enclosure:
    """delta(epsilon) of a composition in one direction, to ``digits`` significant digits where that is within reach.

    ``reverse`` is `add` instead of `remove`. With ``other`` it goes along another line with more bits: an enclosure
    that shares no rounding with the first.
    """
    if not laws:
        return Enclosure(arb(0), arb(0), "closed form", 64)
    best: Enclosure | None = None
    bits = 3.33 * digits + 48 + math.log2(1 + sum(n for _, n in laws)) + (64 if other else 0)
    wanted = digits
    for _ in range(5):
        with ctx.workprec(max(64, math.ceil(bits))):
            lower, upper, method = _at(laws, epsilon, reverse, wanted, other)
            lower, upper = positive_part(lower).lower(), upper.min(arb(1)).upper()
            if upper.is_finite() and lower < _TINY:
                # Numbers of millions of digits are of no use to anybody.
                lower, upper = arb(0), upper.max(_TINY) if upper > 0 else upper
        if upper.is_finite() and (best is None or not upper - lower > best.upper - best.lower):
            best = Enclosure(lower, upper, method, math.ceil(bits))
        if (
            method in ("smoothed contour", "lattice of ratios")
            or (method == _TAIL and lower == 0)
            or upper == 0
            or upper == _TINY
        ):
            break
        if best is not None and digits_of(best.lower, best.upper) >= digits:
            break
        if "contour" in method and upper.is_finite():
            missing = digits - digits_of(lower, upper)
            if missing > 0.2 * digits and wanted > digits:
                break  # fewer digits are what it can give
            wanted, bits = wanted + missing + 1.0, bits + 3.33 * missing + 4.0
            continue
        bits *= 2
    if best is None:
        raise NoCertificateError("no finite enclosure was found")
    return best


def _at(laws: list[Step], epsilon: Fraction, reverse: bool, digits: float, other: bool) -> tuple[arb, arb, str]:
    at = ball(epsilon)
    law, steps = laws[0]
    if len(laws) == 1 and steps == 1:
        if isinstance(law, Epoch):
            return (*epoch_delta(law, at, reverse), "lattice of ratios")
        found = _one_run(law, at, reverse)
        return found.lower(), found.upper(), "closed form"
    if any(isinstance(law, Epoch) for law, _ in laws):
        raise NoCertificateError("RandomAllocation has certificates for one epoch")
    if len(laws) == 1 and _is_laplace(law) and steps <= _MOST_RESIDUES:
        found = laplace_residues(law, steps, at)
        return found.lower(), found.upper(), "residues"
    parts = [(masses_of(law, reverse), n) for law, n in laws if isinstance(law, Atoms)]
    if len(parts) == len(laws):
        lattice = lattice_of(parts[0][0]) if len(parts) == 1 else None
        if count_of_sums([(len(masses.pairs), n) for masses, n in parts]) <= (_MOST_SUMS if lattice is None else _FEW):
            found = atoms_delta(parts, at.exp())
            return found.lower(), found.upper(), "sum over counts"
        if lattice is not None:
            masses = parts[0][0]
            single = AtomTransform(masses)
            sure = near_one([(single, steps)], at, digits)
            found = lattice_delta(single, steps, lattice, at, digits) if sure is None else sure
            found += 1 - (1 - masses.infinite) ** steps
            method = "lattice contour" if sure is None else _TAIL
            return found.lower(), (found + (masses.lost * steps).abs_upper()).upper(), method
    try:
        return _inverted(laws, at, reverse, digits, other)
    except NoCertificateError:
        # Of a direction next to whose largest loss epsilon is, and which hardly counts, a bound will do.
        transforms = [(_finite(law, reverse, True), n) for law, n in laws]
        bound = tail_bound(transforms, at)
        if not bound < 1:
            raise
        return (*_with_masses(transforms, at, arb(0), bound), _TAIL)


def _inverted(laws: list[Step], at: arb, reverse: bool, digits: float, other: bool) -> tuple[arb, arb, str]:
    """From the transform along a line."""
    if not any(_cut(law) for law, _ in laws) and (any(_smooth(law) for law, _ in laws) or _falls(laws)):
        transforms = [(_transform(law, reverse), n) for law, n in laws]
        sure = near_one(transforms, at, digits)
        if sure is not None:
            return (*_with_masses(transforms, at, sure, sure), _TAIL)
        line = saddle(transforms, at)
        if other:
            line = (1 + (line - 1) * 0.8).mid()
        for wanted in sorted({digits, min(digits, 9.0), min(digits, 5.0)}, reverse=True):
            with contextlib.suppress(NoCertificateError):
                found = on_line(transforms, line, at, wanted)
                return (*_with_masses(transforms, at, found, found), "contour")
    return _smoothed(laws, at, reverse, digits)


def _smoothed(laws: list[Step], at: arb, reverse: bool, digits: float) -> tuple[arb, arb, str]:
    """From means over nearby epsilons."""
    ends, cut = [], any(_cut(law) for law, _ in laws)
    for upper in (False, True):
        transforms = [(_finite(law, reverse, upper), n) for law, n in laws]
        quick = all(isinstance(one, AtomTransform | NormalTransform) for one, _ in transforms)
        nodes = _NODES_OF_CELLS[digits > _PLAIN :][:1] if cut else _NODES if quick else _NODES[:1]
        plain = min(digits, _PLAIN_OF_CELLS if cut else _PLAIN)
        found = [smoothed_delta(transforms, at, plain, count) for count in nodes]
        ends.append(_with_masses(transforms, at, *min(found, key=lambda pair: float(pair[1] - pair[0]))))
        if not cut:
            return (*ends[0], "smoothed contour")
    return ends[0][0], ends[1][1], "smoothed contour"


def _is_laplace(law: Law) -> TypeGuard[Shifts]:
    return isinstance(law, Shifts) and law.noise == "laplace" and law.plain


def _falls(laws: list[Step]) -> bool:
    """Whether so many runs of Laplace noise make a transform that falls far enough by itself."""
    return sum(float(law.parts[0][1]) * n for law, n in laws if _is_laplace(law)) > 40


def _smooth(law: Law) -> bool:
    """Whether the transform falls along a line as a Gaussian's does."""
    return isinstance(law, Normal | Revealed) or (isinstance(law, Shifts) and law.noise == "normal")


def _cut(law: Law) -> bool:
    """Whether the law is cut into cells for a composition: samples of Laplace noise, joined halves."""
    if isinstance(law, Revealed):
        return any(_cut(part) for _, _, part in law.parts)
    return isinstance(law, Joined) or (isinstance(law, Shifts) and law.noise == "laplace" and not law.plain)


def _with_masses(transforms: Transforms, epsilon: arb, lower: arb, upper: arb) -> tuple[arb, arb]:
    """delta with the infinite losses and what was cut, of the numerator or of the denominator."""
    whole, lost, beneath = arb(1), arb(0), arb(0)
    for one, n in transforms:
        whole *= (1 - one.infinite) ** n
        lost += one.lost * n
        beneath += one.lost_beneath * n
    lower -= epsilon.exp() * beneath
    return (lower + 1 - whole).lower(), (upper + 1 - whole + lost.abs_upper()).upper()


def _finite(law: Law, reverse: bool, upper: bool) -> Transform:
    """A transform that is fast along the line: that of cells, where the law is cut into them."""
    if not _cut(law):
        return _transform(law, reverse)
    cells = revealed_cells(law, reverse, upper) if isinstance(law, Revealed) else joined_cells(law, reverse, upper)
    return AtomTransform(cells)


def _one_run(law: Law, epsilon: arb, reverse: bool) -> arb:
    if isinstance(law, Normal):
        return normal_delta(law, epsilon)
    if isinstance(law, Shifts):
        return shifts_delta(law, epsilon, reverse)
    if isinstance(law, Joined):
        return joined_delta(law, epsilon, reverse)
    if isinstance(law, Revealed):
        parts = [(ball(share), ball(gain), part) for share, gain, part in law.parts]
        if reverse:
            return sum((share * _one_run(part, epsilon + gain.log(), True) for share, gain, part in parts), arb(0))
        return sum((share * gain * _one_run(part, epsilon - gain.log(), False) for share, gain, part in parts), arb(0))
    assert isinstance(law, Atoms)
    return atoms_delta([(masses_of(law, reverse), 1)], epsilon.exp())


def _transform(law: Law, reverse: bool) -> Transform:
    if isinstance(law, Normal):
        return NormalTransform(law)
    if isinstance(law, Shifts):
        return LaplaceTransform(law) if law.noise == "laplace" else MixtureTransform(law, reverse)
    if isinstance(law, Revealed):
        parts = [(ball(share), ball(gain), _transform(part, reverse)) for share, gain, part in law.parts]
        return RevealedTransform(parts, reverse)
    assert isinstance(law, Atoms)
    return AtomTransform(masses_of(law, reverse))
