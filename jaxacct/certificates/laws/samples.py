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
from jaxacct.certificates.laws.alone import mixture, number
from jaxacct.certificates.laws.base import (
    Atoms,
    DrawsHalf,
    Epoch,
    Joined,
    LaplaceHalf,
    LaplaceNoise,
    Law,
    Mixture,
    Normal,
    NormalHalf,
    Rescaled,
    Revealed,
    Step,
)
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


def _only(laws: list[Step]) -> Normal | Mixture | LaplaceNoise | Atoms:
    law, count = laws[0]
    if len(laws) > 1 or count > 1:
        raise ValueError("mechanism must not be a sample of a composition, but of Gaussians, for a certificate")
    if not isinstance(law, Normal | Mixture | LaplaceNoise | Atoms) or (isinstance(law, Mixture) and law.lost):
        raise ValueError("mechanism must not be a sample of batches of a bounded size for a certificate")
    return law


def _sampled(laws: list[Step], rate: Fraction) -> list[Step]:
    if not rate or rate == 1 or not laws:
        return laws if rate else []
    law = _only(laws)
    if isinstance(law, Normal):
        law = Mixture(((_ONE, law.square),))
    if isinstance(law, Mixture):
        return [(mixture([(1 - rate, _ZERO)] + [(rate * w, square) for w, square in law.parts]), 1)]
    return [(dataclasses.replace(law, rate=law.rate * rate), 1)]


def replaced(laws: list[Step], rate: Fraction) -> list[Step]:
    """Samples with one record and with another in its place (docs/proofs/replaced-records.md)."""
    if not rate or not laws:
        return []
    law = _only(laws)
    if isinstance(law, Normal) and rate == 1:
        return [(Normal(4 * law.square), 1)]
    if isinstance(law, LaplaceNoise):
        if rate * law.rate == 1:
            return [(LaplaceNoise(2 * law.epsilon), 1)]
        half = LaplaceHalf(law.epsilon, rate * law.rate, True)
        return [(Joined(half, half), 1)]
    if isinstance(law, Atoms):
        return [(dataclasses.replace(law, rate=rate * law.rate, form="replaced"), 1)]
    parts = law.parts if isinstance(law, Mixture) else ((_ONE, law.square),)
    mixed = mixture([(1 - rate, _ZERO)] + [(rate * w, square) for w, square in parts])
    if isinstance(mixed, Normal):
        return [(Normal(4 * mixed.square), 1)]
    return [(Mixture(mixed.parts, mixed.parts), 1)]


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
    if isinstance(law, Normal):
        return [(_joined_normal(law.square, rate, 1), 1)]
    if isinstance(law, LaplaceNoise) and law.rate == 1:
        half = LaplaceHalf(law.epsilon, rate, False)
        return [(Joined(half, half), 1)]
    if isinstance(law, Atoms) and law.rate == 1 and law.kind != "table":
        return [(dataclasses.replace(law, rate=rate, form="joined"), 1)]
    raise ValueError("mechanism of SampledWithoutReplacement must have a symmetric pair for a certificate")


def _joined_normal(square: Fraction, rate: Exact, move: int) -> Joined:
    half = NormalHalf(square, ((Rest(rate), 0), (rate, move)), ((_ONE, 0),))
    return Joined(half, half)


def _with_replacement(mechanism: m.SampledWithReplacement, change: str, laws: list[Step]) -> list[Step]:
    _not_special(mechanism, change)
    square = _gaussian_square(mechanism, laws)
    if not square:
        return []
    weights, lost = draws(int(number("batch", mechanism.batch)), 1 / number("records", mechanism.records))
    if change == "replace":
        half = DrawsHalf(square, weights, lost)
        return [(Joined(half, half), 1)]
    return [(Mixture(tuple((w, j * j * square) for j, w in enumerate(weights)), lost=lost), 1)]


def _user(mechanism: m.UserLevel, change: str, laws: list[Step]) -> list[Step]:
    square = _gaussian_square(mechanism, laws)
    rate, records = number("rate", mechanism.rate), int(number("records", mechanism.records))
    if rate == 1:
        return [(Normal((4 if change == "replace" else 1) * records**2 * square), 1)]
    if records > _WRITTEN:
        if change == "replace":
            raise ValueError(f"UserLevel has certificates under 'replace' for up to {_WRITTEN} records, got {records}")
        weights, lost = draws(records, rate)
        return [(Mixture(tuple((w, j * j * square) for j, w in enumerate(weights)), lost=lost), 1)]
    parts = tuple(
        (math.comb(records, j) * rate**j * (1 - rate) ** (records - j), j * j * square) for j in range(records + 1)
    )
    return [(Mixture(parts, parts) if change == "replace" else Mixture(parts), 1)]


def _truncated(mechanism: m.TruncatedPoisson, change: str, laws: list[Step]) -> list[Step]:
    square = _gaussian_square(mechanism, laws)
    rate, largest, records = (number(name, getattr(mechanism, name)) for name in ("rate", "largest", "records"))
    cut = Cut(rate, int(largest), int(records))
    if not square or not rate:
        return []
    if largest >= records:
        return replaced(laws, rate) if change == "replace" else _sampled(laws, rate)
    moved = _moved(square, cut)
    of = lambda name: Cell(cut, moved, name)  # noqa: E731
    usual, near = _one_sample(square, rate, change), _one_sample(square, of("near_rate"), change)
    here = of("full_rate") if moved < 1 else Fraction(LEAST_RATE)  # a bound of none
    stays = Rest(here)
    full: Law = Mixture(((stays, _ZERO), (here, 4 * square)))
    if change == "replace":
        full = _joined_normal(square, here, 2)
    elif change == "special" and moved < 1:
        there = ((stays, 0), (here, 1))
        full = Joined(NormalHalf(square, ((stays, 0), (here, 2)), there), NormalHalf(square, there, ((_ONE, 0),)))
    shares = of("near"), of("full")
    if change == "presence":
        near, full = Rescaled(near, of("near_gain")), Rescaled(full, of("full_gain"))
        shares = of("last"), of("cut")
    parts = ((of("earlier"), usual), (shares[0], near), (shares[1], full))
    return [(Revealed(parts if rate < 1 else parts[2:]), 1)]


def _moved(square: Fraction, cut: Cut) -> Fraction:
    """The share that the bounds take; any makes a proof, and another one a different number."""
    split = binomial_split(cut.records - 1.0, float(cut.rate), float(cut.largest))
    return Fraction(float(share_moved(np.asarray(float(1 / square) ** 0.5), np.asarray(float(cut.rate)), split)))


def _one_sample(square: Fraction, rate: Exact, change: str) -> Mixture:
    parts = ((Rest(rate), _ZERO), (rate, square))
    return Mixture(parts, parts) if change == "replace" else Mixture(parts)


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
