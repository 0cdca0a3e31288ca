"""Laws whose output says which of several parts was drawn: their masses and moments are means over the parts."""

from __future__ import annotations

from jaxacct.certificates.balls import acb, arb, ball
from jaxacct.certificates.laws.atoms import Masses, Pair, positive_masses
from jaxacct.certificates.laws.base import Revealed
from jaxacct.certificates.laws.halves import joined_cells
from jaxacct.certificates.transforms import Transform


class RevealedTransform(Transform):
    """The mean of transforms; pairs (share, transform)."""

    def __init__(self, parts: list[tuple[arb, Transform]]) -> None:
        self.parts = parts
        self.finite, self.infinite, self.lost = (
            sum((share * getattr(one, name) for share, one in parts), arb(0)) for name in ("finite", "infinite", "lost")
        )

    def moment(self, c: arb) -> arb:
        """The mean of the parts, weighted by their probabilities."""
        return sum((share * one.moment(c) for share, one in self.parts), arb(0))

    def line(self, c: arb, h: arb, count: int) -> list[acb]:
        """The mean of the parts, weighted by their probabilities."""
        lines = [[share * value for value in one.line(c, h, count)] for share, one in self.parts]
        return [sum(values, acb(0)) for values in zip(*lines, strict=True)]

    def limit(self, c: arb, y: arb) -> arb:
        """The mean of the parts, weighted by their probabilities."""
        return sum((share * one.limit(c, y) for share, one in self.parts), arb(0))


class RescaledTransform(Transform):
    """E_O[(W / O)^w] for W times ``gain``, which is gain^w of the moment; w is z, or 1 - z in reverse."""

    def __init__(self, transform: Transform, gain: arb, reverse: bool) -> None:
        self.transform, self.log, self.reverse = transform, gain.log(), reverse
        own = arb(1) if reverse else gain
        self.finite, self.infinite, self.lost = (own * getattr(transform, x) for x in ("finite", "infinite", "lost"))

    def _factor(self, z: acb) -> acb:
        return ((1 - z if self.reverse else z) * self.log).exp()

    def moment(self, c: arb) -> arb:
        """Of W times the gain."""
        return self._factor(acb(c)).real * self.transform.moment(c)

    def line(self, c: arb, h: arb, count: int) -> list[acb]:
        """Of W times the gain."""
        values = self.transform.line(c, h, count)
        return [self._factor(acb(c, h * k)) * value for k, value in enumerate(values)]

    def limit(self, c: arb, y: arb) -> arb:
        """Of W times the gain."""
        return self._factor(acb(c)).real * self.transform.limit(c, y)


def revealed_cells(law: Revealed, reverse: bool, upper: bool) -> Masses:
    """A finite law below or above the law."""
    pairs: list[Pair] = []
    infinite = lost = arb(0)
    for share, part in law.parts:
        size = ball(share)
        one = joined_cells(part, reverse, upper)
        pairs += [(size * w, size * o) for w, o in one.pairs]
        infinite += size * one.infinite
        lost += size * one.lost
    kept, without = positive_masses(pairs)
    return Masses(kept, infinite, lost + without)
