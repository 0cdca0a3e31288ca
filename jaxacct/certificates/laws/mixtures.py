"""Gaussians and mixtures of them: one run in closed form, moments by a quadrature whose error is bounded.

Put g(x) = sum_i w_i exp(m_i x - m_i^2 / 2) and h(x) = sum_i o_i exp(-n_i x - n_i^2 / 2), the ratios of W's and O's
densities at x to that of N(0, 1); in most cases h is 1. Then the moments are E[g(X)^w h(X)^(1 - w)], X ~ N(0, 1), at
w = z (`remove`) or w = 1 - z (`add`). docs/proofs/certificates.md proves the bounds that are used here: the trapezoid
rule (Lemma 3), its tails (Lemma 4), and how fast the moments fall with the imaginary part (Lemma 5).
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeVar

from jaxacct.certificates.balls import acb, arb, around_zero, ball, ctx, gaussian_tail, key_of, log2_size
from jaxacct.certificates.laws.base import Normal, Shifts
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.sums import power_sums
from jaxacct.certificates.transforms import Transform

_Ball = TypeVar("_Ball", arb, acb)
_ANGLES = (0.15, 0.4, 0.9, 1.6, 2.4)
_BOXES = 160
_MOST_POINTS = 60_000
_MOST_PRODUCTS = 30_000_000


def normal_delta(law: Normal, epsilon: arb) -> arb:
    """delta(epsilon) of N(mu, 1) against N(0, 1)."""
    mu = ball(law.square).sqrt()
    return gaussian_tail(epsilon / mu - mu / 2) - epsilon.exp() * gaussian_tail(epsilon / mu + mu / 2)


class NormalTransform(Transform):
    """E_O[exp(z L)] = exp(mu^2 z (z - 1) / 2)."""

    def __init__(self, law: Normal) -> None:
        self.square = ball(law.square)

    def at(self, z: acb) -> acb:
        """The transform at a complex number, in closed form."""
        return (z * self.square * (z - 1) / 2).exp()

    def limit(self, c: arb, y: arb) -> arb:
        """It falls as a Gaussian does."""
        return (self.square * (c * (c - 1) - y * y) / 2).exp()


class _Shape:
    """The ratios g and h and their weights as balls."""

    def __init__(self, law: Shifts) -> None:
        self.parts, self.base = ([(ball(w), ball(abs(m)).sqrt()) for w, m in side] for side in (law.parts, law.base))
        self.apart = any(m for _, m in law.base)
        self.farthest = [max((m for _, m in side), key=float) for side in (self.parts, self.base)]
        self.nearest = [min(side, key=lambda part: float(part[1])) for side in (self.parts, self.base)]
        self.largest = max(self.farthest, key=float)

    def above(self, x: _Ball) -> _Ball:
        """The ratio g at ``x``, a weighted sum over its parts."""
        return sum(((x * m - m * m / 2).exp() * w for w, m in self.parts), x * 0)

    def below(self, x: _Ball) -> _Ball:
        """The ratio h at ``x``; 1 where the base is one part."""
        return sum(((x * -m - m * m / 2).exp() * w for w, m in self.base), x * 0) if self.apart else x * 0 + 1

    def ratio(self, x: arb) -> arb:
        """The likelihood ratio g / h at ``x``."""
        return self.above(x) / self.below(x) if self.apart else self.above(x)

    def size(self, rho: arb, x: acb) -> tuple[arb, arb]:
        """The logarithm of |g^rho h^(1 - rho)| and the argument of g / h."""
        log, other = self.above(x).log(), self.below(x).log()
        return rho * log.real + (1 - rho) * other.real, log.imag - other.imag


class _Rule(NamedTuple):
    """Nodes of the trapezoid rule, log g and weights there; its errors as in Lemmas 3 and 4.

    ``at_zero`` and ``at_reach`` are shares of the real moment, at imaginary parts 0 and the largest asked for.
    """

    nodes: list[arb]
    logs: list[arb]
    weights: list[arb]
    at_zero: arb
    at_reach: arb
    tails: arb


class MixtureTransform(Transform):
    """The moments of a mixture, in one direction."""

    def __init__(self, law: Shifts, reverse: bool) -> None:
        self.shape, self.reverse = _Shape(law), reverse
        lost = ball(law.lost)
        if reverse:
            self.lost_beneath = lost
        else:
            self.finite, self.lost = 1 - lost, lost
        self._moments: dict[tuple[int, ...], arb] = {}
        self._boxes: dict[tuple[tuple[int, ...], float], tuple[list[tuple[arb, arb]], arb]] = {}

    def _power(self, c: arb) -> arb:
        return 1 - c if self.reverse else c

    def moment(self, c: arb) -> arb:
        """The transform at a real number, by quadrature."""
        key = key_of(c)
        if key not in self._moments:
            self._moments[key] = self.line(c, arb(0), 1)[0].real
        return self._moments[key]

    def line(self, c: arb, h: arb, count: int) -> list[acb]:
        """By one quadrature for all."""
        rho = self._power(c)
        rule = self._rule(rho, h * (count - 1))
        if len(rule.nodes) * count > _MOST_PRODUCTS:
            raise NoCertificateError(f"{count} moments of {len(rule.nodes)} points each would take too long")
        sign = -1 if self.reverse else 1
        sums = power_sums(rule.weights, [sign * h * one for one in rule.logs], count)
        whole = (sums[0].real + around_zero(rule.tails)) / (1 + around_zero(rule.at_zero))
        room = around_zero(rule.at_reach * whole + rule.tails)
        return [acb(whole), *(one + acb(room, room) for one in sums[1:])]

    def _rule(self, rho: arb, reach: arb) -> _Rule:
        bits = float(ctx.prec) * math.log(2.0)
        y, m = float(reach.abs_upper()), float(self.shape.largest)
        a = ball(min(2.2 / m, math.sqrt(2.0 * bits)))
        angle, lost = a * sum(self.shape.farthest, arb(0)), self._turned(rho, a)
        step = 2 * arb.pi() * a / (ball(bits + y * float(angle) + 2.0) + a * a / 2 + lost.log())
        step = step.mid()
        low, high, tails = self._domain(rho, bits, step)
        count = math.ceil(float(((low + high) / step).abs_upper())) + 1
        if count > _MOST_POINTS:
            raise NoCertificateError(f"a moment would take {count} points, more than {_MOST_POINTS}")
        nodes = [step * k - low for k in range(count)]
        logs = [self.shape.ratio(x).log() for x in nodes]
        scale = step / (2 * arb.pi()).sqrt()
        # g^rho h^(1 - rho) = (g / h)^rho h
        weights = [scale * (rho * one - x * x / 2).exp() * self.shape.below(x)
                   for x, one in zip(nodes, logs, strict=True)]  # fmt: skip
        error = 2 * lost * (a * a / 2).exp() / ((2 * arb.pi() * a / step).exp() - 1)
        return _Rule(nodes, logs, weights, error, error * (reach * angle).exp(), tails)

    def _domain(self, rho: arb, bits: float, step: arb) -> tuple[arb, arb, arb]:
        """Nodes from -low to high, and a bound on the sum over all others."""
        shape, r = self.shape, float(rho.mid())
        factor, right, left = arb(1), arb(0), arb(0)
        sides = zip((rho, 1 - rho), shape.farthest, shape.nearest, (True, False), strict=True)
        for power, most, (weight, least), towards in sides:
            # A power of g or of h is at most factor exp(right x) at x > 0, factor exp(-left x) at x < 0.
            if power < 0:
                factor *= (weight * (-least * least / 2).exp()) ** power
            grows = power * most if power >= 0 else -power * least
            if (power >= 0) == towards:
                right += grows
            else:
                left += grows
        known = [0.0]
        if 0 < r < 1 or (r > 1 and not shape.apart):
            known = [r * math.log(float(w)) + (1 - r) * math.log(float(o)) - float(m + n) ** 2 * r * (1 - r) / 2
                     for w, m in shape.parts for o, n in shape.base]  # fmt: skip
            known += [0.0] * (r > 1)
        rest, size = bits - max(known) + 2.0, log2_size(factor) * math.log(2.0)
        ends: list[arb] = []
        beyond = arb(0)
        for kappa in (left, right):
            k = float(kappa.abs_upper())
            ends.append((ball(k + math.sqrt(2.0 * max(1.0, rest + max(0.0, k * k / 2 + size))) + 1.0) + step).mid())
            beyond += factor * (kappa * kappa / 2).exp() * gaussian_tail(ends[-1] - step - kappa)
        return ends[0], ends[1], 2 * beyond

    def limit(self, c: arb, y: arb) -> arb:
        """It falls as the integrals along lines above the real one do."""
        rho = self._power(c)
        best = whole = self.moment(c)
        if not y > 0:
            return whole
        for angle in _ANGLES:
            # What no saddle point is near is not tried: the modulus of O's density grows with the square.
            shift = angle / float(self.shape.largest)
            if shift * shift / 2 < 60:
                shifted = self._shifted(rho, y, shift)
                best = shifted if shifted < best else best
        return best

    def _shifted(self, rho: arb, y: arb, shift: float) -> arb:
        """The integral of the modulus at ``y`` along a line above the real one, from above."""
        with ctx.workprec(64):
            key = (key_of(rho), shift)
            if key not in self._boxes:
                self._boxes[key] = self._cover(rho, ball(shift))
            boxes, tails = self._boxes[key]
            return (sum(((size - y * angle).exp().abs_upper() for size, angle in boxes), arb(0)) + tails).abs_upper()

    def _cover(self, rho: arb, a: arb) -> tuple[list[tuple[arb, arb]], arb]:
        """(log of width times modulus, argument of g) on boxes of the line x + i a, and what lies beyond them."""
        low, high, tails = self._domain(rho, 60.0, arb(0))
        scale = (low + high) / (_BOXES * (2 * arb.pi()).sqrt())
        found = []
        for k in range(_BOXES):
            x = ((low + high) * k / _BOXES - low).union((low + high) * (k + 1) / _BOXES - low)
            size, angle = self.shape.size(rho, acb(x, a))
            found.append((scale.log() + size - (x * x - a * a) / 2, angle))
        # Beyond: the argument is not negative there, and the modulus is bounded as in `_domain`.
        return found, self._turned(rho, a) * (a * a / 2).exp() * tails

    def _turned(self, rho: arb, a: arb) -> arb:
        """By what factor the modulus may be larger within ``a`` of the real line than on it (Lemma 3)."""
        found = arb(1)
        for power, most in zip((rho, 1 - rho), self.shape.farthest, strict=True):
            found *= arb(1) if power >= 0 else (a * most / 2).cos() ** power
        return found
