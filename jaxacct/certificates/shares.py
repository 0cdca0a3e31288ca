"""Probabilities of binomial counts as balls: how often a sample is cut, and how often a record is drawn."""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any

from jaxacct.certificates.balls import arb, ball, ctx
from jaxacct.certificates.limits import NoCertificateError

__all__ = ["Cut", "Kept", "Often", "Rest", "draws"]

_MOST = 200_000  # terms of a sum
_BITS = 160
_MOST_DRAWS = 60
_NEGLIGIBLE = Fraction(1, 10**22)


@dataclasses.dataclass(frozen=True)
class Cut:
    """A Poisson sample of ``rate`` from ``records``, cut to ``largest``; of K ~ Bin(records - 1, rate) others."""

    rate: Fraction
    largest: int
    records: int

    @property
    def possible(self) -> bool:
        """Whether K may reach ``largest``."""
        return self.rate > 0 and self.largest < self.records


@dataclasses.dataclass(frozen=True)
class Often:
    """P[K >= largest]."""

    cut: Cut

    def ball(self) -> Any:
        """At the current precision."""
        return _sums(self.cut, ctx.prec)[0]


@dataclasses.dataclass(frozen=True)
class Kept:
    """rate E[largest / (K + 1) | K >= largest]."""

    cut: Cut

    def ball(self) -> Any:
        """At the current precision."""
        often, shared = _sums(self.cut, ctx.prec)
        return (ball(self.cut.rate) * shared / often).min(ball(self.cut.rate))


@dataclasses.dataclass(frozen=True)
class Rest:
    """1 less a number or a share."""

    of: Any

    def ball(self) -> Any:
        """At the current precision."""
        return 1 - ball(self.of)


@functools.lru_cache(maxsize=256)
def _sums(cut: Cut, bits: int) -> tuple[Any, Any]:
    """P[K >= largest] and E[largest / (K + 1); K >= largest], by the ratios of neighbouring probabilities."""
    others, first = cut.records - 1, cut.largest
    if cut.rate == 1:
        return arb(1), arb(first) / cut.records
    odds = ball(cut.rate / (1 - cut.rate))
    log = arb(others + 1).lgamma() - arb(first + 1).lgamma() - arb(others - first + 1).lgamma()
    term = (log + first * ball(cut.rate).log() + (others - first) * ball(1 - cut.rate).log()).exp()
    often, shared = arb(0), arb(0)
    for count, k in enumerate(range(first, others + 1)):
        often += term
        shared += term * first / (k + 1)
        ratio = odds * (others - k) / (k + 1)
        term = term * ratio
        if count > _MOST:
            raise NoCertificateError(f"samples are cut in more than {_MOST} ways")
        if ratio < 1 and term < often * ball(2.0) ** (-bits - 8) * (1 - ratio):
            rest = (term / (1 - ratio)).abs_upper()
            return often + arb(0).union(rest), shared + arb(0).union(rest)
    return often, shared


def draws(batch: int, records: int) -> tuple[tuple[Fraction, ...], Fraction]:
    """Probabilities of 0, 1, ... draws of one record, and a bound on that of all others.

    They are rational numbers of denominators too long to write; the ones here are below them by 2^-160 of each at most,
    which the bound holds as well.
    """
    with ctx.workprec(_BITS + 64):
        odds = ball(Fraction(1, records - 1))
        term, found, missing = (batch * ball(Fraction(records - 1, records)).log()).exp(), [], Fraction(1)
        for j in range(min(batch, _MOST_DRAWS) + 1):
            mantissa, exponent = term.lower().man_exp()
            shift = max(0, int(mantissa).bit_length() - _BITS)
            exact = Fraction(int(mantissa) >> shift) * Fraction(2) ** (int(exponent) + shift)
            found.append(exact)
            missing -= exact
            term = term * odds * (batch - j) / (j + 1)
            if missing < _NEGLIGIBLE and j > 0:
                break
    if missing > math.sqrt(_NEGLIGIBLE):
        raise NoCertificateError("one record is drawn too often for a certificate")
    return tuple(found), missing
