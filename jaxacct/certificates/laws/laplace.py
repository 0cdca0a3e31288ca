"""Laplace noise: one run in closed form, compositions by residues, the transform.

The loss is continuous between -epsilon and epsilon, with an atom at either end, so the transform does not fall along a
vertical line. With s = z - 1/2 its power is a sum of exp(s epsilon (T - 2 j)) times rational functions of s, and the
inversion integral of each is a sum of residues (Lemma 8 of docs/proofs/certificates.md).
"""

from __future__ import annotations

from flint import arb_poly

from jaxacct.certificates.balls import acb, arb, ball, positive_part, up_to
from jaxacct.certificates.laws.atoms import Masses
from jaxacct.certificates.laws.base import LaplaceNoise
from jaxacct.certificates.laws.halves import Edge, cells_above, cells_below
from jaxacct.certificates.transforms import Transform


def laplace_delta(law: LaplaceNoise, epsilon: arb, reverse: bool) -> arb:
    """delta(epsilon) of one run, epsilon >= 0, of the noise or of a Poisson sample of it."""
    gamma, rate, most = epsilon.exp(), ball(law.rate), ball(law.epsilon)
    if law.rate == 1:
        return positive_part(1 - ((epsilon - most) / 2).exp())
    if not reverse:  # (W' - gamma O)_+ = rate (W - (gamma - 1 + rate) / rate O)_+
        share, inner = rate, (gamma - 1 + rate) / rate
    else:  # (O - gamma W')_+ = (1 - gamma (1 - rate)) (O - gamma rate / (1 - gamma (1 - rate)) W)_+
        share = positive_part(1 - gamma * (1 - rate))
        if not share > 0:
            return up_to(share)
        inner = gamma * rate / share
    return share * positive_part(1 - (inner * (-most).exp()).sqrt())


def laplace_residues(law: LaplaceNoise, steps: int, epsilon: arb) -> arb:
    """delta(epsilon) of ``steps`` runs without sampling."""
    most, total, many = ball(law.epsilon), arb(0), arb(1)
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


def laplace_cells(law: LaplaceNoise, cells: int, reverse: bool, upper: bool) -> Masses:
    """A finite law below the noise (each cell of losses one output) or above it (its masses at its ends)."""
    most, rate = ball(law.epsilon), ball(law.rate)
    edges: list[Edge] = []
    for k in range(cells + 1):
        loss = most * (2 * k - cells) / cells
        edges.append((loss.exp(), 1 - ((loss - most) / 2).exp() / 2, (-(loss + most) / 2).exp() / 2))
    inner, beyond = (cells_above if upper else cells_below)(edges)
    # The losses at the lower end, and those of the noise, mixed with what the sample leaves out.
    pairs = [((1 - rate) * o + rate * w, o) for w, o in [((-most).exp() / 2, arb(1) / 2), *inner]]
    return Masses([(o, w) for w, o in pairs] if reverse else pairs, arb(0), beyond.abs_upper())


class LaplaceTransform(Transform):
    """Moments of one run of Laplace noise, without sampling or on a sample."""

    def __init__(self, law: LaplaceNoise, reverse: bool) -> None:
        self.epsilon, self.rate, self.plain = ball(law.epsilon), ball(law.rate), law.rate == 1
        self.reverse = reverse

    def at(self, z: acb) -> acb:
        """In closed form without sampling, else by a quadrature of Arb's."""
        w = 1 - z if self.reverse else z
        if self.plain:
            s = w - arb(0.5)
            most = s * self.epsilon
            if s == 0:
                return acb((-self.epsilon / 2).exp() * (1 + self.epsilon / 2))
            return (-self.epsilon / 2).exp() * (most.cosh() + most.sinh() / (2 * s))
        low, high = (-self.epsilon).exp(), self.epsilon.exp()
        ends = (1 - self.rate + self.rate * high).log(), (1 - self.rate + self.rate * low).log()
        atoms = ((w * ends[0]).exp() * low + (w * ends[1]).exp()) / 2

        def inside(loss: acb, analytic: bool) -> acb:
            return (w * (1 - self.rate + self.rate * loss.exp()).log(analytic=analytic) - loss / 2).exp()

        return atoms + (-self.epsilon / 2).exp() / 4 * acb.integral(inside, -self.epsilon, self.epsilon)

    def limit(self, c: arb, y: arb) -> arb:
        """Without sampling it falls with ``y``."""
        whole = self.moment(c)
        if not self.plain or not y > 0:
            return whole
        s = abs((1 - c if self.reverse else c) - arb(0.5)) * self.epsilon
        found = (-self.epsilon / 2).exp() * s.cosh() * (1 + 1 / (2 * y))
        return found if found < whole else whole
