"""Pairs of output distributions, read from mechanisms in exact rational numbers.

Each law is a pair (W, O): the distribution of the outputs with the record and without it. The loss of `remove` is
log(dW/dO) under W, that of `add` is log(dO/dW) under O. A law is a value: equal laws are merged.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np

from jaxacct import mechanisms
from jaxacct._validate import is_traced

__all__ = ["Atoms", "LaplaceNoise", "Mixture", "Normal", "Step", "is_symmetric", "laws_of"]


@dataclasses.dataclass(frozen=True)
class Normal:
    """N(mu, 1) against N(0, 1); ``square`` is mu^2."""

    square: Fraction


@dataclasses.dataclass(frozen=True)
class Mixture:
    """sum_i w_i N(m_i, 1) against N(0, 1); ``parts`` are pairs (w_i, m_i^2), the w_i sum up to 1."""

    parts: tuple[tuple[Fraction, Fraction], ...]


@dataclasses.dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise moved by ``epsilon`` scales, on a Poisson sample of that ``rate``."""

    epsilon: Fraction
    rate: Fraction = Fraction(1)


@dataclasses.dataclass(frozen=True)
class Atoms:
    """Finitely many outputs, or whole numbers cut where next to nothing is left.

    ``kind`` and ``parameters`` name the family (see `jaxacct.certificates.atoms`), ``rate`` a Poisson sample of it.
    """

    kind: str
    parameters: tuple[Any, ...]
    rate: Fraction = Fraction(1)


Step = tuple[Any, int]


def laws_of(mechanism: Any, steps: int = 1) -> list[Step]:
    """Different laws and how often each runs. Gaussians are one `Normal`.

    Raises:
        ValueError: parameters that are arrays or traced, a mechanism without such a law.
    """
    if is_traced(mechanism):
        raise ValueError("mechanism must be concrete for a certificate, got a traced one")
    counted: Counter[Any] = Counter()
    square = Fraction(0)
    for law, count in _read(mechanism):
        if isinstance(law, Atoms) and law.kind == "response" and law.parameters[0] == law.parameters[2] == 0:
            continue  # both sides are the same
        if isinstance(law, Normal):
            square += law.square * count * steps
        else:
            counted[law] += count * steps
    found: list[Step] = [(law, count) for law, count in counted.items()]
    return ([(Normal(square), 1)] if square else []) + found


def is_symmetric(laws: list[Step]) -> bool:
    """Whether `add` and `remove` are the same question."""
    return all(
        isinstance(law, Normal)
        or (isinstance(law, LaplaceNoise) and law.rate == 1)
        or (isinstance(law, Atoms) and law.rate == 1 and law.kind != "table")
        for law, _ in laws
    )


def _number(name: str, value: Any) -> Fraction:
    array = np.asarray(value)
    if array.ndim:
        raise ValueError(f"{name} must be a single number for a certificate, got an array of shape {array.shape}")
    return Fraction(array.item())


def _read(mechanism: Any) -> list[Step]:
    kind = type(mechanism).__name__
    if isinstance(mechanism, mechanisms.Composed):
        parts = [(part, int(_number("steps", n))) for part, n in mechanism.parts()]
        return [(law, count * n) for part, n in parts for law, count in _read(part)]
    if isinstance(mechanism, mechanisms.PoissonSampled):
        return _sampled(mechanism.mechanism, _number("rate", mechanism.rate))
    if isinstance(mechanism, mechanisms.Gaussian):
        return [(Normal((_number("sensitivity", mechanism.sensitivity) / _number("sigma", mechanism.sigma)) ** 2), 1)]
    if isinstance(mechanism, mechanisms.GDP):
        return [(Normal(_number("mu", mechanism.mu) ** 2), 1)]
    if isinstance(mechanism, mechanisms.MixtureOfGaussians):
        sigma = _number("sigma", mechanism.sigma)
        weights = [_number("weights", w) for w in mechanism.weights]
        moves = [_number("sensitivities", s) for s in mechanism.sensitivities]
        return [(_mixture([(w / sum(weights), (s / sigma) ** 2) for w, s in zip(weights, moves, strict=True)]), 1)]
    if isinstance(mechanism, mechanisms.Laplace):
        epsilon = _number("sensitivity", mechanism.sensitivity) / _number("scale", mechanism.scale)
        return [(LaplaceNoise(epsilon), 1)]
    if isinstance(mechanism, mechanisms.RandomizedResponse):
        categories = int(_number("categories", mechanism.categories))
        return [(Atoms("response", (_number("epsilon", mechanism.epsilon), categories, Fraction(0))), 1)]
    if isinstance(mechanism, mechanisms.PureDP | mechanisms.ApproximateDP):
        lost = _number("delta", getattr(mechanism, "delta", 0.0))
        return [(Atoms("response", (_number("epsilon", mechanism.epsilon), 2, lost)), 1)]
    if isinstance(mechanism, mechanisms.FromTables):
        tables = [np.asarray(table, np.float64) for table in (mechanism.p, mechanism.q)]
        if tables[0].ndim != 1:
            raise ValueError(f"p and q must be one table each for a certificate, got shape {tables[0].shape}")
        exact = [tuple(Fraction(float(x)) for x in table) for table in tables]
        return [(Atoms("table", tuple(tuple(x / sum(table) for x in table) for table in exact)), 1)]
    if isinstance(mechanism, mechanisms.DiscreteLaplace):
        return [(Atoms("laplace", (_number("scale", mechanism.scale), _whole(mechanism))), 1)]
    if isinstance(mechanism, mechanisms.DiscreteGaussian):
        return [(Atoms("gaussian", (_number("sigma", mechanism.sigma), _whole(mechanism))), 1)]
    if isinstance(mechanism, mechanisms.Skellam):
        return [(Atoms("skellam", (_number("mu", mechanism.mu), _whole(mechanism))), 1)]
    raise ValueError(f"mechanism must have a transform in closed form for a certificate, got {kind}")


def _whole(mechanism: Any) -> int:
    return int(_number("sensitivity", mechanism.sensitivity))


def _mixture(parts: list[tuple[Fraction, Fraction]]) -> Any:
    together: Counter[Fraction] = Counter()
    for weight, square in parts:
        together[square] += weight  # pyright: ignore[reportArgumentType]
    kept = tuple(sorted((weight, square) for square, weight in together.items() if weight))
    return Normal(kept[0][1]) if len(kept) == 1 else Mixture(kept)  # pyright: ignore[reportArgumentType]


def _sampled(mechanism: Any, rate: Fraction) -> list[Step]:
    if not rate:
        return []
    inner = laws_of(mechanism)
    if rate == 1 or not inner:
        return inner
    if len(inner) > 1 or inner[0][1] > 1:
        raise ValueError("mechanism must not be a PoissonSampled composition, but of Gaussians, for a certificate")
    law = inner[0][0]
    if isinstance(law, Normal):
        law = Mixture(((Fraction(1), law.square),))
    if isinstance(law, Mixture):
        return [(_mixture([(1 - rate, Fraction(0))] + [(rate * w, square) for w, square in law.parts]), 1)]
    return [(dataclasses.replace(law, rate=law.rate * rate), 1)]
