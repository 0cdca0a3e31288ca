"""Probabilities of binomial counts as balls: how often a sample is cut, and how often a record is drawn."""

from __future__ import annotations

import dataclasses
import functools
import math
from fractions import Fraction

from jaxacct.certificates.balls import Exact, arb, ball, ctx, up_to
from jaxacct.certificates.limits import NoCertificateError

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


@dataclasses.dataclass(frozen=True)
class Cell:
    """A number of the cells of a cut sample (docs/proofs/truncated-poisson.md), by its name.

    With ``moved`` the share of the cut samples with the record that count to K = largest - 1: probabilities of
    ``earlier``, ``last`` and ``cut`` without the record, ``near`` and ``full`` with it; ``near_rate`` and
    ``full_rate``, how often it is there; ``near_gain`` and ``full_gain``, the quotients.
    """

    cut: Cut
    moved: Fraction
    name: str

    def ball(self) -> arb:
        """The number as a ball at the current precision."""
        q, s = ball(self.cut.rate), ball(self.moved)
        often, shared, last = _sums(self.cut, ctx.prec)
        both, kept = s * q * shared, (q * shared / often).min(q)
        return {
            "earlier": lambda: 1 - often - last,
            "last": lambda: last,
            "cut": lambda: often,
            "near": lambda: last + both,
            "full": lambda: often * (1 - s * kept),
            "near_rate": lambda: (q * last + both) / (last + both),
            "full_rate": lambda: (1 - s) * kept / (1 - s * kept),
            "near_gain": lambda: 1 + both / last,
            "full_gain": lambda: 1 - s * kept,
        }[self.name]()


@dataclasses.dataclass(frozen=True)
class Rest:
    """1 less a number or a share."""

    of: Exact

    def ball(self) -> arb:
        """The number as a ball at the current precision."""
        return 1 - ball(self.of)


@functools.lru_cache(maxsize=256)
def _sums(cut: Cut, bits: int) -> tuple[arb, arb, arb]:
    """P[K >= largest], E[largest / (K + 1); K >= largest] and P[K = largest - 1], by ratios of neighbours."""
    others, first = cut.records - 1, cut.largest
    if cut.rate == 1:
        return arb(1), arb(first) / cut.records, arb(0)
    odds = ball(cut.rate / (1 - cut.rate))
    log = arb(others + 1).lgamma() - arb(first + 1).lgamma() - arb(others - first + 1).lgamma()
    term = (log + first * ball(cut.rate).log() + (others - first) * ball(1 - cut.rate).log()).exp()
    last = term * first / ((others - first + 1) * odds)
    often, shared = arb(0), arb(0)
    for count, k in enumerate(range(first, others + 1)):
        often += term
        shared += term * first / (k + 1)
        ratio = odds * (others - k) / (k + 1)
        term = term * ratio
        if count > _MOST:
            raise NoCertificateError(f"samples are cut in more than {_MOST} ways")
        if ratio < 1 and term < often * ball(2.0) ** (-bits - 8) * (1 - ratio):
            rest = up_to(term / (1 - ratio))
            return often + rest, shared + rest, last
    return often, shared, last


def draws(batch: int, chance: Fraction) -> tuple[tuple[Fraction, ...], Fraction]:
    """Probabilities of 0, 1, ... of ``batch`` draws that hit with ``chance`` < 1, and a bound on that of all others.

    They are rational numbers of denominators too long to write; the ones here are below them by 2^-160 of each at most,
    which the bound holds as well.
    """
    with ctx.workprec(_BITS + 64):
        odds = ball(chance / (1 - chance))
        term, found, missing = (batch * ball(1 - chance).log()).exp(), [], Fraction(1)
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
