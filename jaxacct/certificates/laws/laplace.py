"""Laplace noise: compositions by residues, the transform.

The loss is continuous between -epsilon and epsilon, with an atom at either end, so the transform does not fall along a
vertical line. With s = z - 1/2 its power is a sum of exp(s epsilon (T - 2 j)) times rational functions of s, and the
inversion integral of each is a sum of residues (Lemma 8 of docs/proofs/certificates.md).
"""

from __future__ import annotations

from flint import arb_poly

from jaxacct.certificates.balls import acb, arb, ball
from jaxacct.certificates.laws.base import Shifts
from jaxacct.certificates.transforms import Transform


def laplace_residues(law: Shifts, steps: int, epsilon: arb) -> arb:
    """delta(epsilon) of ``steps`` runs without sampling."""
    most, total, many = ball(law.parts[0][1]), arb(0), arb(1)
    for j in range(steps + 1):
        at = most * (steps - 2 * j) - epsilon
        if at > 0 or at.contains(0):
            value = many * _residues(at, j, steps)
            total += value if at > 0 else value.union(arb(0))
        many = many * (steps - j) / (j + 1)
    return total * (epsilon / 2).exp() * ((-most / 2).exp() / 2) ** steps


def _residues(at: arb, j: int, steps: int) -> arb:
    """The residues of exp(s at) (s + 1/2)^(T - j - 1) (s - 1/2)^(j - 1) / s^T at 0, and at 1/2 for j = 0."""
    half, powers, term = arb(0.5), [], arb(1)
    for k in range(steps):
        powers.append(term)
        term = term * at / (k + 1)
    up = arb_poly([half, 1]) ** (steps - j - 1) if j < steps else arb_poly([2 * (-2) ** k for k in range(steps)])
    down = arb_poly([-half, 1]) ** (j - 1) if j else arb_poly([-2 * 2**k for k in range(steps)])
    product = (up * down).truncate(steps)
    coefficients = product.coeffs()
    found = sum((coefficients[k] * powers[steps - 1 - k] for k in range(min(steps, len(coefficients)))), arb(0))
    if j == 0:
        found += (at / 2).exp() * arb(2) ** steps
    return found


class LaplaceTransform(Transform):
    """Moments of one run of Laplace noise without sampling, which is the same in both directions."""

    def __init__(self, law: Shifts) -> None:
        self.epsilon = ball(law.parts[0][1])

    def at(self, z: acb) -> acb:
        """In closed form."""
        s = z - arb(0.5)
        most = s * self.epsilon
        if s == 0:
            return acb((-self.epsilon / 2).exp() * (1 + self.epsilon / 2))
        return (-self.epsilon / 2).exp() * (most.cosh() + most.sinh() / (2 * s))

    def limit(self, c: arb, y: arb) -> arb:
        """It falls with ``y``."""
        whole = self.moment(c)
        if not y > 0:
            return whole
        found = (-self.epsilon / 2).exp() * (abs(c - arb(0.5)) * self.epsilon).cosh() * (1 + 1 / (2 * y))
        return found if found < whole else whole
