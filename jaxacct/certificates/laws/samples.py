"""The laws of runs on samples and epochs, in exact numbers, from the law of the mechanism that runs on them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from jaxacct import mechanisms as m
from jaxacct._numerics.binomial import binomial_split
from jaxacct.certificates.balls import Exact
from jaxacct.certificates.laws.alone import moved, number
from jaxacct.certificates.laws.base import Atoms, Draws, Epoch, Joined, Law, Normal, Revealed, Shifts, Step
from jaxacct.certificates.laws.shares import Cell, Cut, Rest, draws
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.parameters import LEAST_RATE
from jaxacct.mechanisms.samples.cut_cells import share_moved

_ZERO, _ONE = Fraction(0), Fraction(1)
_WRITTEN = 32  # records of a user whose probabilities are written as exact numbers


def merged(laws: list[Step], steps: int) -> list[Step]:
    """Equal laws together, and Gaussians as one, all of them ``steps`` times."""
    counted: Counter[Law] = Counter()
    square = _ZERO
    for law, count in laws:
        if isinstance(law, Atoms) and law.kind == "response" and law.parameters[0] == law.parameters[2] == 0:
            continue  # both sides are the same
        if isinstance(law, Normal):
            square += law.square * count * steps
        else:
            counted[law] += count * steps
    return [*([(Normal(square), 1)] if square else []), *counted.items()]


def _poisson(mechanism: m.PoissonSampled, change: str, laws: list[Step]) -> list[Step]:
    rate = number("rate", mechanism.rate)
    return replaced(laws, rate) if change == "replace" else _sampled(laws, rate)


def _only(laws: list[Step]) -> Normal | Shifts | Atoms:
    law, count = laws[0]
    if len(laws) > 1 or count > 1:
        raise ValueError("mechanism must not be a sample of a composition, but of Gaussians, for a certificate")
    if not isinstance(law, Normal | Shifts | Atoms) or (isinstance(law, Shifts) and law.lost):
        raise ValueError("mechanism must not be a sample of batches of a bounded size for a certificate")
    return law


def _mixed(law: Normal | Shifts, rate: Fraction, *, apart: bool = False) -> list[Step]:
    """A sample of moved noise; ``apart`` from one that is moved the other way."""
    noise, parts = ("normal", ((_ONE, law.square),)) if isinstance(law, Normal) else (law.noise, law.parts)
    return [(moved(noise, [(1 - rate, _ZERO)] + [(rate * w, move) for w, move in parts], apart=apart), 1)]


def _sampled(laws: list[Step], rate: Fraction) -> list[Step]:
    if not rate or rate == 1 or not laws:
        return laws if rate else []
    law = _only(laws)
    return [(dataclasses.replace(law, rate=law.rate * rate), 1)] if isinstance(law, Atoms) else _mixed(law, rate)


def replaced(laws: list[Step], rate: Fraction) -> list[Step]:
    """Samples with one record and with another in its place (docs/proofs/replaced-records.md)."""
    if not rate or not laws:
        return []
    law = _only(laws)
    if isinstance(law, Atoms):
        return [(dataclasses.replace(law, rate=rate * law.rate, form="replaced"), 1)]
    return _mixed(law, rate, apart=True)


def _gaussian_square(mechanism: Mechanism, laws: list[Step]) -> Fraction:
    squares = [law.square for law, _ in laws if isinstance(law, Normal)]
    if len(squares) < len(laws):
        raise ValueError(f"mechanism of {type(mechanism).__name__} must be Gaussian for a certificate")
    return sum(squares, _ZERO)


def _not_special(mechanism: Mechanism, change: str) -> None:
    if change == "special":
        raise ValueError(
            f"relation 'replace_special' has no analysis for {type(mechanism).__name__}; 'replace' has one"
        )


def _without_replacement(mechanism: m.SampledWithoutReplacement, change: str, laws: list[Step]) -> list[Step]:
    _not_special(mechanism, change)
    rate = number("sample_size", mechanism.sample_size) / number("dataset_size", mechanism.dataset_size)
    if change != "replace" or rate == 1 or not laws:
        return _sampled(laws, rate)
    law = _only(laws)
    if isinstance(law, Normal) or (isinstance(law, Shifts) and law.plain):
        ((half, _),) = _mixed(law, rate)
        assert isinstance(half, Shifts)
        return [(Joined(half, half), 1)]
    if isinstance(law, Atoms) and law.rate == 1 and law.kind != "table":
        return [(dataclasses.replace(law, rate=rate, form="joined"), 1)]
    raise ValueError("mechanism of SampledWithoutReplacement must have a symmetric pair for a certificate")


def _one_sample(rate: Exact, move: Fraction, base: Fraction = _ZERO) -> Shifts:
    """A sample of normal noise of any rate, against the noise or against a sample that is moved by another distance."""
    parts, other = (((Rest(rate), _ZERO), (rate, one)) for one in (move, base))
    return Shifts("normal", parts, other) if base else Shifts("normal", parts)


def _with_replacement(mechanism: m.SampledWithReplacement, change: str, laws: list[Step]) -> list[Step]:
    _not_special(mechanism, change)
    square = _gaussian_square(mechanism, laws)
    if not square:
        return []
    weights, lost = draws(int(number("batch", mechanism.batch)), 1 / number("records", mechanism.records))
    if change == "replace":
        half = Draws(square, weights, lost)
        return [(Joined(half, half), 1)]
    return [(Shifts("normal", tuple((w, j * j * square) for j, w in enumerate(weights)), lost=lost), 1)]


def _user(mechanism: m.UserLevel, change: str, laws: list[Step]) -> list[Step]:
    square = _gaussian_square(mechanism, laws)
    rate, records = number("rate", mechanism.rate), int(number("records", mechanism.records))
    if rate == 1:
        return [(Normal((4 if change == "replace" else 1) * records**2 * square), 1)]
    if records > _WRITTEN:
        if change == "replace":
            raise ValueError(f"UserLevel has certificates under 'replace' for up to {_WRITTEN} records, got {records}")
        weights, lost = draws(records, rate)
        return [(Shifts("normal", tuple((w, j * j * square) for j, w in enumerate(weights)), lost=lost), 1)]
    parts = [
        (math.comb(records, j) * rate**j * (1 - rate) ** (records - j), j * j * square) for j in range(records + 1)
    ]
    return [(moved("normal", parts, apart=change == "replace"), 1)]


def _truncated(mechanism: m.TruncatedPoisson, change: str, laws: list[Step]) -> list[Step]:
    square = _gaussian_square(mechanism, laws)
    rate, largest, records = (number(name, getattr(mechanism, name)) for name in ("rate", "largest", "records"))
    cut = Cut(rate, int(largest), int(records))
    if not square or not rate:
        return []
    if largest >= records:
        return replaced(laws, rate) if change == "replace" else _sampled(laws, rate)
    moved_share = _share_moved(square, cut)
    of = lambda name: Cell(cut, moved_share, name)  # noqa: E731
    opposite = -square if change == "replace" else _ZERO
    usual, near = _one_sample(rate, square, opposite), _one_sample(of("near_rate"), square, opposite)
    here = of("full_rate") if moved_share < 1 else Fraction(LEAST_RATE)  # a bound of none
    full: Law = _one_sample(here, 4 * square)
    if change == "replace":
        full = Joined(full, full)
    elif change == "special" and moved_share < 1:
        full = Joined(_one_sample(here, 4 * square, square), _one_sample(here, square))
    parts = ((of("earlier"), 1, usual), (of("near"), 1, near), (of("full"), 1, full))
    if change == "presence":
        parts = (parts[0], (of("last"), of("near_gain"), near), (of("cut"), of("full_gain"), full))
    return [(Revealed(parts if rate < 1 else parts[2:]), 1)]


def _share_moved(square: Fraction, cut: Cut) -> Fraction:
    """The share that the bounds take; any makes a proof, and another one a different number."""
    split = binomial_split(cut.records - 1.0, float(cut.rate), float(cut.largest))
    return Fraction(float(share_moved(np.asarray(float(1 / square) ** 0.5), np.asarray(float(cut.rate)), split)))


def _allocated(mechanism: m.RandomAllocation, change: str, laws: list[Step]) -> list[Step]:
    batches, taken = (int(number(name, getattr(mechanism, name))) for name in ("batches", "participations"))
    if change == "replace" or taken != 1:
        raise ValueError(
            "RandomAllocation has certificates for one participation under 'add' and 'remove', got "
            f"{taken} participations{' and replaced records' if change == 'replace' else ''}"
        )
    return laws if batches == 1 or not laws else [(Epoch(_only(laws), batches), 1)]


def _shuffled(mechanism: m.Shuffled, change: str, laws: list[Step]) -> list[Step]:
    del mechanism
    return replaced(laws, _ONE) if change == "replace" else laws


SAMPLES: dict[type[Mechanism], Callable[[Any, str, list[Step]], list[Step]]] = {
    m.PoissonSampled: _poisson,
    m.RandomAllocation: _allocated,
    m.SampledWithReplacement: _with_replacement,
    m.SampledWithoutReplacement: _without_replacement,
    m.Shuffled: _shuffled,
    m.TruncatedPoisson: _truncated,
    m.UserLevel: _user,
}
"""Of a mechanism on samples, the change, and the laws of what runs on them with the record or without: the laws."""
