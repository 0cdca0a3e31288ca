"""The laws of a mechanism's runs under a neighbouring relation, in exact numbers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np

from jaxacct import mechanisms as m
from jaxacct._numerics.binomial import binomial_split
from jaxacct._validate import is_traced
from jaxacct.certificates.laws import (
    Atoms,
    DrawsHalf,
    Epoch,
    Joined,
    LaplaceHalf,
    LaplaceNoise,
    Mixture,
    Normal,
    NormalHalf,
    Rescaled,
    Revealed,
    Step,
)
from jaxacct.certificates.shares import Cell, Cut, Rest, draws
from jaxacct.mechanisms.cut_cells import share_moved
from jaxacct.mechanisms.parameters import LEAST_RATE

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
_ZERO, _ONE = Fraction(0), Fraction(1)


def laws_of(mechanism: Any, steps: int = 1, relation: str = "remove") -> list[Step]:
    """Different laws and how often each runs. Gaussians are one `Normal`."""
    if is_traced(mechanism):
        raise ValueError("mechanism must be concrete for a certificate, got a traced one")
    return _merged(_read(mechanism, RELATIONS[relation][0]), steps)


def certified(mechanism: Any, relation: str) -> str:
    """What the laws of `laws_of` are to the mechanism, in words."""
    return "the worst case" if _attained(mechanism, RELATIONS[relation][0]) else _NOT_ATTAINED


def _attained(mechanism: Any, change: str) -> bool:
    """Whether data are known that attain the pair, for every number of steps."""
    kind = type(mechanism)
    if kind is m.Composed:
        return all(_attained(part, change) for part, _ in mechanism.parts())
    if kind in (m.Shuffled, m.TruncatedPoisson):
        return False
    return change != "replace" or kind not in (m.SampledWithoutReplacement, m.SampledWithReplacement)


def _merged(laws: list[Step], steps: int) -> list[Step]:
    counted: Counter[Any] = Counter()
    square = _ZERO
    for law, count in laws:
        if isinstance(law, Atoms) and law.kind == "response" and law.parameters[0] == law.parameters[2] == 0:
            continue  # both sides are the same
        if isinstance(law, Normal):
            square += law.square * count * steps
        else:
            counted[law] += count * steps
    found: list[Step] = [(law, count) for law, count in counted.items()]
    return ([(Normal(square), 1)] if square else []) + found


def _number(name: str, value: Any) -> Fraction:
    array = np.asarray(value)
    if array.ndim:
        raise ValueError(f"{name} must be a single number for a certificate, got an array of shape {array.shape}")
    return Fraction(array.item())


def _read(mechanism: Any, change: str) -> list[Step]:
    kind = type(mechanism)
    if kind is m.Composed:
        parts = [(part, int(_number("steps", n))) for part, n in mechanism.parts()]
        return [(law, count * n) for part, n in parts for law, count in _read(part, change)]
    if kind in _SAMPLES:
        return _SAMPLES[kind](mechanism, change)
    if kind not in _ALONE:
        can = ", ".join(one.__name__ for one in (*_ALONE, *_SAMPLES))
        raise ValueError(
            f"mechanism must have a transform in closed form for a certificate, got {kind.__name__}; {can} and "
            "Composed have one"
        )
    law = _ALONE[kind](mechanism)
    if change == "replace" and isinstance(law, Atoms) and law.kind == "table":
        raise ValueError(
            "relation 'replace' has no certificate for FromTables without a sample; 'add_or_remove' has one"
        )
    if change == "replace" and kind is m.MixtureOfGaussians:
        return _replaced([(law, 1)], _ONE)
    return [(law, 1)]


def _gaussian(mechanism: Any) -> Any:
    return Normal((_number("sensitivity", mechanism.sensitivity) / _number("sigma", mechanism.sigma)) ** 2)


def _moves(mechanism: Any) -> Any:
    sigma = _number("sigma", mechanism.sigma)
    weights = [_number("weights", w) for w in mechanism.weights]
    moves = [_number("sensitivities", s) for s in mechanism.sensitivities]
    return _mixture([(w / sum(weights), (s / sigma) ** 2) for w, s in zip(weights, moves, strict=True)])


def _response(mechanism: Any) -> Any:
    categories = int(_number("categories", mechanism.categories))
    return Atoms("response", (_number("epsilon", mechanism.epsilon), categories, _ZERO))


def _approximate(mechanism: Any) -> Any:
    lost = _number("delta", getattr(mechanism, "delta", 0.0))
    return Atoms("response", (_number("epsilon", mechanism.epsilon), 2, lost))


def _table(mechanism: Any) -> Any:
    tables = [np.asarray(table, np.float64) for table in (mechanism.p, mechanism.q)]
    if tables[0].ndim != 1:
        raise ValueError(f"p and q must be one table each for a certificate, got shape {tables[0].shape}")
    exact = [tuple(Fraction(float(x)) for x in table) for table in tables]
    return Atoms("table", tuple(tuple(x / sum(table) for x in table) for table in exact))


def _integers(kind: str, name: str) -> Any:
    def made(mechanism: Any) -> Any:
        gap = int(_number("sensitivity", mechanism.sensitivity))
        return Atoms(kind, (_number(name, getattr(mechanism, name)), gap))

    return made


_ALONE = {
    m.Gaussian: _gaussian,
    m.GDP: lambda mechanism: Normal(_number("mu", mechanism.mu) ** 2),
    m.MixtureOfGaussians: _moves,
    m.Laplace: lambda mechanism: LaplaceNoise(
        _number("sensitivity", mechanism.sensitivity) / _number("scale", mechanism.scale)
    ),
    m.RandomizedResponse: _response,
    m.PureDP: _approximate,
    m.ApproximateDP: _approximate,
    m.FromTables: _table,
    m.DiscreteLaplace: _integers("laplace", "scale"),
    m.DiscreteGaussian: _integers("gaussian", "sigma"),
    m.Skellam: _integers("skellam", "mu"),
}


def _mixture(parts: list[tuple[Fraction, Fraction]]) -> Any:
    together: Counter[Fraction] = Counter()
    for weight, square in parts:
        together[square] += weight  # pyright: ignore[reportArgumentType]
    kept = tuple(sorted((weight, square) for square, weight in together.items() if weight))
    return Normal(kept[0][1]) if len(kept) == 1 else Mixture(kept)  # pyright: ignore[reportArgumentType]


def _poisson(mechanism: Any, change: str) -> list[Step]:
    rate, inner = _number("rate", mechanism.rate), mechanism.mechanism
    while isinstance(inner, m.PoissonSampled):
        rate, inner = rate * _number("rate", inner.rate), inner.mechanism
    if type(inner) in _SAMPLES:
        raise ValueError(f"mechanism must not be a PoissonSampled {type(inner).__name__} for a certificate")
    laws = _merged(_read(inner, "presence"), 1)
    return _replaced(laws, rate) if change == "replace" else _sampled(laws, rate)


def _only(laws: list[Step]) -> Any:
    if len(laws) > 1 or laws[0][1] > 1:
        raise ValueError("mechanism must not be a sample of a composition, but of Gaussians, for a certificate")
    return laws[0][0]


def _sampled(laws: list[Step], rate: Fraction) -> list[Step]:
    if not rate or rate == 1 or not laws:
        return laws if rate else []
    law = _only(laws)
    if isinstance(law, Normal):
        law = Mixture(((_ONE, law.square),))
    if isinstance(law, Mixture):
        return [(_mixture([(1 - rate, _ZERO)] + [(rate * w, square) for w, square in law.parts]), 1)]
    return [(dataclasses.replace(law, rate=law.rate * rate), 1)]


def _replaced(laws: list[Step], rate: Fraction) -> list[Step]:
    """Samples with one record and with another in its place (docs/proofs/replaced-records.md)."""
    if not rate or not laws:
        return []
    law = _only(laws)
    if isinstance(law, Normal) and rate == 1:
        return [(Normal(4 * law.square), 1)]
    if isinstance(law, LaplaceNoise):
        if rate == 1:
            return [(LaplaceNoise(2 * law.epsilon), 1)]
        half = LaplaceHalf(law.epsilon, rate, True)
        return [(Joined(half, half), 1)]
    if isinstance(law, Atoms):
        return [(dataclasses.replace(law, rate=rate, form="replaced"), 1)]
    parts = law.parts if isinstance(law, Mixture) else ((_ONE, law.square),)
    mixed = _mixture([(1 - rate, _ZERO)] + [(rate * w, square) for w, square in parts])
    if isinstance(mixed, Normal):
        return [(Normal(4 * mixed.square), 1)]
    return [(Mixture(mixed.parts, mixed.parts), 1)]


def _gaussian_square(mechanism: Any) -> Fraction:
    laws = _merged(_read(mechanism.mechanism, "presence"), 1)
    if any(not isinstance(law, Normal) for law, _ in laws):
        raise ValueError(f"mechanism of {type(mechanism).__name__} must be Gaussian for a certificate")
    return laws[0][0].square if laws else _ZERO


def _not_special(mechanism: Any, change: str) -> None:
    if change == "special":
        raise ValueError(
            f"relation 'replace_special' has no analysis for {type(mechanism).__name__}; 'replace' has one"
        )


def _without_replacement(mechanism: Any, change: str) -> list[Step]:
    _not_special(mechanism, change)
    rate = _number("sample_size", mechanism.sample_size) / _number("dataset_size", mechanism.dataset_size)
    laws = _merged(_read(mechanism.mechanism, "presence"), 1)
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


def _joined_normal(square: Fraction, rate: Any, move: int) -> Joined:
    half = NormalHalf(square, ((Rest(rate), 0), (rate, move)), ((_ONE, 0),))
    return Joined(half, half)


def _with_replacement(mechanism: Any, change: str) -> list[Step]:
    _not_special(mechanism, change)
    square = _gaussian_square(mechanism)
    batch, records = _number("batch", mechanism.batch), _number("records", mechanism.records)
    if not square:
        return []
    weights, lost = draws(int(batch), int(records))
    if change == "replace":
        half = DrawsHalf(square, weights, lost)
        return [(Joined(half, half), 1)]
    return [(Mixture(tuple((w, j * j * square) for j, w in enumerate(weights)), lost=lost), 1)]


def _truncated(mechanism: Any, change: str) -> list[Step]:
    square = _gaussian_square(mechanism)
    numbers = [_number(name, getattr(mechanism, name)) for name in ("rate", "largest", "records")]
    cut = Cut(numbers[0], int(numbers[1]), int(numbers[2]))
    if not square or not cut.rate:
        return []
    if not cut.possible:
        return _replaced([(Normal(square), 1)], cut.rate) if change == "replace" else _sampled(
            [(Normal(square), 1)], cut.rate
        )  # fmt: skip
    moved = _moved(square, cut)
    of = lambda name: Cell(cut, moved, name)  # noqa: E731
    usual, near = (_one_sample(square, rate, change) for rate in (cut.rate, of("near_rate")))
    here = of("full_rate") if moved < 1 else Fraction(LEAST_RATE)  # a bound of none
    stays = Rest(here)
    full: Any = Mixture(((stays, _ZERO), (here, 4 * square)))
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
    return [(Revealed(parts if cut.rate < 1 else parts[2:]), 1)]


def _moved(square: Fraction, cut: Cut) -> Fraction:
    """The share that the bounds take; any makes a proof, and another one a different number."""
    split = binomial_split(cut.records - 1.0, float(cut.rate), float(cut.largest))
    return Fraction(float(share_moved(np.asarray(float(1 / square) ** 0.5), np.asarray(float(cut.rate)), split)))


def _one_sample(square: Fraction, rate: Any, change: str) -> Mixture:
    parts = ((Rest(rate), _ZERO), (rate, square))
    return Mixture(parts, parts) if change == "replace" else Mixture(parts)


def _allocated(mechanism: Any, change: str) -> list[Step]:
    batches, taken = (int(_number(name, getattr(mechanism, name))) for name in ("batches", "participations"))
    if change == "replace" or taken != 1:
        raise ValueError(
            "RandomAllocation has certificates for one participation under 'add' and 'remove', got "
            f"{taken} participations{' and replaced records' if change == 'replace' else ''}"
        )
    laws = _merged(_read(mechanism.mechanism, "presence"), 1)
    if batches == 1 or not laws:
        return laws
    return [(Epoch(_only(laws), batches), 1)]


def _shuffled(mechanism: Any, change: str) -> list[Step]:
    laws = _read(mechanism.mechanism, "presence")
    return _replaced(_merged(laws, 1), _ONE) if change == "replace" else laws


_SAMPLES = {
    m.PoissonSampled: _poisson,
    m.RandomAllocation: _allocated,
    m.SampledWithReplacement: _with_replacement,
    m.SampledWithoutReplacement: _without_replacement,
    m.Shuffled: _shuffled,
    m.TruncatedPoisson: _truncated,
}
