"""One of several laws where the output says which: masses and moments are means."""

from __future__ import annotations

from typing import Any

from jaxacct.certificates.atoms import Masses
from jaxacct.certificates.balls import acb, arb, ball
from jaxacct.certificates.halves import joined_cells
from jaxacct.certificates.laws import Joined, Mixture, Normal, NormalHalf, Revealed


class RevealedTransform:
    """The mean of transforms; pairs (share, transform)."""

    def __init__(self, parts: list[tuple[Any, Any]]) -> None:
        self.parts = parts
        self.finite, self.infinite, self.lost = (
            sum((share * getattr(one, name) for share, one in parts), arb(0)) for name in ("finite", "infinite", "lost")
        )

    def moment(self, c: Any) -> Any:
        """At a real number."""
        return sum((share * one.moment(c) for share, one in self.parts), arb(0))

    def line(self, c: Any, h: Any, count: int) -> list[Any]:
        """At c + i k h, k from 0 to ``count`` - 1."""
        lines = [[share * value for value in one.line(c, h, count)] for share, one in self.parts]
        return [sum(values[1:], values[0]) for values in zip(*lines, strict=True)]

    def limit(self, c: Any, y: Any) -> Any:
        """No modulus on the line is larger from imaginary part ``y`` on."""
        return sum((share * one.limit(c, y) for share, one in self.parts), arb(0))


class RescaledTransform:
    """E_O[(W / O)^w] for W times ``gain``, which is gain^w of the moment; w is z, or 1 - z in reverse."""

    def __init__(self, transform: Any, gain: Any, reverse: bool) -> None:
        self.transform, self.gain, self.log, self.reverse = transform, gain, gain.log(), reverse
        own = 1 if reverse else gain
        self.finite, self.infinite, self.lost = (own * getattr(transform, x) for x in ("finite", "infinite", "lost"))

    def _factor(self, z: Any) -> Any:
        return (self.log * (1 - z if self.reverse else z)).exp()

    def moment(self, c: Any) -> Any:
        """At a real number."""
        return self._factor(c) * self.transform.moment(c)

    def line(self, c: Any, h: Any, count: int) -> list[Any]:
        """At c + i k h, k from 0 to ``count`` - 1."""
        values = self.transform.line(c, h, count)
        return [self._factor(acb(c, h * k)) * value for k, value in enumerate(values)]

    def limit(self, c: Any, y: Any) -> Any:
        """No modulus on the line is larger from imaginary part ``y`` on."""
        return self._factor(c) * self.transform.limit(c, y)


def revealed_cells(law: Revealed, reverse: bool, upper: bool) -> Masses:
    """A finite law below or above the law."""
    pairs, infinite, lost = [], arb(0), arb(0)
    for share, part in law.parts:
        size = ball(share)
        one = joined_cells(part if isinstance(part, Joined) else halves_of(part), reverse, upper)
        pairs += [(size * w, size * o) for w, o in one.pairs]
        infinite += size * one.infinite
        lost += size * one.lost
    kept = [(w, o) for w, o in pairs if w > 0 and o > 0]
    lost += sum((w.abs_upper() for w, o in pairs if not (w > 0 and o > 0)), arb(0))
    return Masses(kept, infinite, lost, None)


def halves_of(law: Any) -> Joined:
    """The halves of a normal law or of a sample of one, moved by one distance."""
    if isinstance(law, Normal):
        law = Mixture(((1, law.square),))
    squares = {square for side in (law.parts, law.base) for _, square in side if square}
    (square,) = squares
    w, o = (tuple((weight, k if m else 0) for weight, m in side) for side, k in ((law.parts, 1), (law.base, -1)))
    return Joined(NormalHalf(square, w, o), NormalHalf(square, *(tuple((a, -k) for a, k in side) for side in (o, w))))
