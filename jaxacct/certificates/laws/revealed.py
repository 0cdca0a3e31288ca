"""Laws whose output says which of several parts was drawn: their masses and moments are means over the parts."""

from __future__ import annotations

from jaxacct.certificates.balls import acb, arb, ball
from jaxacct.certificates.laws.atoms import Masses, Pair, positive_masses
from jaxacct.certificates.laws.base import Revealed
from jaxacct.certificates.laws.halves import joined_cells
from jaxacct.certificates.transforms import Transform


class RevealedTransform(Transform):
    """The mean of transforms E_O[(W / O)^w]; where W has a part ``gain`` times as often, gain^w of its moment.

    ``parts`` are triples as in `Revealed`, with transforms; w is z, or 1 - z in reverse.
    """

    def __init__(self, parts: list[tuple[arb, arb, Transform]], reverse: bool) -> None:
        self.parts, self.reverse = parts, reverse
        own = [(share if reverse else share * gain, one) for share, gain, one in parts]
        self.finite, self.infinite, self.lost = (
            sum((share * getattr(one, name) for share, one in own), arb(0)) for name in ("finite", "infinite", "lost")
        )

    def _shares(self, z: acb) -> list[tuple[acb, Transform]]:
        power = 1 - z if self.reverse else z
        return [(share * (power * gain.log()).exp(), one) for share, gain, one in self.parts]

    def moment(self, c: arb) -> arb:
        """The mean of the parts."""
        return sum((share.real * one.moment(c) for share, one in self._shares(acb(c))), arb(0))

    def line(self, c: arb, h: arb, count: int) -> list[acb]:
        """The mean of the parts."""
        lines = [one.line(c, h, count) for _, _, one in self.parts]
        return [
            sum((share * line[k] for (share, _), line in zip(self._shares(acb(c, h * k)), lines, strict=True)), acb(0))
            for k in range(count)
        ]

    def limit(self, c: arb, y: arb) -> arb:
        """The mean of the parts."""
        return sum((share.real * one.limit(c, y) for share, one in self._shares(acb(c))), arb(0))


def revealed_cells(law: Revealed, reverse: bool, upper: bool) -> Masses:
    """A finite law below or above the law."""
    pairs: list[Pair] = []
    infinite = lost = arb(0)
    for share, _, part in law.parts:  # with no gains: those have transforms
        size = ball(share)
        one = joined_cells(part, reverse, upper)
        pairs += [(size * w, size * o) for w, o in one.pairs]
        infinite += size * one.infinite
        lost += size * one.lost
    kept, without = positive_masses(pairs)
    return Masses(kept, infinite, lost + without)
