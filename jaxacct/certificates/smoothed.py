"""delta(epsilon) of compositions whose transform does not decay: enclosed by means over nearby epsilons.

f(epsilon) = exp(-epsilon) delta(epsilon) is convex and decreasing. Let F be its mean under a symmetric kernel on
[-eta, eta]. Then (Lemma 9 of docs/proofs/certificates.md)

    2 F(epsilon + eta) - F(epsilon + 2 eta) <= f(epsilon) <= F(epsilon),

which is off by about eta^2 f'' and never by more than the kernel's reach explains, atoms or not. The kernel is a
B-spline, whose transform falls like a power of the imaginary part.
"""

from __future__ import annotations

from jaxacct.certificates.balls import acb, arb, around_zero, ball, ctx
from jaxacct.certificates.contour import Transforms, aliases, finite_of, goal_of, growth, period_for, saddle, summed
from jaxacct.certificates.limits import NoCertificateError

_ORDER = 24


def smoothed_delta(parts: Transforms, epsilon: arb, digits: float, nodes: int) -> tuple[arb, arb]:
    """Lower and upper ends for delta less 1 - finite, with so many values of the transform."""
    c = saddle(parts, epsilon)
    goal = goal_of(parts, c, epsilon, digits)
    step = (2 * arb.pi() / ball(period_for(parts, c, epsilon, goal) * 1.1)).mid()
    eta = ball(float(_ORDER) / (float(step) * nodes) * 10.0 ** ((digits + 4.0) / _ORDER))
    wrapped = eta.exp() * aliases(parts, c, epsilon, 2 * arb.pi() / step, 3 * eta)
    room = around_zero(_left_out(parts, c, epsilon, step, nodes, eta) + wrapped)

    def kernel(z: acb) -> acb:
        return _spline(z, eta) / (z * (z - 1))

    shifts = [arb(0), eta, 2 * eta]
    means = summed(parts, c, epsilon, step, nodes, kernel, shifts)
    if c < 1:
        residue = finite_of(parts) * _spline(acb(1), eta).real
        means = [mean + residue for mean in means]
    means = [mean + room for mean in means]
    upper = means[0]
    lower = 2 * (-eta).exp() * means[1] - (-2 * eta).exp() * means[2]
    if not (upper - lower).is_finite():
        raise NoCertificateError("the kernel is too wide for a certificate")
    return lower.lower().max(arb(0)), upper.upper()


def _spline(z: acb, eta: arb) -> acb:
    """The mean of exp(z t) under the kernel: a sum of uniform variables on [-eta, eta] / order."""
    at = z * eta / _ORDER
    return (at.sinh() / at) ** _ORDER


def _left_out(parts: Transforms, c: arb, epsilon: arb, step: arb, count: int, eta: arb) -> arb:
    """A bound on the terms from number ``count`` on, at every shift."""
    with ctx.workprec(64 + growth(parts)):
        reach = step * (count - 1)
        modulus = sum((steps * one.limit(c, reach).log() for one, steps in parts), arb(0))
        spline = ((c * eta / _ORDER).cosh() * _ORDER / (eta * reach)) ** _ORDER
        grown = (2 * eta * (1 - c)).exp() if c < 1 else arb(1)
        return grown * (modulus - (c - 1) * epsilon).exp() * spline / (arb.pi() * (_ORDER + 1) * reach)
