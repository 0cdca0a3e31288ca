"""`Transform`, what the contours integrate: the moments of one run's loss."""

from __future__ import annotations

from jaxacct.certificates.balls import acb, arb


class Transform:
    """Moments E_O[exp(z L)] of the finite losses of one run, in one direction.

    Attributes:
        finite: the mass of the finite losses.
        infinite: of the infinite ones.
        lost: a bound on the mass of the numerator that was cut.
        lost_beneath: on that of the denominator.
    """

    finite = arb(1)
    infinite = lost = lost_beneath = arb(0)

    def at(self, z: acb) -> acb:
        """The transform at a complex number."""
        raise NotImplementedError

    def moment(self, c: arb) -> arb:
        """The transform at a real number, a moment of the loss."""
        return self.at(acb(c)).real

    def line(self, c: arb, h: arb, count: int) -> list[acb]:
        """At c + i k h, k from 0 to ``count`` - 1."""
        return [self.at(acb(c, h * k)) for k in range(count)]

    def limit(self, c: arb, y: arb) -> arb:
        """No modulus on the line through ``c`` is larger from imaginary part ``y`` on."""
        del y
        return self.moment(c)
