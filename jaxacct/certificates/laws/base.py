"""Pairs of output distributions (W, O) in exact numbers: what certificates are computed from.

W has the record and O does not, or (under `replace` and `replace_special`) has another one in its place. The loss is
log(dW/dO) under W, and log(dO/dW) under O for the other direction. A law is a value: equal laws are merged.
`jaxacct.certificates.reading` makes them of mechanisms.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any, TypeAlias

from jaxacct.certificates.balls import Exact


@dataclasses.dataclass(frozen=True)
class Normal:
    """N(mu, 1) against N(0, 1); ``square`` is mu^2."""

    square: Fraction


@dataclasses.dataclass(frozen=True)
class Shifts:
    """Noise moved by one of several distances: sum_i w_i F(x - m_i) against sum_j o_j F(x - n_j).

    ``parts`` are pairs (w_i, m_i) and ``base`` pairs (o_j, n_j), in scales of ``"laplace"`` noise; of ``"normal"``
    noise of variance 1 the second number is the square of the distance, with its sign. The ratio increases with x. The
    o_j sum up to 1, the w_i to 1 less ``lost``: outputs of W that are not in this list.
    """

    noise: str
    parts: tuple[tuple[Any, Fraction], ...]
    base: tuple[tuple[Any, Fraction], ...] = ((Fraction(1), Fraction(0)),)
    lost: Fraction = Fraction(0)

    @property
    def plain(self) -> bool:
        """Whether it is the noise itself and the noise at one distance."""
        return len(self.parts) == len(self.base) == 1

    def reflected(self) -> Shifts:
        """The pair of O over W, by the outputs' negatives; without what is lost."""
        parts, base = (tuple((w, -m) for w, m in side) for side in (self.base, self.parts))
        return Shifts(self.noise, parts, base)


@dataclasses.dataclass(frozen=True)
class Atoms:
    """Finitely many outputs, or whole numbers cut where next to nothing is left.

    ``kind`` and ``parameters`` name the family (see `certificates.laws.atoms`), ``rate`` a Poisson sample of it.
    ``form`` is ``"plain"``; ``"replaced"`` for two such laws mirrored in the ranks of the one without a record; or
    ``"joined"``: losses above 0 are those of the sample, those below 0 are of its reversal.
    """

    kind: str
    parameters: tuple[Any, ...]
    rate: Fraction = Fraction(1)
    form: str = "plain"


@dataclasses.dataclass(frozen=True)
class Draws:
    """Losses above 0 of replaced records drawn 0, 1, ... times with ``weights``, more often with ``lost``."""

    square: Fraction
    weights: tuple[Fraction, ...]
    lost: Fraction


@dataclasses.dataclass(frozen=True)
class Joined:
    """Losses above 0 from one half, below 0 from the reversal of another; the rest is 0."""

    forward: Half
    backward: Half


@dataclasses.dataclass(frozen=True)
class Revealed:
    """One of several laws; the output says which.

    ``parts`` are triples: the share of O, how many times as often W has the part, and the law.
    """

    parts: tuple[tuple[Exact, Exact, Law], ...]


@dataclasses.dataclass(frozen=True)
class Epoch:
    """``batches`` runs, of which a record takes part in one: the law of the mean of as many ratios of ``law``."""

    law: Law
    batches: int


Half: TypeAlias = Shifts | Draws
"""A law of which only the losses above 0 count."""

Law: TypeAlias = Normal | Shifts | Atoms | Joined | Revealed | Epoch
Step = tuple[Law, int]
"""A law and how often it runs."""


def is_symmetric(laws: list[Step]) -> bool:
    """Whether both directions are the same question."""
    return all(_symmetric(law) for law, _ in laws)


def _symmetric(law: Law) -> bool:
    if isinstance(law, Shifts):
        return law.plain or law == law.reflected()
    if isinstance(law, Joined):
        return law.forward == law.backward
    if isinstance(law, Revealed):
        return all(_symmetric(part) for _, _, part in law.parts)
    if isinstance(law, Atoms):
        return law.form != "plain" or (law.rate == 1 and law.kind != "table")
    return isinstance(law, Normal)
