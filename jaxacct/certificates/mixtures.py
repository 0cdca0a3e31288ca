"""Gaussians and mixtures of them: one run in closed form, moments by a quadrature whose error is bounded.

Put g(x) = sum_i w_i exp(m_i x - m_i^2 / 2), the ratio of W's density to O's at x, for O = N(0, 1). Then the moments are
E[g(X)^w], X ~ O, at w = z (`remove`) or w = 1 - z (`add`). docs/proofs/certificates.md proves the bounds that are used
here: the trapezoid rule (Lemma 3), its tails (Lemma 4), and how fast |E[g^w]| falls with the imaginary part (Lemma 5).
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from jaxacct.certificates.balls import acb, arb, ball, ctx, gaussian_tail, key_of, log2_size, positive_part
from jaxacct.certificates.laws import Mixture, Normal
from jaxacct.certificates.limits import NoCertificateError
from jaxacct.certificates.sums import power_sums

__all__ = ["MixtureTransform", "NormalTransform", "mixture_delta", "normal_delta"]

_ANGLES = (0.15, 0.4, 0.9, 1.6, 2.4)
_BOXES = 160
_ENOUGH = 150.0  # of the modulus' logarithm after all steps: no better bound is needed
_MOST_POINTS = 60_000
_MOST_PRODUCTS = 30_000_000
_SHARES = (0.02, 0.08, 0.16, 0.3, 0.5, 0.7, 0.84, 0.92, 0.98)


def normal_delta(law: Normal, epsilon: Any) -> Any:
    """delta(epsilon) of N(mu, 1) against N(0, 1)."""
    mu = ball(law.square).sqrt()
    return gaussian_tail(epsilon / mu - mu / 2) - epsilon.exp() * gaussian_tail(epsilon / mu + mu / 2)


def mixture_delta(law: Mixture, epsilon: Any, reverse: bool) -> Any:
    """delta(epsilon) of one run: both tails beyond the output whose loss is epsilon, which is enclosed by bisection."""
    shape = _Shape(law)
    gamma = (-epsilon).exp() if reverse else epsilon.exp()
    floor = sum((w for w, m in shape.parts if m == 0), arb(0))
    if reverse and not gamma > floor:
        # (O - W / gamma)_+ <= (1 - floor / gamma)_+ O, as W >= floor O.
        return arb(0) if gamma < floor else arb(0).union(positive_part(1 - floor / gamma))
    low, high = arb(-1), arb(1)
    while not shape.ratio(low) < gamma:
        low *= 2
    while not shape.ratio(high) > gamma:
        high *= 2
    for _ in range(2 * ctx.prec + 64):
        middle = ((low + high) / 2).mid()
        there = shape.ratio(middle)
        if there < gamma:
            low = middle
        elif there > gamma:
            high = middle
        else:
            break
    at = low.union(high)
    if reverse:
        return gaussian_tail(-at) - epsilon.exp() * sum(w * gaussian_tail(m - at) for w, m in shape.parts)
    return sum(w * gaussian_tail(at - m) for w, m in shape.parts) - epsilon.exp() * gaussian_tail(at)


class NormalTransform:
    """E_O[exp(z L)] = exp(mu^2 z (z - 1) / 2)."""

    def __init__(self, law: Normal) -> None:
        self.square = ball(law.square)
        self.finite = arb(1)

    def moment(self, c: Any) -> Any:
        """At a real number."""
        return (self.square * c * (c - 1) / 2).exp()

    def line(self, c: Any, h: Any, count: int) -> list[Any]:
        """At c + i k h, k from 0 to ``count`` - 1."""
        points = (acb(c, h * k) for k in range(count))
        return [(self.square * z * (z - 1) / 2).exp() for z in points]

    def limit(self, c: Any, y: Any) -> Any:
        """No modulus on the line is larger from imaginary part ``y`` on."""
        return (self.square * (c * (c - 1) - y * y) / 2).exp()


class _Shape:
    """The ratio g and its weights as balls."""

    def __init__(self, law: Mixture) -> None:
        self.parts = [(ball(w), ball(square).sqrt()) for w, square in law.parts]
        self.largest = max((m for _, m in self.parts), key=float)
        self.smallest = min(self.parts, key=lambda part: float(part[1]))

    def ratio(self, x: Any) -> Any:
        """g at a real or complex ball."""
        return sum(w * (m * x - m * m / 2).exp() for w, m in self.parts)

    def slope(self, x: Any) -> Any:
        """The derivative of log g."""
        return sum(w * m * (m * x - m * m / 2).exp() for w, m in self.parts) / self.ratio(x)


class _Rule(NamedTuple):
    """Nodes of the trapezoid rule, log g and weights there; its errors as in Lemmas 3 and 4.

    ``at_zero`` and ``at_reach`` are shares of the real moment, at imaginary parts 0 and the largest asked for.
    """

    nodes: list[Any]
    logs: list[Any]
    weights: list[Any]
    at_zero: Any
    at_reach: Any
    tails: Any


class MixtureTransform:
    """The moments of a mixture, in one direction."""

    def __init__(self, law: Mixture, reverse: bool, steps: int = 1) -> None:
        self.shape, self.reverse, self.steps = _Shape(law), reverse, steps
        self.finite = arb(1)
        self._cells: dict[Any, list[list[tuple[Any, Any]]]] = {}
        self._moments: dict[Any, Any] = {}
        self._boxes: dict[Any, tuple[list[tuple[Any, Any]], Any]] = {}

    def _power(self, c: Any) -> Any:
        return 1 - c if self.reverse else c

    def moment(self, c: Any) -> Any:
        """At a real number."""
        key = key_of(c)
        if key not in self._moments:
            self._moments[key] = self._sums(c, arb(0), 1)[0].real
        return self._moments[key]

    def line(self, c: Any, h: Any, count: int) -> list[Any]:
        """At c + i k h, k from 0 to ``count`` - 1."""
        return self._sums(c, h, count)

    def _sums(self, c: Any, h: Any, count: int) -> list[Any]:
        rho = self._power(c)
        rule = self._rule(rho, h * (count - 1))
        if len(rule.nodes) * count > _MOST_PRODUCTS:
            raise NoCertificateError(f"{count} moments of {len(rule.nodes)} points each would take too long")
        sign = -1 if self.reverse else 1
        sums = power_sums(rule.weights, [sign * h * one for one in rule.logs], count)
        whole = (sums[0].real + _room_of(rule.tails)) / (1 + _room_of(rule.at_zero))
        room = _room_of(rule.at_reach * whole + rule.tails)
        return [acb(whole), *(one + acb(room, room) for one in sums[1:])]

    def _rule(self, rho: Any, reach: Any) -> _Rule:
        bits = float(ctx.prec) * math.log(2.0)
        r, y, m = float(rho.mid()), float(reach.abs_upper()), float(self.shape.largest)
        a = ball(min(2.2 / m, math.sqrt(2.0 * bits)))
        angle = a * self.shape.largest
        lost = arb(1) if r >= 0 else (angle / 2).cos() ** rho
        step = 2 * arb.pi() * a / (ball(bits + y * float(angle) + 2.0) + a * a / 2 + lost.log())
        step = step.mid()
        low, high, tails = self._domain(rho, bits, step)
        count = math.ceil(float(((low + high) / step).abs_upper())) + 1
        if count > _MOST_POINTS:
            raise NoCertificateError(f"a moment would take {count} points, more than {_MOST_POINTS}")
        nodes = [step * k - low for k in range(count)]
        logs = [self.shape.ratio(x).log() for x in nodes]
        scale = step / (2 * arb.pi()).sqrt()
        weights = [scale * (rho * one - x * x / 2).exp() for x, one in zip(nodes, logs, strict=True)]
        error = 2 * lost * (a * a / 2).exp() / ((2 * arb.pi() * a / step).exp() - 1)
        return _Rule(nodes, logs, weights, error, error * (reach * angle).exp(), tails)

    def _domain(self, rho: Any, bits: float, step: Any) -> tuple[Any, Any, Any]:
        """Nodes from -low to high, and a bound on the sum over all others."""
        r, m = float(rho.mid()), float(self.shape.largest)
        weight, least = self.shape.smallest
        if r >= 0:
            factor, kappa = arb(1), rho * self.shape.largest
            known = [r * math.log(float(w)) + float(x) ** 2 * r * (r - 1) / 2 for w, x in self.shape.parts]
            known.append(0.0 if not 0 < r < 1 else -math.inf)
        else:
            factor, kappa = (weight * (-least * least / 2).exp()) ** rho, -rho * least
            known = [0.0]
        del m
        k, rest = float(kappa.abs_upper()), bits - max(known) + 2.0
        size = max(0.0, k * k / 2 + log2_size(factor) * math.log(2.0))
        high = ball(k + math.sqrt(2.0 * max(1.0, rest + size)) + 1.0) + step
        if r >= 0:  # at x <= 0 the ratio is at most 1
            low = ball(math.sqrt(2.0 * max(1.0, rest)) + 1.0) + step
            beneath = gaussian_tail(low - step)
        else:
            low = high
            beneath = factor * (kappa * kappa / 2).exp() * gaussian_tail(low - step - kappa)
        above = factor * (kappa * kappa / 2).exp() * gaussian_tail(high - step - kappa)
        return low.mid(), high.mid(), 2 * (above + beneath)

    def limit(self, c: Any, y: Any) -> Any:
        """No modulus on the line is larger from imaginary part ``y`` on."""
        rho = self._power(c)
        whole = self.moment(c)
        if not y > 0:
            return whole
        gaps = [sum((mass * _room(y * w / 2) for mass, w in cells), arb(0)) for cells in self._layers(rho)]
        best = (whole - max(gaps, key=float)).abs_upper()
        if math.log(float(best / whole)) * self.steps < -_ENOUGH:
            return best
        for angle in _ANGLES:
            # What no saddle point is near is not tried: the modulus of O's density grows with the square.
            shift = angle / float(self.shape.largest)
            if shift * shift / 2 < 60:
                shifted = self._shifted(rho, y, shift)
                best = shifted if shifted < best else best
        return best

    def _layers(self, rho: Any) -> list[list[tuple[Any, Any]]]:
        """Uniform laws beneath the loss's weighted density: (mass, width) of disjoint ones, in two ways."""
        key = key_of(rho)
        if key not in self._cells:
            with ctx.workprec(64):
                rule = self._rule(rho, arb(0))
                places = _quantiles([float(w) for w in rule.weights])
                x = [float(rule.nodes[k]) for k in places]
                ways = [[(x[2], x[6])], list(itertools.pairwise(x))]
                self._cells[key] = [[self._layer(rho, a, b) for a, b in way if b > a] for way in ways]
        return self._cells[key]

    def _layer(self, rho: Any, start: float, stop: float) -> tuple[Any, Any]:
        least, boxes = None, 24
        for k in range(boxes):
            a, b = (ball(start + (stop - start) * (k + j) / boxes) for j in (0, 1))
            x = a.union(b)
            ratio = self.shape.ratio(a).union(self.shape.ratio(b))  # it rises
            slope = self.shape.slope(a).union(self.shape.slope(b))  # so does this: log g is convex
            density = (rho * ratio.log() - x * x / 2).exp() / ((2 * arb.pi()).sqrt() * slope)
            low = density.lower()
            least = low if least is None or low < least else least
        width = self.shape.ratio(ball(stop)).log() - self.shape.ratio(ball(start)).log()
        width = positive_part(width.lower())
        return positive_part(least) * width, width

    def _shifted(self, rho: Any, y: Any, shift: float) -> Any:
        """The integral of the modulus at ``y`` along a line above the real one, from above."""
        with ctx.workprec(64):
            key = (key_of(rho), shift)
            if key not in self._boxes:
                self._boxes[key] = self._cover(rho, ball(shift))
            boxes, tails = self._boxes[key]
            return (sum(((size - y * angle).exp().abs_upper() for size, angle in boxes), arb(0)) + tails).abs_upper()

    def _cover(self, rho: Any, a: Any) -> tuple[list[tuple[Any, Any]], Any]:
        """(log of width times modulus, argument of g) on boxes of the line x + i a, and what lies beyond them."""
        low, high, _ = self._domain(rho, 60.0, arb(0))
        scale = (low + high) / (_BOXES * (2 * arb.pi()).sqrt())
        found = []
        for k in range(_BOXES):
            x = ((low + high) * k / _BOXES - low).union((low + high) * (k + 1) / _BOXES - low)
            log = self.shape.ratio(acb(x, a)).log()
            found.append((scale.log() + rho * log.real - (x * x - a * a) / 2, log.imag))
        # Beyond: the argument of g is not negative there, and its modulus is bounded as in `_domain`.
        lost = arb(1) if rho >= 0 else ((a * self.shape.largest / 2).cos()) ** rho
        weight, least = self.shape.smallest
        plain = rho >= 0
        factor = arb(1) if plain else (weight * (-least * least / 2).exp()) ** rho
        kappa = rho * self.shape.largest if plain else -rho * least
        whole = factor * (kappa * kappa / 2).exp()
        beneath = gaussian_tail(low) if plain else whole * gaussian_tail(low - kappa)
        return found, lost * (a * a / 2).exp() * (whole * gaussian_tail(high - kappa) + beneath)


def _quantiles(weights: list[float]) -> list[int]:
    """Places up to which these shares of all weights lie."""
    total, run, found = math.fsum(weights), 0.0, []
    for place, one in enumerate(weights):
        run += one
        while len(found) < len(_SHARES) and run >= _SHARES[len(found)] * total:
            found.append(place)
    return found


def _room_of(value: Any) -> Any:
    """The ball around 0 of that radius."""
    return arb(0, value.abs_upper())


def _room(v: Any) -> Any:
    """1 less the greatest |sin(t) / t| of all t >= ``v``, from below; it is increasing up to 2.4, 0.718 from there."""
    v = v if v < arb("2.4") else arb("2.4")
    return positive_part(1 - v.sin() / v)
