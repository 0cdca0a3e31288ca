"""The law of one run of a mechanism without sampling, in exact numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxacct import mechanisms as m
from jaxacct.certificates.laws.base import Atoms, Law, Normal, Shifts
from jaxacct.mechanisms.base import Mechanism

_ZERO = Fraction(0)


def number(name: str, value: ArrayLike) -> Fraction:
    """A parameter that is one number, exactly."""
    array = np.asarray(value)
    if array.ndim:
        raise ValueError(f"{name} must be a single number for a certificate, got an array of shape {array.shape}")
    return Fraction(array.item())


def moved(noise: str, parts: list[tuple[Fraction, Fraction]], *, apart: bool = False) -> Normal | Shifts:
    """The law of parts as in `Shifts`: equal moves are merged, and one move of normal noise is a `Normal`.

    Against the noise, or ``apart`` against the noise moved the other way.
    """
    together: defaultdict[Fraction, Fraction] = defaultdict(Fraction)
    for weight, square in parts:
        together[square] += weight
    kept = tuple(sorted((weight, square) for square, weight in together.items() if weight))
    if len(kept) == 1:
        (_, move) = kept[0]
        move = move * (4 if noise == "normal" else 2) if apart else move
        return Normal(move) if noise == "normal" else Shifts(noise, ((Fraction(1), move),))
    return Shifts(noise, kept, tuple((weight, -move) for weight, move in kept)) if apart else Shifts(noise, kept)


def _gaussian(mechanism: m.Gaussian) -> Law:
    return Normal((number("sensitivity", mechanism.sensitivity) / number("sigma", mechanism.sigma)) ** 2)


def _laplace(mechanism: m.Laplace) -> Law:
    move = number("sensitivity", mechanism.sensitivity) / number("scale", mechanism.scale)
    return Shifts("laplace", ((Fraction(1), move),))


def _moves(mechanism: m.RandomSensitivityGaussian) -> Law:
    sigma = number("sigma", mechanism.sigma)
    weights = [number("weights", w) for w in mechanism.weights]
    moves = [number("sensitivities", s) for s in mechanism.sensitivities]
    return moved("normal", [(w / sum(weights), (s / sigma) ** 2) for w, s in zip(weights, moves, strict=True)])


def _response(mechanism: m.RandomizedResponse) -> Law:
    categories = int(number("categories", mechanism.categories))
    return Atoms("response", (number("epsilon", mechanism.epsilon), categories, _ZERO))


def _approximate(mechanism: m.PureDP | m.ApproximateDP) -> Law:
    lost = number("delta", getattr(mechanism, "delta", 0.0))
    return Atoms("response", (number("epsilon", mechanism.epsilon), 2, lost))


def _table(mechanism: m.FromTables) -> Law:
    tables = [np.asarray(table, np.float64) for table in (mechanism.p, mechanism.q)]
    if tables[0].ndim != 1:
        raise ValueError(f"p and q must be one table each for a certificate, got shape {tables[0].shape}")
    exact = [tuple(Fraction(float(x)) for x in table) for table in tables]
    return Atoms("table", tuple(tuple(x / sum(table) for x in table) for table in exact))


def _integers(kind: str, name: str) -> Callable[[m.DiscreteLaplace | m.DiscreteGaussian | m.Skellam], Law]:
    def made(mechanism: m.DiscreteLaplace | m.DiscreteGaussian | m.Skellam) -> Law:
        gap = int(number("sensitivity", mechanism.sensitivity))
        return Atoms(kind, (number(name, getattr(mechanism, name)), gap))

    return made


ALONE: dict[type[Mechanism], Callable[[Any], Law]] = {
    m.Gaussian: _gaussian,
    m.GDP: lambda mechanism: Normal(number("mu", mechanism.mu) ** 2),
    m.RandomSensitivityGaussian: _moves,
    m.Laplace: _laplace,
    m.RandomizedResponse: _response,
    m.PureDP: _approximate,
    m.ApproximateDP: _approximate,
    m.FromTables: _table,
    m.DiscreteLaplace: _integers("laplace", "scale"),
    m.DiscreteGaussian: _integers("gaussian", "sigma"),
    m.Skellam: _integers("skellam", "mu"),
}
"""The law of each mechanism that can stand alone."""
